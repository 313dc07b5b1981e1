package interim

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// key is where the interim metadata of an item is kept.
func key(item int64) string { return fmt.Sprintf("items/%d.jsonl.gz", item) }

// keptVersion is the version of what is kept. Members may be added to its lines.
const keptVersion = 1

// keptHeader is the first line of what is kept of an item. A line for each file follows.
type keptHeader struct {
	Version  int                `json:"version"`
	KeptAt   time.Time          `json:"kept_at"`
	KeptBy   string             `json:"kept_by"` // this program
	Pass     string             `json:"pass"`    // see keeping
	Item     keptItem           `json:"item"`
	Bag      *keptBag           `json:"bag,omitempty"`      // of an ingest whose files are known
	Stages   map[string]int64   `json:"stages"`             // how many files each had finished, by its name and pass
	Counters *progress.Counters `json:"counters,omitempty"` // how far the last attempt came
	Faults   *progress.Faults   `json:"faults,omitempty"`   // what the last attempt failed of
	Missing  []string           `json:"missing"`            // lists that were not there
}

type keptItem struct {
	ID               int64           `json:"id"`
	Action           registry.Action `json:"action"`
	Stage            registry.Stage  `json:"stage"`
	Status           registry.Status `json:"status"`
	Institution      string          `json:"institution"`
	ObjectIdentifier string          `json:"object_identifier"`
	Name             string          `json:"name"`
	Bucket           string          `json:"bucket"`
	ETag             string          `json:"etag"`
	Size             int64           `json:"size"`
	BagDate          time.Time       `json:"bag_date"`
	CreatedAt        time.Time       `json:"created_at"`
	Outcome          string          `json:"outcome"`
	ErrorCode        string          `json:"error_code"`
	Note             string          `json:"note"`
}

type keptBag struct {
	Profile       string          `json:"profile_identifier"`
	StorageOption string          `json:"storage_option"`
	Manifests     []bag.Algorithm `json:"manifests"`
	TagManifests  []bag.Algorithm `json:"tag_manifests"`
	HasFetch      bool            `json:"has_fetch"`
	Tags          []bag.Tag       `json:"tags"`
	Problems      []bag.Finding   `json:"problems"`
	Warnings      []bag.Finding   `json:"warnings"`
	More          int             `json:"more"` // problems and warnings that are not there
}

// keptEnd is the last line. What is kept without it was cut.
type keptEnd struct {
	End   bool `json:"end"`
	Files int  `json:"files"`
}

// Keeping is what one pass keeps of an item. What it has kept once stays, since the next
// attempt of the same pass may find only a part of it.
type Keeping struct {
	Item     record.WorkItem
	Attempts []record.Attempt
	Pass     string
	Check    func(context.Context) error // of whether the pass is still the one
}

// Keeper keeps the interim metadata of items before it is deleted.
type Keeper struct {
	Reader
	Bucket   *storage.Bucket // that it is kept in
	Software string          // this program, as it is named in what is kept
}

// Keep writes what is known of an item to the bucket for that, unless that is done.
func (k *Keeper) Keep(ctx context.Context, p Keeping) error {
	already, err := k.Bucket.Head(ctx, key(p.Item.ID))
	switch {
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return k.keptErr(ctx, err)
	case err == nil && already.Metadata["pass"] == p.Pass:
		return nil
	case err == nil && p.Item.Status == "Success" && strings.HasPrefix(already.Metadata["pass"], string(k.Stages[len(k.Stages)-1].Name)+"@"):
		return nil
	}
	m, err := k.Read(ctx, p.Item, p.Attempts)
	if err != nil {
		return fmt.Errorf("read the interim metadata of item %d: %w", p.Item.ID, err)
	}
	defer m.Close()
	if p.Item.Action == "" && !m.anything() {
		return nil // nobody knows whose it is
	}
	to := lists.Spooled{
		Bucket: k.Bucket, Key: key(p.Item.ID), Check: p.Check,
		Up: storage.Upload{ContentType: "application/gzip", Metadata: map[string]string{"pass": p.Pass}},
	}
	_, err = to.Put(ctx, func(out io.Writer) error {
		z := gzip.NewWriter(out)
		return errors.Join(k.writeKept(ctx, m, p.Pass, json.NewEncoder(z)), z.Close())
	})
	if err != nil {
		return fmt.Errorf("save the interim metadata of item %d: %w", p.Item.ID, k.keptErr(ctx, err))
	}
	return nil
}

// keptErr says of an error of the bucket for the interim metadata that it is the
// bucket's, whatever it is: the item has no part in it.
func (k *Keeper) keptErr(ctx context.Context, err error) error {
	bytes := errors.Is(err, storage.ErrDigest) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged)
	if ctx.Err() != nil || fault.In(err) != nil || !bytes {
		return err
	}
	return cause.WrongAnswer(k.Bucket, "the stored bytes differ from the bytes sent", "%w", err)
}

// writeKept writes the lines. None of an item's files is in memory for longer than that.
func (k *Keeper) writeKept(ctx context.Context, m *Metadata, pass string, lines *json.Encoder) error {
	if err := lines.Encode(m.header(k.Software, pass)); err != nil { //nolint:gosec // a pass through a stage is no password
		return err
	}
	end := keptEnd{End: true}
	for f, err := range m.Files(ctx) {
		if err != nil {
			return err
		}
		if err := lines.Encode(f); err != nil {
			return err
		}
		end.Files++
	}
	return lines.Encode(end)
}

func (m *Metadata) header(software, pass string) keptHeader {
	i := m.Item
	h := keptHeader{
		Version: keptVersion, KeptAt: time.Now().UTC(), KeptBy: software, Pass: pass,
		Stages: m.Stages, Counters: m.Counters, Faults: m.Faults, Missing: append([]string{}, m.Missing...),
		Item: keptItem{
			ID: i.ID, Action: i.Action, Stage: i.Stage, Status: i.Status, Institution: i.Institution, ObjectIdentifier: i.ObjectIdentifier,
			Name: i.Name, Bucket: i.Bucket, ETag: i.ETag, Size: i.Size, BagDate: i.BagDate, CreatedAt: i.CreatedAt,
			Outcome: i.Outcome, ErrorCode: i.ErrorCode, Note: storage.Redact(i.Note),
		},
	}
	if m.Known() {
		b := m.lists.Bag
		h.Bag = &keptBag{
			Profile: b.ProfileIdentifier(), StorageOption: b.StorageOption(), Manifests: b.Manifests, TagManifests: b.TagManifests,
			HasFetch: b.HasFetch, Tags: b.Tags, Problems: b.Problems, Warnings: b.Warnings, More: b.More,
		}
	}
	return h
}
