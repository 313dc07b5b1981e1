package pipeline

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
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// KeptKey is where the interim metadata of an item is kept.
func KeptKey(item int64) string { return fmt.Sprintf("items/%d.jsonl.gz", item) }

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
	ID               int64     `json:"id"`
	Action           string    `json:"action"`
	Stage            string    `json:"stage"`
	Status           string    `json:"status"`
	Institution      string    `json:"institution"`
	ObjectIdentifier string    `json:"object_identifier"`
	Name             string    `json:"name"`
	Bucket           string    `json:"bucket"`
	ETag             string    `json:"etag"`
	Size             int64     `json:"size"`
	BagDate          time.Time `json:"bag_date"`
	CreatedAt        time.Time `json:"created_at"`
	Outcome          string    `json:"outcome"`
	ErrorCode        string    `json:"error_code"`
	Note             string    `json:"note"`
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

// keeping is what one pass keeps of an item. What it has kept once stays, since the next
// attempt of the same pass may find only a part of it.
type keeping struct {
	item     registry.WorkItem
	attempts []registry.Attempt
	pass     string
	check    func(context.Context) error // of whether the pass is still the one
}

// keepAtEnd keeps the interim metadata of an item that Cleanup is about to delete.
func (s *cleanup) keepAtEnd(ctx context.Context, w *work, attempts []registry.Attempt) error {
	if s.Kept == nil {
		return nil
	}
	item, err := s.Registry.WorkItem(ctx, w.item.ID)
	if err != nil {
		return err
	}
	return s.keep(ctx, keeping{item, attempts, w.passOf(), w.hold.Check})
}

// clear forgets what a finished stage, or a request at its end, has in Redis. What
// stays there is cleaned up later. A stage has put into its list what is to be kept.
func (r *Runner) clear(ctx context.Context, w *work, ended bool) {
	var err error
	switch {
	case ended && r.keeps:
		return // the janitor keeps it first
	case ended:
		err = r.progress.Clear(ctx, w.item.ID)
	default:
		err = r.progress.ClearStage(ctx, w.claim(), w.passOf())
	}
	if err != nil && !errors.Is(err, progress.ErrLost) {
		w.log.WarnContext(ctx, "progress of a finished stage stays in Redis until cleanup", "err", err)
	}
}

// keepFirst keeps the interim metadata of an item that the janitor is about to delete.
// Of an item that succeeded Cleanup has kept it, and what is left is a part of that.
func (r *round) keepFirst(ctx context.Context, f fate) error {
	if r.Kept == nil {
		return nil
	}
	k := keeping{item: registry.WorkItem{ID: f.item}, pass: fmt.Sprintf("ended@%d", f.state.Token), check: func(context.Context) error { return nil }}
	if f.why != whyUnknown {
		var err error
		if k.item, err = r.Registry.WorkItem(ctx, f.item); err != nil {
			return err
		}
		if k.attempts, err = r.Registry.Attempts(ctx, f.item); err != nil {
			return err
		}
	}
	return r.keep(ctx, k)
}

// keep writes what is known of an item to the bucket for that, unless that is done.
func (d Deps) keep(ctx context.Context, k keeping) error {
	already, err := d.Kept.Head(ctx, KeptKey(k.item.ID))
	switch {
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return d.keptErr(ctx, err)
	case err == nil && already.Metadata["pass"] == k.pass:
		return nil
	case err == nil && k.item.Status == "Success" && strings.HasPrefix(already.Metadata["pass"], lastStage+"@"):
		return nil
	}
	m, err := d.Interim(ctx, k.item, k.attempts)
	if err != nil {
		return fmt.Errorf("read the interim metadata of item %d: %w", k.item.ID, err)
	}
	defer m.Close()
	if k.item.Action == "" && !m.Anything() {
		return nil // nobody knows whose it is
	}
	to := spooled{
		bucket: d.Kept, key: KeptKey(k.item.ID), check: k.check,
		up: storage.Upload{ContentType: "application/gzip", Metadata: map[string]string{"pass": k.pass}},
	}
	err = to.put(ctx, func(out io.Writer) error {
		z := gzip.NewWriter(out)
		return errors.Join(d.writeKept(ctx, m, k.pass, json.NewEncoder(z)), z.Close())
	})
	if err != nil {
		return fmt.Errorf("keep the interim metadata of item %d: %w", k.item.ID, d.keptErr(ctx, err))
	}
	return nil
}

// keptErr says of an error of the bucket for the interim metadata that it is the
// bucket's, whatever it is: the item has no part in it.
func (d Deps) keptErr(ctx context.Context, err error) error {
	bytes := errors.Is(err, storage.ErrDigest) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged)
	if ctx.Err() != nil || fault.In(err) != nil || !bytes {
		return err
	}
	return wrongAnswer(d.Kept, "not what was sent", "%w", err)
}

// writeKept writes the lines. None of an item's files is in memory for longer than that.
func (d Deps) writeKept(ctx context.Context, m *Interim, pass string, lines *json.Encoder) error {
	if err := lines.Encode(m.header(d, pass)); err != nil { //nolint:gosec // a pass through a stage is no password
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

func (m *Interim) header(d Deps, pass string) keptHeader {
	i := m.Item
	h := keptHeader{
		Version: keptVersion, KeptAt: time.Now().UTC(), KeptBy: d.software(), Pass: pass,
		Stages: m.Stages, Counters: m.Counters, Faults: m.Faults, Missing: append([]string{}, m.Missing...),
		Item: keptItem{
			ID: i.ID, Action: i.Action, Stage: i.Stage, Status: i.Status, Institution: i.Institution, ObjectIdentifier: i.ObjectIdentifier,
			Name: i.Name, Bucket: i.Bucket, ETag: i.ETag, Size: i.Size, BagDate: i.BagDate, CreatedAt: i.CreatedAt,
			Outcome: i.Outcome, ErrorCode: i.ErrorCode, Note: storage.Redact(i.Note),
		},
	}
	if m.Known() {
		b := m.r.bag
		h.Bag = &keptBag{
			Profile: b.ProfileIdentifier(), StorageOption: b.StorageOption(), Manifests: b.Manifests, TagManifests: b.TagManifests,
			HasFetch: b.HasFetch, Tags: b.Tags, Problems: b.Problems, Warnings: b.Warnings, More: b.More,
		}
	}
	return h
}
