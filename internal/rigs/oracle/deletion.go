package oracle

import "slices"

// deletion judges what deletions of a bag came to, as a whole. Its files are judged one by one.
func (j *judge) deletion(bag Bag, attempts map[int64][]Attempt) {
	for _, d := range j.Deleted[bag.Object()] {
		j.ledger(bag, d, attempts[d.ID])
		left := slices.ContainsFunc(bag.Preserved(), func(f File) bool { return !j.Files[bag.Object()+"/"+f.Path].Deleted })
		restored := slices.ContainsFunc(j.Restored, func(r Restoration) bool { return r.Object == bag.Object() })
		switch {
		case d.Status != "Success" && d.Status != "Cancelled":
			j.say("deletion-"+d.Status, d, bag, "%s %s", d.Code, shorten(d.Note))
		case d.Status == "Success" && left:
			j.say("deleted-and-left", d, bag, "a file is on record and active")
		case d.Status == "Cancelled" && left && !restored:
			j.say("cancelled-not-restored", d, bag, "nobody asked for what is left of it")
		}
	}
}

// gone judges a file that was deleted. Copies that are left are on no record, which is found
// with the others of that kind.
func (j *judge) gone(bag Bag, item Item, f File, row FileRow) {
	if len(j.Deleted[bag.Object()]) == 0 {
		j.say("file-deleted", item, bag, "%s was deleted, and nobody asked for that", f.Path)
	}
	if len(row.Copies) > 0 {
		j.say("deleted-with-copies", item, bag, "%s has %d copies on record", f.Path, len(row.Copies))
	}
	for _, t := range j.Targets[bag.Option] {
		if !slices.ContainsFunc(row.Receipts, func(c Copy) bool { return c.Target == t.Name && c.Bucket == t.Bucket }) {
			j.say("deleted-without-receipt", item, bag, "%s has no receipt for its copy in %s", f.Path, t.Name)
		}
	}
	if n := j.events[bag.Object()+"\x00"+bag.Object()+"/"+f.Path]["deletion"]; n != 1 {
		j.say("events", item, bag, "%s has %d events %q, should have 1", f.Path, n, "deletion")
	}
}
