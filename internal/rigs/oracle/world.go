// Package oracle judges what Farol has made of a set of bags. It shares no code
// with Farol: it reads the tars, the rows, the buckets and the ledger by itself.
//
// [Collect] gathers a [World], and [Judge] compares it with what was promised.
// Judge does no I/O, so that it can be shown worlds that are wrong. [Records] compares the
// records, of whatever bags, with the contents of the buckets.
package oracle

import "time"

// A World is all that there is to see when an experiment is over.
type World struct {
	Bags     []Bag
	Items    []Item
	Attempts []Attempt          // by item and claim token
	Messages map[int64][]string // topics of an item's messages, in their order
	ByHand   map[int64]int      // changes by people, by item
	Most     map[string]int     // attempts that a stage of an ingest allows
	Topics   []string           // of the stages of an ingest, in their order
	Files    map[string]FileRow // by identifier
	Events   []Event
	Restored []Restoration
	Deleted  map[string][]Item // what came of requests to delete an object, by its identifier
	Doubted  map[string]bool   // copies that are known to be bad, or that will be checked, by bucket and key

	Targets   map[string][]Target // promised copies, by storage option
	Buckets   map[string][]Object // what the preservation buckets hold, by bucket
	Staging   []string            // keys
	Receiving map[string][]string // keys, by bucket
}

// An Item is a row of work_items.
type Item struct {
	ID                                      int64
	Bucket, Name, Status, Stage, Code, Note string
}

// A Restoration is what came of a request to give an object back.
type Restoration struct {
	Item

	Object string
	Bag    Bag // what is in the restoration bucket; without files if nothing is
}

// An Attempt is a row of the ledger.
type Attempt struct {
	Item, Token          int64
	Stage                string
	Number               int // what the ledger calls attempt
	Worker               string
	Claimed              time.Time
	Ended                time.Time // zero: it has not ended
	Outcome, Code, Error string
}

// A FileRow is a file on record with its digests and copies.
type FileRow struct {
	Size      int64
	Checksums map[string][]string // digests, by algorithm
	Copies    []Copy
	Deleted   bool
	Receipts  []Copy // of copies that a deletion has removed
}

// A Copy is a row of storage_records.
type Copy struct{ Target, Bucket, Key string }

// A Target is a promised place of copies.
type Target struct{ Name, Bucket string }

// An Object is what a bucket holds under a key.
type Object struct {
	Key, SHA256 string
	Size        int64
	Bag         string // identifier of the object that it is a copy for, as its metadata says
}

// An Event is a PREMIS event. File is "" for an event of the object.
type Event struct{ Object, File, Type, Detail string }

// A Promise is what must hold after an experiment, in addition to what must always hold.
type Promise struct {
	// Spends says that attempts may be spent on valid bags: workers are killed, or
	// copies and lists are damaged.
	Spends bool
	// Clock says that the database's clock jumped, so that times of different
	// attempts cannot be compared.
	Clock bool
	// ByHand says that people moved items about, so that stages may be done twice
	// and messages be more.
	ByHand bool
}

// A Violation is a promise that was not kept.
type Violation struct {
	Kind   string `json:"kind"` // stable, such as valid-bag-failed
	Item   int64  `json:"item,omitempty"`
	Bag    string `json:"bag,omitempty"`
	Detail string `json:"detail"`
}
