package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// DeletionRequest is someone's wish to have files and objects deleted, and what
// was decided about it.
type DeletionRequest struct {
	ID          int64      `json:"id"`
	Institution string     `json:"institution_identifier"`
	RequestedBy string     `json:"requested_by"` // e-mail
	RequestedAt time.Time  `json:"requested_at"`
	ApprovedBy  string     `json:"approved_by"` // "": nobody
	ApprovedAt  *time.Time `json:"approved_at"`
	RequestedAs string     `json:"requested_as"` // who acted; "": not recorded at the time
	ApprovedAs  string     `json:"approved_as"`  // who acted; "": nobody, or not recorded at the time
	OnPaper     string     `json:"on_paper"`     // why the approval was entered for a person who had not signed in
	BeginsAt    *time.Time `json:"begins_at"`    // nothing is removed before; null: it is not approved
	CancelledBy string     `json:"cancelled_by"`
	CancelledAt *time.Time `json:"cancelled_at"`
	Reason      string     `json:"cancel_reason" db:"cancel_reason"` // why it was cancelled; "": that was not said
	Objects     int64      `json:"objects"`
	Files       int64      `json:"files"` // single ones, in addition to those of the objects
	Items       int64      `json:"items"` // work items that it became
	Done        int64      `json:"done"`  // of these
	Failed      int64      `json:"failed"`
	Cancelled   int64      `json:"cancelled"`
	Removed     bool       `json:"removed_before_cancelled" db:"removed"` // it was cancelled when copies had been removed
	Ask         string     `json:"whom_to_ask" db:"ask"`                  // who may approve it, or from when a person may; "": it is decided
	Kept        string     `json:"kept_by_store" db:"kept"`               // until when stores keep copies, for which items of it wait; "": none does
}

// Waits reports whether a request is approved, and nothing of it is removed before a time that
// is still to come.
func (d DeletionRequest) Waits(now time.Time) bool {
	return d.BeginsAt != nil && d.CancelledAt == nil && d.BeginsAt.After(now)
}

// Stoppable reports whether something of an approved request is left that can be stopped.
func (d DeletionRequest) Stoppable() bool {
	return d.ApprovedAt != nil && d.CancelledAt == nil && d.Done+d.Cancelled < d.Items
}

// Undeletable is what cannot be deleted now.
type Undeletable struct {
	Identifier string `json:"identifier"`
	Why        string `json:"why"`
}

// DeletionCheck is what a request for a deletion would be about, and why it would be refused.
type DeletionCheck struct {
	Objects int64 `json:"objects"`
	Files   int64 `json:"files"` // single ones, in addition to those of the objects
	Bytes   int64 `json:"bytes"` // of all active files that would be deleted

	Unknown      []string      `json:"unknown"` // the institution has no such object or file: the first of them
	UnknownCount int64         `json:"unknown_count"`
	Refused      []Undeletable `json:"refused"` // these cannot be deleted now: the first of them
	RefusedCount int64         `json:"refused_count"`
}

// ObjectDeletion is what has become of an object by deletions, and what is about to.
type ObjectDeletion struct {
	Item         *int64            `json:"deleted_by_item"`     // that deletes the object as a whole, or has deleted it; nil: none
	FilesDeleted *int64            `json:"files_deleted"`       // nil: not counted
	FilesGoing   int64             `json:"files_being_deleted"` // of a deletion that is not completed
	Requests     []DeletionRequest `json:"requests"`            // that name the object or files of it, the newest first
}

// DeletedCopy is a receipt as people see it.
type DeletedCopy struct {
	Item       int64      `json:"work_item_id"`
	FileID     int64      `json:"generic_file_id" db:"file_id"`
	Identifier string     `json:"identifier"` // of the file
	Target     string     `json:"target"`
	Bucket     string     `json:"bucket"`
	Key        string     `json:"key"`
	URL        string     `json:"url" db:"url"`
	SeenAt     *time.Time `json:"seen_at"`       // when it was looked for; nil: that was not done then
	Missing    bool       `json:"found_missing"` // it was not there, and nobody here had deleted it
	AcceptedBy string     `json:"accepted_by"`   // who let the deletion go on without it
	RemovedAt  *time.Time `json:"removed_at"`    // nil: it was not deleted
	Kept       string     `json:"kept"`          // why its bytes stay; "": they are gone
	AbsentAt   *time.Time `json:"absent_at"`     // nil: not seen to be gone

	KeptByStore string `json:"kept_by_store"` // until when its store kept it, as it said last; "": it did not
}

// A Quote is what a restoration from an archive class costs and how long the
// provider takes.
type Quote struct {
	Files         int64         `json:"files"`
	Bytes         int64         `json:"bytes"`
	Class         string        `json:"storage_class"` // "": the copies can be read as they are, for nothing
	Tier          string        `json:"tier"`
	Days          int           `json:"days"`
	Price         string        `json:"price_usd"` // exact, such as 1774.00
	Cap           string        `json:"cap_usd"`   // above which someone must approve
	NeedsApproval bool          `json:"needs_approval"`
	Takes         time.Duration `json:"takes_ns"` // at most, as the provider says
}

// Restoration is what came of a request.
type Restoration struct {
	Item  WorkItem `json:"item"`
	Quote Quote    `json:"quote"`
}

// RetrievalRequest is what an item is about that is no ingest, beyond what the item says.
type RetrievalRequest struct {
	File    string   `json:"file"`    // its identifier; "" of a whole object
	Archive *Archive `json:"archive"` // from which it comes; nil if its copies could be read
	Waits   string   `json:"waits"`   // when a deletion begins, or for what it waits, and how it is stopped; "": it does not wait
}

// Archive is the archive class from which something is restored.
type Archive struct {
	Class    string     `json:"storage_class"`
	Tier     string     `json:"tier"`
	Days     int        `json:"days"`           // for which the copies stay readable
	Expected *time.Time `json:"expected"`       // when they can be read, by the table of prices; nil if unknown
	Until    *time.Time `json:"readable_until"` // nil before they can be read
	Price    string     `json:"price_usd"`      // exact, such as 1774.00
	Cap      string     `json:"cap_usd"`        // above which a person must approve
	Approved bool       `json:"approved"`       // or it costs no more than the cap
	Item     int64      `json:"item"`           // that has them made readable
	Next     *int64     `json:"next_item"`      // that gives them back; nil before it is made
}

// Settings are what requests go by: how long files are kept, how long an approved deletion
// waits, and what retrievals cost.
type Settings struct {
	Wait    float64          `json:"deletion_wait_hours"` // before anything is removed, unless an institution has its own
	Cap     string           `json:"retrieval_cap_usd"`   // exact, such as 100.00: above it a person has to approve
	Options []StorageOption  `json:"storage_options"`
	Prices  []RetrievalPrice `json:"retrieval_prices"`
}

// StorageOption is a storage option, and how long its files must be kept.
type StorageOption struct {
	Name          string `json:"name"`
	RetentionDays int    `json:"retention_days"`
}

// RetrievalPrice is what it costs to make archived copies readable, in US dollars, and how
// long that takes.
type RetrievalPrice struct {
	Class       string  `json:"storage_class"`
	Tier        string  `json:"tier"`
	PerGiB      string  `json:"per_gib_usd" db:"per_gib"`
	PerThousand string  `json:"per_1000_requests_usd"`
	Takes       float64 `json:"takes_seconds"` // at most, as the provider says
	Poll        float64 `json:"poll_seconds"`  // between two polls of the provider
}

// Version changes with the settings.
func (s Settings) Version() string {
	text, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// ListedNamed is an object or a file that a deletion request names.
type ListedNamed struct {
	Kind       string `json:"kind"` // object or file
	ID         int64  `json:"id"`
	Identifier string `json:"identifier"`
	State      string `json:"state"` // A: active, D: deleted
	Size       int64  `json:"size"`  // bytes; of an object, those of its active files

	KeptUntil *time.Time `json:"kept_until"` // when its retention ends; nil: it has none, or is an object with more than 1,000 files
}

// ItemEnded is an item that is about an object, and when it ended.
type ItemEnded struct {
	Item   int64     `json:"item"`
	Action Action    `json:"action"`
	Object string    `json:"object_identifier"`
	At     time.Time `json:"at"`
}

// DeletionReview is what there is to know before a deletion is approved: what would be
// deleted now, what stands in the way, and what has changed since it was asked for.
type DeletionReview struct {
	Files  int64  `json:"files"` // active ones, those of the objects among them
	Bytes  int64  `json:"bytes"`
	Copies *int64 `json:"copies"` // nil: more than 10,000 files, and not counted

	Refused      []Undeletable `json:"refused"` // what cannot be deleted now: the first of it; none of a request that is decided
	RefusedCount int64         `json:"refused_count"`

	Gone     int64       `json:"gone"`     // of what is named, deleted by now
	Ingested []ItemEnded `json:"ingested"` // ingests of the named objects that ended after the request: the newest
	Restored []ItemEnded `json:"restored"` // restorations of them and of their files, whenever they ended: the newest
}

// RestorationRequest says what is to be given back, and how.
type RestorationRequest struct {
	Object      string `json:"object,omitempty" maxLength:"1000" doc:"Identifier of the object, or"`
	File        string `json:"file,omitempty" maxLength:"2000" doc:"identifier of the file"`
	Tier        string `json:"tier,omitempty" default:"Standard" enum:"Expedited,Standard,Bulk" doc:"How quickly archived copies are made readable"`
	Days        int    `json:"days,omitempty" default:"10" minimum:"1" maximum:"365" doc:"For which they stay readable"`
	Priority    int    `json:"priority,omitempty" minimum:"-100" maximum:"100" hidden:"true" doc:"-100 goes first; for commands with the registry's own URL"`
	FromArchive bool   `json:"from_archive,omitempty" doc:"From the archived copy, for example if the others are bad"`
}

// ShownRestoration is an item that gives something back.
type ShownRestoration struct {
	Item    WorkItem         `json:"item"`
	Request RetrievalRequest `json:"request"`
}
