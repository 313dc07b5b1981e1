package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// record puts the object, its files, digests, copies and events on record in
// one transaction. From its commit on, and not before, the registry describes
// what this item stored.
type record struct{ Deps }

func (s *record) Run(ctx context.Context, w *work) error {
	inv, err := s.Staging.Head(ctx, w.staged(inventoryName))
	if err != nil && !errors.Is(err, storage.ErrNotFound) { // w.bag says what follows
		return storageErr(err)
	}
	b, inventoryID, err := w.bag(ctx, s.Deps)
	if err != nil {
		return err
	}
	r := recorder{Deps: s.Deps, w: w, bag: b, digestedAt: inv.LastModified}
	if r.plan.known, err = readList(ctx, w, s.Deps, planName, inventoryID, &r.plan, func(k known) int { return k.Index }); err != nil {
		return err
	}
	var verdict judged
	if _, err = readList(ctx, w, s.Deps, verdictName, inventoryID, &verdict, func(struct{}) int { return 0 }); err != nil {
		return err
	}
	if r.formats, err = readList(ctx, w, s.Deps, formatsName, inventoryID, nil, func(f identified) int { return f.Index }); err != nil {
		return err
	}
	if r.copies, err = readList(ctx, w, s.Deps, copiesName, inventoryID, nil, func(c copies) int { return c.Index }); err != nil {
		return err
	}
	if r.names, r.targets, err = s.targets(r.plan.StorageOption); err != nil {
		return err
	}

	count := int64(0)
	for _, f := range b.Files {
		if !f.Missing {
			count++
		}
	}
	_, err = s.Registry.Record(ctx, registry.Recording{
		Item: w.item.ID, Token: w.item.Token, Object: r.object(), Validation: registry.Validation(verdict),
		FileCount: count, Files: r.files(),
	})
	switch {
	case errors.Is(err, registry.ErrMoved):
		return claim.SendBack("Reingest Check", "The registry has changed since the bag was compared with it. It is compared again.")
	case errors.Is(err, registry.ErrRefused):
		return claim.Fatal("record-refused", "%w", err)
	}
	return err
}

// recorder turns the lists of the stages into records.
type recorder struct {
	Deps
	w          *work
	bag        *bag.Bag
	plan       plan
	formats    map[int]identified
	copies     map[int]copies
	names      []string
	targets    []*storage.Bucket
	digestedAt time.Time
}

// object describes the bag by its tags, in the order of preference that the
// registry has always used.
func (r *recorder) object() registry.Object {
	const info, aptrust = "bag-info.txt", "aptrust-info.txt"
	item := r.w.item
	return registry.Object{
		InstitutionID: item.InstitutionID,
		Identifier:    item.ObjectIdentifier,
		Title: r.first(bag.Name(item.Name),
			aptrust, "Title", info, "Internal-Identifier", info, "External-Identifier"),
		Description: r.first("",
			aptrust, "Description", info, "Internal-Sender-Description", info, "External-Description"),
		Access:                    r.access(),
		AltIdentifier:             r.first("", info, "Internal-Sender-Identifier"),
		BagName:                   bag.Name(item.Name),
		BagGroupIdentifier:        r.first("", info, "Bag-Group-Identifier"),
		BagItProfileIdentifier:    r.bag.ProfileIdentifier(),
		SourceOrganization:        r.first("", info, "Source-Organization"),
		InternalSenderIdentifier:  r.first("", info, "Internal-Sender-Identifier"),
		InternalSenderDescription: r.first("", info, "Internal-Sender-Description"),
		ETag:                      item.ETag,
		StorageOption:             r.plan.StorageOption,
	}
}

// first returns the first of the tags, given as pairs of file and name, that has
// a value.
func (r *recorder) first(otherwise string, tags ...string) string {
	for i := 0; i+1 < len(tags); i += 2 {
		if v, _ := r.bag.Tag(tags[i], tags[i+1]); v != "" {
			return cleanText(v)
		}
	}
	return otherwise
}

// files yields a record for each file that was stored, in the inventory's order.
func (r *recorder) files() iter.Seq2[registry.FileRecord, error] {
	return func(yield func(registry.FileRecord, error) bool) {
		for i, f := range r.bag.Files {
			k := r.plan.known[i]
			if !stored(f, k) {
				continue
			}
			of := newFile(i, f)
			of.reingest(k)
			rec, err := r.file(of, f)
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (r *recorder) file(of *file, f *bag.File) (registry.FileRecord, error) {
	verified := r.copies[of.index].Copies
	format, ok := r.formats[of.index]
	if !ok || len(verified) != len(r.names) {
		return registry.FileRecord{}, claim.SendBack("Format Identification",
			fmt.Sprintf("The file %s was not identified and verified in every copy. The stages before are run again.", f.Path))
	}
	rec := registry.FileRecord{
		Identifier: r.w.item.ObjectIdentifier + "/" + f.Path,
		UUID:       of.uuid,
		Format:     format.format(),
		Virus:      registry.VirusCheck{Scanner: format.Scanner, Unchecked: format.Unchecked, At: format.time()},
		Size:       f.Size, ModTime: f.ModTime,
		MD5: f.Digests.Hex(bag.MD5), SHA1: f.Digests.Hex(bag.SHA1),
		SHA256: f.Digests.Hex(bag.SHA256), SHA512: f.Digests.Hex(bag.SHA512),
		DigestedAt: r.digestedAt,
	}
	for _, e := range f.Expected {
		if !e.TagManifest {
			rec.Manifests = append(rec.Manifests, string(e.Algorithm)+":"+e.Digest)
		}
	}
	for i, c := range verified {
		if c.Target != r.names[i] {
			return registry.FileRecord{}, claim.SendBack("Storage Validation",
				fmt.Sprintf("The copies of %s were verified for another storage option. They are verified again.", f.Path))
		}
		rec.Copies = append(rec.Copies, registry.Copy{
			Target: c.Target, Bucket: r.targets[i].Name(), Key: of.key, URL: r.targets[i].URL(of.key),
			ETag: c.ETag, StoredAt: c.Stored, VerifiedAt: c.Verified,
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

// cleanText takes out what a database's text cannot hold.
func cleanText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
