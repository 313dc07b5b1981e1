package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
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
	if err := legalName(w.item.Name); err != nil { // Receive of an earlier version took it
		return err
	}
	if err := w.afterRequests(ctx, s.Deps); err != nil {
		return err
	}
	inv, err := s.Staging.Head(ctx, w.staged(inventoryName))
	if err != nil && !errors.Is(err, storage.ErrNotFound) { // fetch says what follows
		return storageErr(err)
	}
	r := recorder{Deps: s.Deps, w: w, digestedAt: inv.LastModified}
	defer r.close()
	if err := r.fetch(ctx); err != nil {
		return w.remade(ctx, err)
	}
	var verdict judged
	if _, err = readList(ctx, w, s.Deps, verdictName, r.id, &verdict, func(struct{}) int { return 0 }); err != nil {
		return err
	}
	if r.names, r.targets, err = s.targets(r.plan.StorageOption); err != nil {
		return err
	}
	if err := r.sameBuckets(); err != nil {
		return err
	}
	_, err = s.Registry.Record(ctx, registry.Recording{
		Item: w.item.ID, Token: w.item.Token, Object: r.object(), Validation: registry.Validation(verdict),
		Files: r.files(),
	})
	switch {
	case errors.Is(err, registry.ErrMoved):
		return claim.SendBack("Reingest Check", "The registry has changed since the bag was compared with it. It is compared again.")
	case errors.Is(err, registry.ErrRefused):
		return claim.Fatal("record-refused", "%w", err)
	}
	return w.remade(ctx, err)
}

// recorder turns the lists of the stages into records. It reads all of them beside each
// other and keeps none in memory.
type recorder struct {
	Deps
	w          *work
	bag        bag.Bag // without its files
	id         string  // of the inventory
	plan       plan    // without what it says of files
	spools     map[string]*os.File
	names      []string
	targets    []*storage.Bucket
	digestedAt time.Time
	verified   verifiedIn
}

// fetch gets what the stages before have left, and sees that it belongs together.
func (r *recorder) fetch(ctx context.Context) error {
	r.spools = map[string]*os.File{}
	for _, name := range []string{inventoryName, planName, formatsName, copiesName} {
		err := r.fetchOne(ctx, name)
		if spoiled(ctx, err) {
			r.w.log.WarnContext(ctx, "list is not readable; reading it again", "list", name, "err", err)
			_ = r.spools[name].Close() // only read from, and not on disk any more
			err = r.fetchOne(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *recorder) fetchOne(ctx context.Context, name string) (err error) {
	var id string
	if r.spools[name], id, err = r.w.spool(ctx, r.Deps, name); err != nil {
		return err
	}
	if name == inventoryName {
		r.id = id
		return r.look()
	}
	return r.goesWith(name)
}

func (r *recorder) close() {
	for _, spool := range r.spools {
		if spool != nil {
			_ = spool.Close() // only read from, and not on disk any more
		}
	}
}

// look reads the inventory to its end, to know the bag and that it is whole.
func (r *recorder) look() error {
	for _, err := range r.inventory() {
		if err != nil {
			return err
		}
	}
	return nil
}

// inventory reads the bag, and its files one after the other.
func (r *recorder) inventory() iter.Seq2[*bag.File, error] {
	return func(yield func(*bag.File, error) bool) {
		inv, err := bag.OpenInventory(fromStart(r.spools[inventoryName]))
		if err != nil {
			yield(nil, damaged(err))
			return
		}
		defer inv.Close()
		r.bag = inv.Bag
		for f, err := range inv.Files() {
			if !yield(f, damaged(err)) || err != nil {
				return
			}
		}
	}
}

func damaged(err error) error {
	if errors.Is(err, bag.ErrInventory) {
		return errDamaged
	}
	return err
}

// sameBuckets sees that this process takes the same buckets for the targets as the one
// that verified the copies: else the record would name copies that nobody has made.
func (r *recorder) sameBuckets() error {
	for i, b := range r.targets {
		if i < len(r.verified.Buckets) && r.verified.Buckets[i] != b.Name() {
			return otherBucket(r.names[i], b.Name(), r.verified.Buckets[i])
		}
	}
	return nil
}

// goesWith sees that a list goes with the inventory, and that its bytes are right.
func (r *recorder) goesWith(name string) error {
	var about any
	switch name {
	case planName:
		r.plan = plan{}
		about = &r.plan
	case copiesName:
		r.verified = verifiedIn{}
		about = &r.verified
	}
	l, err := openList[struct{}](fromStart(r.spools[name]), name, r.id, about)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := io.Copy(io.Discard, l.z); err != nil { // the checksum is at the end
		return &uselessList{name, err}
	}
	return nil
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
		Deletions:                 r.plan.Deletions,
		TagEncoding:               r.bag.Encoding(),
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

// files yields a record for each file that was stored, in the inventory's order. It may
// be called more than once.
func (r *recorder) files() iter.Seq2[registry.FileRecord, error] {
	return func(yield func(registry.FileRecord, error) bool) {
		lists, err := r.open()
		defer lists.close()
		if err != nil {
			yield(registry.FileRecord{}, err)
			return
		}
		i := -1
		for f, err := range r.inventory() {
			i++
			var k known
			if err == nil {
				k, _, err = lists.plan.at(i)
			}
			if err == nil && !stored(f, k) {
				continue
			}
			var rec registry.FileRecord
			if err == nil {
				rec, err = r.file(i, f, k, lists)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// lists are what is read beside the inventory.
type lists struct {
	plan    beside[known]
	formats beside[identified]
	copies  beside[copies]
}

func (r *recorder) open() (_ *lists, err error) {
	l := &lists{}
	if l.plan, err = readBeside(r, planName, func(k known) int { return k.Index }); err != nil {
		return l, err
	}
	if l.formats, err = readBeside(r, formatsName, func(f identified) int { return f.Index }); err != nil {
		return l, err
	}
	l.copies, err = readBeside(r, copiesName, func(c copies) int { return c.Index })
	return l, err
}

func readBeside[T any](r *recorder, name string, index func(T) int) (beside[T], error) {
	l, err := openList[T](fromStart(r.spools[name]), name, r.id, nil)
	return beside[T]{listReader: l, index: index}, err
}

func (l *lists) close() {
	l.plan.close()
	l.formats.close()
	l.copies.close()
}

func (r *recorder) file(i int, f *bag.File, k known, l *lists) (registry.FileRecord, error) {
	format, ok, err := l.formats.at(i)
	if err != nil {
		return registry.FileRecord{}, err
	}
	made, _, err := l.copies.at(i)
	if err != nil {
		return registry.FileRecord{}, err
	}
	verified := made.Copies
	if !ok || len(verified) != len(r.names) {
		return registry.FileRecord{}, claim.SendBack("Format Identification",
			fmt.Sprintf("The file %s was not identified and verified in every copy. The stages before are run again.", f.Path))
	}
	of := newFile(i, f)
	of.reingest(k)
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

// cleanText takes out what a database's text cannot hold.
func cleanText(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
