package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Judge returns what is wrong with the world, item by item.
func Judge(w World, p Promise) []Violation {
	j := &judge{World: w, promise: p, named: map[string]string{}, stored: map[string]Object{}, unfinished: map[string]bool{}}
	for bucket, objects := range w.Buckets {
		for _, o := range objects {
			j.stored[bucket+"/"+o.Key] = o
		}
	}
	items := map[string][]Item{}
	for _, item := range w.Items {
		items[item.Bucket+"/"+item.Name] = append(items[item.Bucket+"/"+item.Name], item)
	}
	attempts := map[int64][]Attempt{}
	for _, a := range w.Attempts {
		attempts[a.Item] = append(attempts[a.Item], a)
	}
	j.events = map[string]map[string]int{}
	for _, e := range w.Events {
		about := e.Object + "\x00" + e.File
		if j.events[about] == nil {
			j.events[about] = map[string]int{}
		}
		j.events[about][e.Type]++
	}
	for _, bag := range w.Bags {
		found := items[bag.Bucket+"/"+bag.Key]
		switch len(found) {
		case 0:
			j.say("bag-without-item", Item{}, bag, "the bag was uploaded and no item was made")
			continue
		case 1:
		default:
			j.say("bag-with-two-items", found[1], bag, "%d items were made of one upload", len(found))
		}
		j.bag(bag, found[0], attempts[found[0].ID])
		j.deletion(bag, attempts)
	}
	for _, r := range w.Restored {
		i := slices.IndexFunc(w.Bags, func(b Bag) bool { return b.Object() == r.Object })
		if i < 0 {
			j.say("restored-a-stranger", r.Item, Bag{}, "there is no bag %s", r.Object)
			continue
		}
		j.restoration(w.Bags[i], r, attempts[r.ID])
	}
	j.strangers()
	j.doubledEvents()
	return j.found
}

// judge is one judgement.
type judge struct {
	World
	promise Promise
	events  map[string]map[string]int // by object and file, then by type
	stored  map[string]Object         // by bucket and key
	// valid bags that did not succeed, by identifier
	unfinished map[string]bool
	named      map[string]string // bucket and key of each copy on record, to its file
	found      []Violation
}

func (j *judge) say(kind string, item Item, bag Bag, format string, args ...any) {
	j.found = append(j.found, Violation{Kind: kind, Item: item.ID, Bag: bag.Object(), Detail: fmt.Sprintf(format, args...)})
}

// bag judges one bag and its item.
func (j *judge) bag(bag Bag, item Item, attempts []Attempt) {
	j.ledger(bag, item, attempts)
	end := item.Status
	at := fmt.Sprintf("%s at %s: %s %s", item.Status, item.Stage, item.Code, shorten(item.Note))
	byHand := j.promise.ByHand && j.ByHand[item.ID] > 0
	switch {
	case bag.Wrong != "" && (end == "Failed" || end == "Cancelled" && byHand): // by a person, before it was found invalid or after
		j.refused(bag, item)
	case bag.Wrong != "":
		j.say("invalid-bag-"+strings.ToLower(end), item, bag, "%s; the bag is invalid: %s", at, bag.Wrong)
	case end == "Success":
		j.success(bag, item)
		j.messages(bag, item, attempts)
	case item.Code == "bag-gone" && byHand:
		// A person sent it back to its beginning when Cleanup had deleted the tar: it is
		// on record, and only a person can say what they meant.
		for _, f := range bag.Preserved() {
			j.file(bag, item, f)
		}
	case end == "Cancelled" && byHand:
		j.unfinished[bag.Object()] = true // by a person
	default:
		j.unfinished[bag.Object()] = true
		j.say("valid-bag-"+strings.ToLower(end), item, bag, "%s", at)
	}
}

// restoration judges what came of a request to give a bag back.
func (j *judge) restoration(bag Bag, r Restoration, attempts []Attempt) {
	j.ledger(bag, r.Item, attempts)
	switch {
	case r.Status != "Success":
		j.say("restoration-"+strings.ToLower(r.Status), r.Item, bag, "%s %s", r.Code, shorten(r.Note))
	case r.Bag.Wrong != "":
		j.say("restored-invalid", r.Item, bag, "the bag given back is invalid: %s", r.Bag.Wrong)
	default:
		for _, f := range bag.Preserved() {
			if j.Files[bag.Object()+"/"+f.Path].Deleted {
				continue
			}
			// bag-info.txt says when and by what the bag was made, and is brought up to date.
			if !slices.ContainsFunc(r.Bag.Files, func(b File) bool {
				return b.Path == f.Path && (b.Digests["sha256"] == f.Digests["sha256"] || f.Path == "bag-info.txt")
			}) {
				j.say("restored-without", r.Item, bag, "%s is not in the bag given back, or is altered", f.Path)
			}
		}
	}
}

// refused judges an invalid bag that failed: nothing of it may be kept.
func (j *judge) refused(bag Bag, item Item) {
	for _, f := range bag.Files {
		if _, recorded := j.Files[bag.Object()+"/"+f.Path]; recorded {
			j.say("invalid-bag-recorded", item, bag, "%s is on record", f.Path)
		}
	}
	if !slices.Contains(j.Receiving[bag.Bucket], bag.Key) {
		j.say("invalid-bag-deleted", item, bag, "its tar is gone from the receiving bucket before its retention is over")
	}
}

// success judges a valid bag that came to its end.
func (j *judge) success(bag Bag, item Item) {
	files := bag.Preserved()
	for _, f := range files {
		j.file(bag, item, f)
	}
	for identifier := range j.Files {
		path, ours := strings.CutPrefix(identifier, bag.Object()+"/")
		if ours && !slices.ContainsFunc(files, func(f File) bool { return f.Path == path }) {
			j.say("file-never-sent", item, bag, "%s is on record and not in the bag", path)
		}
	}
	want := map[string]int{"creation": 1, "identifier assignment": 1, "ingestion": 1, "access assignment": 1, "validation": 1}
	if !slices.ContainsFunc(files, func(f File) bool { return !j.Files[bag.Object()+"/"+f.Path].Deleted }) {
		want["deletion"] = 1
	}
	j.expect(bag, item, "", want)
	prefix := fmt.Sprintf("%d/", item.ID)
	for _, key := range j.Staging {
		if strings.HasPrefix(key, prefix) {
			j.say("left-in-staging", item, bag, "%s", key)
		}
	}
	if slices.Contains(j.Receiving[bag.Bucket], bag.Key) {
		j.say("tar-left", item, bag, "the tar is still in the receiving bucket")
	}
}

// file judges one file of a bag that was preserved: its record, its digests, its
// copies and its events.
func (j *judge) file(bag Bag, item Item, f File) {
	row, ok := j.Files[bag.Object()+"/"+f.Path]
	if !ok {
		j.say("file-not-recorded", item, bag, "%s is not on record", f.Path)
		return
	}
	if row.Deleted {
		j.gone(bag, item, f, row)
		return
	}
	if row.Size != f.Size {
		j.say("wrong-size", item, bag, "%s has %d bytes, and %d on record", f.Path, f.Size, row.Size)
	}
	for algorithm, digest := range f.Digests {
		if !slices.Equal(row.Checksums[algorithm], []string{digest}) {
			j.say("wrong-checksum", item, bag, "%s: %s is %s, on record %v", f.Path, algorithm, digest, row.Checksums[algorithm])
		}
	}
	promised := j.Targets[bag.Option]
	for _, t := range promised {
		n := 0
		for _, c := range row.Copies {
			if c.Target == t.Name && c.Bucket == t.Bucket {
				n++
				j.copy(bag, item, f, c)
			}
		}
		if n != 1 {
			j.say("copy-not-recorded", item, bag, "%s has %d records in %s, should have 1", f.Path, n, t.Name)
		}
	}
	if len(row.Copies) != len(promised) {
		j.say("copies-recorded", item, bag, "%s has %d copies on record, should have %d", f.Path, len(row.Copies), len(promised))
	}
	want := map[string]int{
		"message digest calculation": 4, "ingestion": 1, "identifier assignment": 2, "format identification": 1,
		"fixity check": 0, "replication": len(promised) - 1,
	}
	if isPayload(f.Path) {
		want["fixity check"] = len(bag.Manifests)
	}
	for _, c := range row.Receipts { // of a deletion that was cancelled: known to be missing
		if j.Doubted[c.Bucket+"/"+c.Key] {
			want["fixity check"]++
		}
	}
	j.expect(bag, item, f.Path, want)
}

// copy judges the bytes under the key that a record names.
func (j *judge) copy(bag Bag, item Item, f File, c Copy) {
	at := c.Bucket + "/" + c.Key
	if other, taken := j.named[at]; taken {
		j.say("key-shared", item, bag, "%s and %s have one key, %s", f.Path, other, at)
	}
	j.named[at] = f.Path
	o, ok := j.stored[at]
	if !ok && j.Doubted[at] && len(j.Deleted[bag.Object()]) > 0 {
		return // it is known to be gone, or will be found
	}
	if !ok {
		j.say("copy-missing", item, bag, "%s: %s is on record and not in the bucket", f.Path, at)
		return
	}
	if o.SHA256 != f.Digests["sha256"] {
		j.say("copy-damaged", item, bag, "%s: the %d bytes of %s have the SHA-256 %.16s, should have %.16s", f.Path, o.Size, at, o.SHA256, f.Digests["sha256"])
	}
}

// expect compares the numbers of events of one file, or of the object.
func (j *judge) expect(bag Bag, item Item, path string, want map[string]int) {
	about := bag.Object() + "\x00"
	if path != "" {
		about += bag.Object() + "/" + path
	}
	got := j.events[about]
	for kind, n := range want {
		if got[kind] != n {
			j.say("events", item, bag, "%s has %d events %q, should have %d", orObject(path), got[kind], kind, n)
		}
	}
	for kind, n := range got {
		if _, known := want[kind]; !known {
			j.say("events", item, bag, "%s has %d events %q, should have none", orObject(path), n, kind)
		}
	}
}

func orObject(path string) string {
	if path == "" {
		return "the object"
	}
	return path
}

// doubledEvents looks for what was said twice.
func (j *judge) doubledEvents() {
	seen := map[Event]int{}
	for _, e := range j.Events {
		if seen[e]++; seen[e] == 2 {
			j.say("event-doubled", Item{}, Bag{Institution: "of", Name: e.Object}, "%s %q %q", orObject(e.File), e.Type, e.Detail)
		}
	}
}

// strangers looks for objects in preservation storage that no record names. What belongs
// to a bag that did not succeed is on none yet, and no fault of its own.
func (j *judge) strangers() {
	for _, at := range slices.Sorted(maps.Keys(j.stored)) {
		if _, ok := j.named[at]; !ok && !j.unfinished[j.stored[at].Bag] {
			j.found = append(j.found, Violation{Kind: "copy-not-named", Detail: fmt.Sprintf("%s (%d bytes) is in the bucket and on no record", at, j.stored[at].Size)})
		}
	}
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 160 {
		return string(r[:159]) + "…"
	}
	return s
}
