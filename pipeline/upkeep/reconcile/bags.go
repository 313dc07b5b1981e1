package reconcile

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/registry"
	records "github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// A found file has copies without a record, or some on record.
type found struct {
	key         string
	size        int64
	sha256, md5 string // in hex, as the metadata have them
	in          []place
	doubt       string // why it is not clear what it is; "": it is
}

// A place is where a copy is.
type place struct {
	target   string
	key      string
	readable bool // at once
}

// collection is what was found, by object. When it is full it drops the last objects as a whole, so that
// those in it are complete.
type collection struct {
	most, held int
	objects    map[string]*Bag
	cut        string // objects from here on are left out; "": none
	nameless   map[string][]storage.Object

	// settled tells whether the bag of an object is in its receiving bucket, and its ingest takes its copies over.
	settled func(ctx context.Context, object string) (bool, error)
	waits   map[string]bool // what it said
}

// take notes copies in a target.
func (c *collection) take(ctx context.Context, target string, list []storage.Object, noted map[string]bool) error {
	for _, o := range list {
		object, path := copies.ObjectOf(o), pathOf(o)
		sum, err := hex.DecodeString(o.Metadata["sha256"])
		if object == "" || path == "" || err != nil || len(sum) != 32 || naming.PathFault(path) != "" {
			if c.nameless == nil {
				c.nameless = map[string][]storage.Object{}
			}
			c.nameless[target] = append(c.nameless[target], o)
			continue
		}
		if c.cut != "" && object >= c.cut {
			continue
		}
		done := false
		if noted[o.Key] {
			done, err = c.isSettled(ctx, object)
		}
		if err != nil {
			return err
		}
		if done {
			continue
		}
		c.add(object, path, target, o)
		for c.held > c.most {
			c.drop()
		}
	}
	return nil
}

func (c *collection) isSettled(ctx context.Context, object string) (done bool, err error) {
	done, known := c.waits[object]
	if !known {
		if done, err = c.settled(ctx, object); err != nil {
			return false, err
		}
		c.waits[object] = done
	}
	return done, nil
}

func (c *collection) add(object, path, target string, o storage.Object) {
	b := c.objects[object]
	if b == nil {
		b = &Bag{Object: object, copies: map[string]*found{}}
		c.objects[object] = b
	}
	c.held++
	at := place{target: target, key: o.Key, readable: o.Readable(time.Now())}
	f := b.copies[path]
	if f == nil {
		b.copies[path] = &found{key: o.Key, size: o.Size, sha256: o.Metadata["sha256"], md5: o.Metadata["md5"], in: []place{at}}
		b.Files, b.Bytes = b.Files+1, b.Bytes+o.Size
		return
	}
	f.in = append(f.in, at)
	if f.sha256 != o.Metadata["sha256"] || f.size != o.Size {
		f.doubt = fmt.Sprintf("there are copies of two contents of %s, and nothing says which is the newer", path)
	}
}

// settle chooses one of several keys of the same content: that of the most copies.
func (f *found) settle() {
	under := map[string]int{}
	for _, p := range f.in {
		under[p.key]++
	}
	for key, n := range under {
		if n > under[f.key] || n == under[f.key] && key < f.key {
			f.key = key
		}
	}
	f.in = slices.DeleteFunc(f.in, func(p place) bool { return p.key != f.key })
}

// drop leaves out the last object.
func (c *collection) drop() {
	last := ""
	for object := range c.objects {
		last = max(last, object)
	}
	for _, f := range c.objects[last].copies {
		c.held -= len(f.in)
	}
	delete(c.objects, last)
	c.cut = last
}

// pathOf is the path of a copy's file in the bag; "" if only its beginning is known.
func pathOf(o storage.Object) string {
	if path := o.Metadata["bagpath"]; path != "" {
		return path
	}
	path, err := url.QueryUnescape(o.Metadata["bagpath-encoded"])
	if err != nil {
		return ""
	}
	return path
}

// judge decides what becomes of a bag.
func (r *Reconciler) judge(ctx context.Context, b *Bag) error {
	why, err := r.prove(ctx, b)
	if err != nil {
		return err
	}
	b.Why = why
	switch {
	case why != "":
		b.Does = Person
	case b.tar == nil:
		b.Does = Waits
	default:
		b.Does = Takes
	}
	return nil
}

// prove says why a bag is for a person; "" if its copies prove what it was.
func (r *Reconciler) prove(ctx context.Context, b *Bag) (why string, err error) {
	for _, f := range b.copies {
		if f.doubt != "" {
			return f.doubt, nil
		}
		f.settle()
	}
	institution, name := splitObject(b.Object)
	in, err := r.Registry.Institution(ctx, institution)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return "the institution " + institution + " is not on record", nil
	case err != nil:
		return "", err
	case in.State != "A":
		return "the institution " + institution + " is not active", nil
	case naming.Fault(name) != "":
		return "no bag can have its name: " + naming.Fault(name), nil
	}
	b.in = in.ReceivingBucket
	there, err := r.deposited(ctx, b.in, name)
	if err != nil || there {
		return "", err
	}
	if other, err := r.inWork(ctx, b); err != nil || other != 0 {
		return fmt.Sprintf("item %d of the object is in work: run it again when that has ended", other), err
	}
	return r.whole(ctx, b, name)
}

// waits tells whether the bag of an object is in its receiving bucket.
func (r *Reconciler) waits(ctx context.Context, object string) (bool, error) {
	institution, name := splitObject(object)
	in, err := r.Registry.Institution(ctx, institution)
	if errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return r.deposited(ctx, in.ReceivingBucket, name)
}

// deposited tells whether a bag of a name is in the receiving bucket: an ingest of it takes over
// those copies that have the same content.
func (r *Reconciler) deposited(ctx context.Context, bucket, name string) (bool, error) {
	receiving, err := r.Receiving(bucket)
	if err != nil {
		return false, err
	}
	for o, err := range receiving.List(ctx, name, "") {
		if err != nil {
			return false, err
		}
		if naming.Of(o.Key) == name {
			return true, nil
		}
	}
	return false, nil
}

// inWork is an item of the object that may still change it, other than those that wait in vain; 0: there
// is none.
func (r *Reconciler) inWork(ctx context.Context, b *Bag) (int64, error) {
	ids, err := r.records().ItemsOf(ctx, b.Object)
	if err != nil {
		return 0, err
	}
	states, err := r.records().ItemStates(ctx, ids)
	if err != nil {
		return 0, err
	}
	for id, s := range states {
		if s.Live && s.Stage != registry.Cleanup && !slices.ContainsFunc(b.ended, func(e records.ItemState) bool { return e.ID == id }) {
			return id, nil
		}
	}
	return 0, nil
}

// whole finds out whether the copies are all of the bag: with the files on record that they do not
// replace, they are the payload that bag-info.txt counts. Where it does not, two targets must have
// the same files.
func (r *Reconciler) whole(ctx context.Context, b *Bag, name string) (why string, err error) {
	all, why, err := r.withRecorded(ctx, b)
	if err != nil || why != "" {
		return why, err
	}
	for path, f := range all {
		if !slices.ContainsFunc(f.in, func(p place) bool { return p.readable }) {
			return fmt.Sprintf("no copy of %s can be read now: have the provider retrieve %s in %s from the archive, and run it again", path, f.in[0].key, f.in[0].target), nil
		}
	}
	info, ok := all[tagfile.BagInfo]
	if !ok {
		return "no copy of bag-info.txt is there, so nothing says how many files the bag has", nil
	}
	tags, why, err := r.tagsOf(ctx, info)
	if err != nil || why != "" {
		return why, err
	}
	if why = complete(all, tags); why != "" {
		return why, nil
	}
	b.tar, why = newTarball(name, all, r.Profiles.Of(&bag.Bag{Tags: tags}))
	return why, nil
}

// withRecorded adds the files on record that the copies do not replace.
func (r *Reconciler) withRecorded(ctx context.Context, b *Bag) (all map[string]*found, why string, err error) {
	all = make(map[string]*found, len(b.copies))
	for path, f := range b.copies {
		all[path] = f
	}
	object, err := r.Registry.Object(ctx, b.Object)
	if errors.Is(err, registry.ErrNotFound) {
		return all, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	for f, err := range r.Registry.StoredFiles(ctx, object.ID, 0) {
		if err != nil {
			return nil, "", err
		}
		path := f.Identifier[len(object.Identifier)+1:]
		known, err := r.onRecord(ctx, f)
		if err != nil {
			return nil, "", err
		}
		switch newer := all[path]; {
		case newer != nil && len(known.in) > 0 && newer.sha256 != known.sha256:
			return nil, "another version of " + path + " is on record, and its copies are there: it is not clear which is the newer", nil
		case newer == nil && len(known.in) == 0:
			return nil, "no copy of " + path + ", which is on record, is there", nil
		case newer == nil:
			all[path] = known
		default:
			for _, c := range f.Copies {
				b.replaced = append(b.replaced, place{target: c.Target, key: c.Key})
			}
		}
	}
	return all, "", nil
}

// onRecord is a file on record with those of its copies that are there.
func (r *Reconciler) onRecord(ctx context.Context, f registry.StoredFile) (*found, error) {
	known := &found{size: f.Size, sha256: f.SHA256, md5: f.MD5}
	for _, c := range f.Copies {
		o, err := r.head(ctx, c.Target, c.Bucket, c.Key)
		if err != nil {
			return nil, err
		}
		if o != nil {
			known.in = append(known.in, place{target: c.Target, key: c.Key, readable: o.Readable(time.Now())})
		}
	}
	return known, nil
}

const mostInfo = 1 << 20 // bytes of bag-info.txt

func (r *Reconciler) tagsOf(ctx context.Context, info *found) (tags []bag.Tag, why string, err error) {
	if info.size > mostInfo {
		return nil, "its bag-info.txt is larger than 1 MiB", nil
	}
	content, err := r.read(ctx, info)
	if err != nil {
		return nil, "", err
	}
	if content == nil {
		return nil, "no copy of bag-info.txt has the bytes that it was stored with", nil
	}
	var problems, warnings finding.List
	utf8, _ := tagfile.EncodingNamed("UTF-8")
	tags = tagfile.ParseTags(tagfile.BagInfo, content, utf8, &problems, &warnings)
	if len(problems.Found) > 0 {
		return nil, "its bag-info.txt cannot be read as UTF-8 tags", nil
	}
	return tags, "", nil
}

// complete says why some files may not be all of a bag; "" if they are.
func complete(all map[string]*found, tags []bag.Tag) string {
	var files, bytes int64
	for path, f := range all {
		if strings.HasPrefix(path, "data/") {
			files, bytes = files+1, bytes+f.size
		}
	}
	for _, t := range tags {
		if !strings.EqualFold(t.Name, "Payload-Oxum") || t.Value == "" {
			continue
		}
		if is := fmt.Sprintf("%d.%d", bytes, files); is != t.Value {
			return fmt.Sprintf("its bag-info.txt counts another payload (%s) than there are copies of (%s): files may be deleted or lost", finding.Show(t.Value), is)
		}
		return ""
	}
	for path, f := range all {
		targets := map[string]bool{}
		for _, p := range f.in {
			targets[p.target] = true
		}
		if len(targets) < 2 {
			return "its bag-info.txt has no Payload-Oxum, and there is only one copy of " + path + ": nothing proves that these are all files"
		}
	}
	return ""
}

// byPriority orders the places of a file: the one to read first comes first.
func (r *Reconciler) byPriority(f *found) []place {
	list := slices.DeleteFunc(slices.Clone(f.in), func(p place) bool { return !p.readable })
	slices.SortStableFunc(list, func(a, b place) int { return cmp.Compare(r.Targets.Priority(a.target), r.Targets.Priority(b.target)) })
	return list
}
