package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// recording puts the object, its files, digests, copies and events on record in
// one transaction. From its commit on, and not before, the registry describes
// what this item stored.
type recording struct {
	Registry *registry.Registry
	Targets  copies.Targets
}

func (s *recording) Run(ctx context.Context, w *work) error {
	if err := legalName(w.Item.Name); err != nil { // Receive of an earlier version took it
		return err
	}
	if err := w.afterRequests(ctx, s.Registry); err != nil {
		return err
	}
	digested, err := w.lists.Written(ctx, lists.InventoryName) // by Receive; if it is gone, fetchAll says what follows
	if err != nil {
		return err
	}
	r := recorder{Set: lists.NewSet(w.lists), w: w, digestedAt: digested}
	defer r.Close()
	if err := r.fetchAll(ctx); err != nil {
		return w.lists.Remade(ctx, err)
	}
	var verdict lists.Verdict
	if _, err = lists.Read(ctx, w.lists, lists.VerdictName, r.ID, &verdict, func(struct{}) int { return 0 }); err != nil {
		return err
	}
	if r.names, r.targets, err = s.Targets.Of(r.Plan.StorageOption); err != nil {
		return err
	}
	if err := r.sameBuckets(); err != nil {
		return err
	}
	if err := w.Hold.Check(ctx); err != nil { // an item that was lost is not worth the work
		return err
	}
	_, err = s.Registry.Record(ctx, registry.Recording{
		Item: w.Item.ID, Token: w.Item.Token, Object: r.object(), Validation: registry.Validation(verdict),
		Files: r.files(),
	})
	switch {
	case errors.Is(err, registry.ErrMoved):
		return claim.SendBack(registry.ReingestCheck, "The registry has changed since the bag was compared with it. It is compared again.")
	case errors.Is(err, registry.ErrRefused):
		return &fault.Error{Service: fault.Database, Kind: fault.Refused, Said: "its rules refused the record", Err: err}
	}
	return w.lists.Remade(ctx, err)
}

// recorder turns the lists of the stages into records.
type recorder struct {
	*lists.Set
	w          *work
	names      []string
	targets    []*storage.Bucket
	digestedAt time.Time
}

// fetchAll gets the lists of the earlier stages, and checks that they belong together.
func (r *recorder) fetchAll(ctx context.Context) error {
	for _, name := range []string{lists.InventoryName, lists.PlanName, lists.FormatsName, lists.CopiesName} {
		err := r.Fetch(ctx, name)
		if errors.Is(err, storage.ErrNotFound) {
			return r.Area.Gone(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameBuckets checks that this process uses the same buckets for the targets as the one that
// verified the copies. Otherwise the record would name copies that do not exist.
func (r *recorder) sameBuckets() error {
	for i, b := range r.targets {
		if i < len(r.Verified.Buckets) && r.Verified.Buckets[i] != b.Name() {
			return cause.OtherBucket(r.names[i], b.Name(), r.Verified.Buckets[i])
		}
	}
	return nil
}

// object describes the bag by its tags, in the order of preference that the
// registry has always used.
func (r *recorder) object() record.Object {
	const info, aptrust = "bag-info.txt", "aptrust-info.txt"
	item := r.w.Item
	return record.Object{
		InstitutionID: item.InstitutionID,
		Identifier:    item.ObjectIdentifier,
		Title: r.first(naming.Of(item.Name),
			aptrust, "Title", info, "Internal-Identifier", info, "External-Identifier"),
		Description: r.first("",
			aptrust, "Description", info, "Internal-Sender-Description", info, "External-Description"),
		Access:                    r.access(),
		AltIdentifier:             r.first("", info, "Internal-Sender-Identifier"),
		BagName:                   naming.Of(item.Name),
		BagGroupIdentifier:        r.first("", info, "Bag-Group-Identifier"),
		BagItProfileIdentifier:    r.Bag.ProfileIdentifier(),
		SourceOrganization:        r.first("", info, "Source-Organization"),
		InternalSenderIdentifier:  r.first("", info, "Internal-Sender-Identifier"),
		InternalSenderDescription: r.first("", info, "Internal-Sender-Description"),
		ETag:                      item.ETag,
		StorageOption:             r.Plan.StorageOption,
		Deletions:                 r.Plan.Deletions,
		TagEncoding:               r.Bag.Encoding(),
	}
}

// first returns the first of the tags, given as pairs of file and name, that has
// a value.
func (r *recorder) first(otherwise string, tags ...string) string {
	for i := 0; i+1 < len(tags); i += 2 {
		if v, _ := r.Bag.Tag(tags[i], tags[i+1]); v != "" {
			return lists.CleanText(v)
		}
	}
	return otherwise
}

// files yields a record for each file that was stored, in the inventory's order. It may
// be called more than once.
func (r *recorder) files() iter.Seq2[registry.FileRecord, error] {
	return func(yield func(registry.FileRecord, error) bool) {
		rows, err := r.Open()
		if err != nil {
			yield(registry.FileRecord{}, err)
			return
		}
		defer rows.Close()
		i := -1
		for f, err := range r.Inventory() {
			i++
			var k lists.Known
			if err == nil {
				k, _, err = rows.Plan.At(i)
			}
			if err == nil && !lists.IsStored(f, k) {
				continue
			}
			var rec registry.FileRecord
			if err == nil {
				rec, err = r.file(i, f, k, rows)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (r *recorder) file(i int, f *bag.File, k lists.Known, l *lists.Rows) (registry.FileRecord, error) {
	format, ok, err := l.Formats.At(i)
	if err != nil {
		return registry.FileRecord{}, err
	}
	made, _, err := l.Copies.At(i)
	if err != nil {
		return registry.FileRecord{}, err
	}
	verified := made.Copies
	if !ok || len(verified) != len(r.names) {
		return registry.FileRecord{}, claim.SendBack(registry.FormatIdentification,
			fmt.Sprintf("The file %s was not identified and verified in every copy. The earlier stages run again.", f.Path))
	}
	of := lists.NewFile(i, f)
	of.Reingest(k)
	rec := registry.FileRecord{
		Identifier: r.w.Item.ObjectIdentifier + "/" + f.Path,
		UUID:       of.UUID.String(),
		Format:     format.Format(),
		Virus:      registry.VirusCheck{Scanner: format.Scanner, Unchecked: format.Unchecked, At: format.Time()},
		Size:       f.Size, ModTime: f.ModTime,
		MD5: f.Digests.Hex(bag.MD5), SHA1: f.Digests.Hex(bag.SHA1),
		SHA256: f.Digests.Hex(bag.SHA256), SHA512: f.Digests.Hex(bag.SHA512),
		DigestedAt: r.digestedAt,
	}
	for _, e := range f.Expected() {
		if !e.TagManifest {
			rec.Manifests = append(rec.Manifests, string(e.Algorithm)+":"+e.Digest)
		}
	}
	for i, c := range verified {
		if c.Target != r.names[i] {
			return registry.FileRecord{}, claim.SendBack(registry.StorageValidation,
				fmt.Sprintf("The copies of %s were verified for another storage option. They are verified again.", f.Path))
		}
		rec.Copies = append(rec.Copies, registry.Copy{
			Target: c.Target, Bucket: r.targets[i].Name(), Key: of.Key(), URL: r.targets[i].URL(of.Key()),
			ETag: c.ETag, StoredAt: c.Stored, VerifiedAt: c.Verified, VerifiedBy: c.By,
		})
	}
	return rec, nil
}

// access is the bag's access right as it is stored: in lower case, institution
// unless the bag says otherwise.
func (r *recorder) access() string {
	switch v := strings.ToLower(r.first("", "aptrust-info.txt", "Access")); v {
	case "consortia", "institution", "restricted":
		return v
	default:
		return "institution"
	}
}
