package upkeep

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// A Finding is a group of things of one kind in one store that no item in work
// needs, or that should be there and are not.
type Finding struct {
	Store   string     `json:"store"` // staging, redis, receiving, database, or a storage target
	What    string     `json:"what"`  // objects, uploads, keys, copies, bags or rows
	Why     string     `json:"why"`   // a code; [Finding.Text] says it in words
	Count   int64      `json:"count"`
	Bytes   int64      `json:"bytes"`
	Since   *time.Time `json:"since"`        // the oldest; nil if no time is known
	Names   []string   `json:"names"`        // the first ones, see [Doctor]
	Janitor string     `json:"janitor"`      // Removes, Removed, Waits or Leaves
	Due     *time.Time `json:"due"`          // of what waits: when the first is removed
	Person  bool       `json:"needs_person"` // the janitor does nothing about it, or should not have to

	named map[string]bool // those in Names
}

// What the janitor does about a finding.
const (
	Removes = "removes" // in its next round
	Removed = "removed" // in this one
	Waits   = "waits"   // until it is due
	Leaves  = "leaves"  // the janitor never removes it
)

// mostNames is how many names a finding has, unless more are asked for.
const mostNames = 10

// A Report is what a look at all stores came to.
type Report struct {
	Findings    []Finding   `json:"findings"`
	Unchecked   []Unchecked `json:"unchecked"`
	Inventories []Compared  `json:"inventories,omitempty"` // those that the doctor has read in place of buckets

	names int // of each finding; 0: mostNames
}

// Unchecked is what could not be looked at, or not be removed.
type Unchecked struct {
	Store string `json:"store"`
	Error string `json:"error"`
}

// NeedsPerson tells whether a person has to see to something.
func (r *Report) NeedsPerson() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Person })
}

// removed says in words what a round removed.
func (r *Report) removed() string {
	var list []string
	for _, f := range r.Findings {
		if f.Janitor == Removed {
			list = append(list, fmt.Sprintf("%d %s from %s", f.Count, f.What, f.Store))
		}
	}
	if len(list) == 0 {
		return "nothing to remove"
	}
	return "removed " + strings.Join(list, ", ")
}

// trouble is what could not be looked at, or not be removed; nil if there is
// nothing.
func (r *Report) trouble() error {
	var errs []error
	for _, u := range r.Unchecked {
		errs = append(errs, errors.New(u.Store+": "+u.Error))
	}
	return errors.Join(errs...)
}

// Text says in words why something is a finding.
func (f Finding) Text() string {
	texts := map[string]string{
		whyEnded:                 "their items have ended",
		whyExpired:               "their items failed longer ago than the retention",
		whyKept:                  "their items failed and can be requeued",
		whyUnknown:               "no such item: another system, or an earlier state of the database, may own them",
		whyForeign:               "no item uses such names",
		whyUnowned:               "no live item has begun them",
		whyYoung:                 "begun so recently that a stage may be in progress",
		whyCancelled:             "made for items that ended before they were recorded",
		whyRetired:               "replaced by later versions",
		whyLocked:                "to be removed, and kept by the store under Object Lock until a time or under a legal hold",
		whyOrphan:                "no record names them, and no live item will record them",
		whyMissing:               "on record, and not in the bucket",
		whyResized:               "on record with another size than in the bucket",
		whyRefused:               "refused as invalid",
		whyUndecided:             "ended without being ingested: a person has to decide",
		whyNoBag:                 "not bags: no item will ever take them up; inform the person who uploaded them, or remove them",
		whyBagGone:               "not in their receiving bucket any more, although items need them",
		whyRestored:              "the registry was restored from a backup: run farol reconcile",
		whyFound:                 "found without a record; the next ingest of their bag takes them over",
		whyNoItem:                "no items exist for them: does farol schedule run?",
		"incomplete":             "files with fewer copies on record than promised, or without a checksum",
		"lapsed-lease":           "expired leases that were not ended: does any worker run?",
		"claim-without-attempt":  "running items without an open attempt in the ledger",
		"attempt-without-claim":  "open attempts of items that do not run",
		"waits-for-nobody":       "items that wait for one that has ended",
		"upload-without-item":    "uploads in work and live items that do not match",
		"item-without-upload":    "uploads in work and live items that do not match",
		"success-without-object": "items that succeeded without an object on record",
		OpenReview:               "items that wait for a person: farol item list --needs-review",
		"deletion-unfinished":    "files and objects whose deletion has begun and has no live item: requeue its item, or cancel it, which gives back what is left",
	}
	return texts[f.Why]
}

// OpenReview is the reason of a finding that only asks people to do what they are told
// of anyway.
const OpenReview = "open-review"

// The reasons for findings in stores.
const (
	whyEnded     = "ended"
	whyExpired   = "expired"
	whyKept      = "kept"
	whyUnknown   = "unknown-item"
	whyForeign   = "foreign"
	whyUnowned   = "unowned"
	whyYoung     = "young"
	whyCancelled = "unrecorded"
	whyRetired   = "replaced"
	whyLocked    = "kept-by-store"
	whyOrphan    = "orphan"
	whyMissing   = "missing"
	whyResized   = "resized"
	whyRefused   = "refused"
	whyUndecided = "undecided"
	whyNoBag     = "no-bag"
	whyNoItem    = "no-item"
	whyBagGone   = "bag-gone"
	whyRestored  = "restored"
	whyFound     = "found"
)

// A thing is one member of a finding.
type thing struct {
	store, what, why, name string
	count, bytes           int64
	since                  time.Time // zero: not known
	janitor                string
	due                    time.Time // zero: not known
	person                 bool
}

// add puts a thing into the finding of its kind.
func (r *Report) add(t thing) {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool {
		return f.Store == t.store && f.What == t.what && f.Why == t.why && f.Janitor == t.janitor && f.Person == t.person
	})
	if i < 0 {
		r.Findings = append(r.Findings, Finding{
			Store: t.store, What: t.what, Why: t.why, Janitor: t.janitor, Person: t.person, Names: []string{}, named: map[string]bool{},
		})
		i = len(r.Findings) - 1
	}
	f := &r.Findings[i]
	f.Count += t.count
	f.Bytes += t.bytes
	f.Since, f.Due = earlier(f.Since, t.since), earlier(f.Due, t.due)
	if len(f.Names) < cmp.Or(r.names, mostNames) && t.name != "" && !f.named[t.name] {
		f.Names, f.named[t.name] = append(f.Names, t.name), true
	}
}

// Explain takes things that need no person out of the findings of one kind in a store.
func (r *Report) Explain(store, why string, names map[string]bool) {
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Store == store && f.Why == why && int(f.Count) <= f.among(names) })
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Store == store && f.Why == why {
			f.Count -= int64(f.among(names))
			f.Names = slices.DeleteFunc(f.Names, func(name string) bool { return names[name] })
		}
	}
}

// among counts those of some names that a finding has.
func (f Finding) among(names map[string]bool) (n int) {
	for _, name := range f.Names {
		if names[name] {
			n++
		}
	}
	return n
}

// Orphan adds copies in a target that no record names. Nobody knows what they are.
func (r *Report) Orphan(target string, list []storage.Object) {
	for _, o := range list {
		r.add(thing{store: target, what: "copies", why: whyOrphan, name: o.Key, count: 1, bytes: o.Size, since: o.LastModified, janitor: Leaves, person: true})
	}
}

func earlier(known *time.Time, t time.Time) *time.Time {
	if t.IsZero() || known != nil && !t.Before(*known) {
		return known
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// failed notes what could not be done in a store.
func (r *Report) failed(store string, err error) {
	r.Unchecked = append(r.Unchecked, Unchecked{store, err.Error()})
}

// Sort puts what needs a person first, then the stores by name.
func (r *Report) Sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		first := func(f Finding) int {
			if f.Person {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a.Store, b.Store), cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why))
	})
}
