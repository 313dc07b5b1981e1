package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// ListedObject is an object in a list, with what is kept of it.
type ListedObject struct {
	ID            int64      `json:"id"`
	Identifier    string     `json:"identifier"`
	Title         string     `json:"title"`
	StorageOption string     `json:"storage_option"`
	State         string     `json:"state"` // A: active, D: deleted
	Files         int64      `json:"files"` // active ones
	Bytes         int64      `json:"bytes"`
	LastIngest    *time.Time `json:"last_ingest"`
}

// Object is an intellectual object: what a bag has become.
type Object struct {
	ID                        int64         `json:"id"`
	InstitutionID             int64         `json:"institution_id"`
	Identifier                string        `json:"identifier"`
	Title                     string        `json:"title"`
	Description               string        `json:"description"`
	Access                    string        `json:"access"` // consortia, institution or restricted
	AltIdentifier             string        `json:"alt_identifier"`
	BagName                   string        `json:"bag_name"`
	BagGroupIdentifier        string        `json:"bag_group_identifier"`
	BagItProfileIdentifier    string        `json:"bagit_profile_identifier"`
	SourceOrganization        string        `json:"source_organization"`
	InternalSenderIdentifier  string        `json:"internal_sender_identifier"`
	InternalSenderDescription string        `json:"internal_sender_description"`
	ETag                      string        `json:"etag"` // of the tar that was ingested last
	StorageOption             string        `json:"storage_option"`
	State                     string        `json:"state"` // A: active, D: deleted
	TagEncoding               string        `json:"tag_encoding"`
	Deletions                 int64         `json:"deletions"`
	Deleting                  bool          `json:"deleting"`
	Summary                   ObjectSummary `json:"summary"`

	Copies   ObjectCopies   `json:"copies"`
	Deletion ObjectDeletion `json:"deletion"`
}

// ObjectCopies counts copies of an object that need attention.
type ObjectCopies struct {
	NeverRead *int64 `json:"never_read"` // since they were stored; nil: not counted
	Bad       int64  `json:"bad"`        // altered or missing, and not yet repaired
}

// ObjectDeletion is what deletions did to an object, or are about to.
type ObjectDeletion struct {
	Item         *int64     `json:"deleted_by_item"` // that deletes the object as a whole, or has deleted it
	FilesDeleted *int64     `json:"files_deleted"`   // nil: not counted
	FilesGoing   int64      `json:"files_being_deleted"`
	Requests     []Deletion `json:"requests"` // the newest first
}

// ObjectSummary counts what is kept of an object.
type ObjectSummary struct {
	Files   int64            `json:"files"`
	Bytes   int64            `json:"bytes"`
	Counted bool             `json:"counted"` // false: the object has more than 10,000 files, and what follows is nil
	Copies  *int64           `json:"copies"`
	Events  map[string]int64 `json:"events"` // by PREMIS event type
}

// ObjectFilter narrows a list of objects. What is zero narrows nothing.
type ObjectFilter struct {
	Institution                  string // identifier
	Identifier, IdentifierPrefix string
	State                        string // A or D
	Access, StorageOption        string
	BagGroupIdentifier           string
	AltIdentifier, AltPrefix     string
	UpdatedAfter, UpdatedBefore  time.Time
	Sort                         string // "-updated_at": by the last update, the latest first
}

// Objects lists objects, newest first, or with a prefix by identifier.
func (r Registry) Objects(ctx context.Context, f ObjectFilter) iter.Seq2[ListedObject, error] {
	q := query{}
	q.text("institution", f.Institution)
	q.text("identifier", f.Identifier)
	q.text("identifier_prefix", f.IdentifierPrefix)
	q.text("state", f.State)
	q.text("access", f.Access)
	q.text("storage_option", f.StorageOption)
	q.text("bag_group_identifier", f.BagGroupIdentifier)
	q.text("alt_identifier", f.AltIdentifier)
	q.text("alt_identifier_prefix", f.AltPrefix)
	q.time("updated_after", f.UpdatedAfter)
	q.time("updated_before", f.UpdatedBefore)
	q.text("sort", f.Sort)
	return Pages[ListedObject](ctx, r, "objects", url.Values(q), 0)
}

// Object shows an object by its ID.
func (r Registry) Object(ctx context.Context, id int64) (Object, error) {
	return get[Object](ctx, r, about("objects", id, ""), nil)
}

// ObjectByIdentifier shows an object by its identifier.
func (r Registry) ObjectByIdentifier(ctx context.Context, identifier string) (Object, error) {
	return get[Object](ctx, r, "objects/by-identifier", url.Values{"identifier": {identifier}})
}

// ListedFile is a file in a list.
type ListedFile struct {
	ID         int64      `json:"id"`
	Identifier string     `json:"identifier"`
	State      string     `json:"state"` // A: active, D: deleted
	Size       int64      `json:"size"`  // bytes
	FileFormat string     `json:"file_format"`
	FormatPUID string     `json:"format_puid"`
	Copies     int64      `json:"copies"`
	NeverRead  int64      `json:"never_read"`   // of the copies
	Bad        int64      `json:"bad"`          // of the copies
	LastReadAt *time.Time `json:"last_read_at"` // the oldest of the copies' last checks
}

// FileFilter narrows a list of files. Object, Identifier, IdentifierPrefix, UUID, Digest or
// Institution has to be set, unless the token is of one institution.
type FileFilter struct {
	Institution                  string // identifier
	Object                       string // identifier
	Identifier, IdentifierPrefix string
	UUID                         string
	Digest                       string // MD5 or SHA-256 in hexadecimal
	State                        string // A or D
	Format                       string // PRONOM identifier or name
	SizeMin                      int64  // bytes
	SizeMax                      *int64 // bytes
}

// Files lists files.
func (r Registry) Files(ctx context.Context, f FileFilter) iter.Seq2[ListedFile, error] {
	q := query{}
	q.text("institution", f.Institution)
	q.text("object", f.Object)
	q.text("identifier", f.Identifier)
	q.text("identifier_prefix", f.IdentifierPrefix)
	q.text("uuid", f.UUID)
	q.text("digest", f.Digest)
	q.text("state", f.State)
	q.text("format", f.Format)
	q.number("size_min", f.SizeMin)
	q.bound("size_max", f.SizeMax)
	return Pages[ListedFile](ctx, r, "files", url.Values(q), 0)
}

// File is a file of an object, even a deleted one.
type File struct {
	ID                     int64         `json:"id"`
	Identifier             string        `json:"identifier"`
	Object                 string        `json:"object_identifier"`
	Institution            string        `json:"institution_identifier"`
	UUID                   string        `json:"uuid"`
	State                  string        `json:"state"` // A: active, D: deleted
	Size                   int64         `json:"size"`  // bytes
	StorageOption          string        `json:"storage_option"`
	FileFormat             string        `json:"file_format"` // media type
	FormatPUID             string        `json:"format_puid"`
	FormatName             string        `json:"format_name"`
	FormatMethod           string        `json:"format_method"`
	FormatIdentifiedBy     string        `json:"format_identified_by"`
	FormatSignatureVersion string        `json:"format_signature_version"`
	FormatReason           string        `json:"format_reason"`
	FormatIdentifiedAt     *time.Time    `json:"format_identified_at"`
	ModTime                *time.Time    `json:"mod_time"`
	CreatedAt              time.Time     `json:"created_at"`
	UpdatedAt              time.Time     `json:"updated_at"`
	LastFixityCheck        time.Time     `json:"last_fixity_check"`
	DeletedByItem          *int64        `json:"deleted_by_item"`
	Digests                []Digest      `json:"digests"` // those of the present content first
	Copies                 []FileCopy    `json:"copies"`
	Failures               []CopyFailure `json:"failures"` // copies that were bad, the newest first
	Receipts               []Receipt     `json:"receipts"` // what deletions did to the copies
}

// Digest is a digest that a file has had.
type Digest struct {
	Algorithm string    `json:"algorithm"`
	Digest    string    `json:"digest"` // hexadecimal
	At        time.Time `json:"datetime"`
	Present   bool      `json:"present"` // of the content that the file has now
}

// CopyFailure is a copy that was found to be bad.
type CopyFailure struct {
	Target        string     `json:"target"`
	URL           string     `json:"url"`
	Problem       string     `json:"problem"` // altered or missing
	Algorithm     string     `json:"algorithm"`
	Expected      string     `json:"expected"`
	Found         string     `json:"found"` // digest; "": there was nothing
	FoundAt       time.Time  `json:"found_at"`
	SeenAt        time.Time  `json:"seen_at"`
	State         string     `json:"state"` // open, repaired, good again, replaced or deleted
	ClosedAt      *time.Time `json:"closed_at"`
	QuarantinedAs string     `json:"quarantined_as"`
	RepairedFrom  string     `json:"repaired_from"`
}

// File shows a file by its ID.
func (r Registry) File(ctx context.Context, id int64) (File, error) {
	return get[File](ctx, r, about("files", id, ""), nil)
}

// FileByIdentifier shows a file by its identifier.
func (r Registry) FileByIdentifier(ctx context.Context, identifier string) (File, error) {
	return get[File](ctx, r, "files/by-identifier", url.Values{"identifier": {identifier}})
}

// Copy is a stored copy of a file, with its ID.
type Copy struct {
	FileCopy

	ID int64 `json:"id"`
}

// FileCopy is a stored copy of a file, and what was seen of it.
type FileCopy struct {
	Target     string     `json:"target"`
	Bucket     string     `json:"bucket"`
	Key        string     `json:"key"`
	URL        string     `json:"url"`
	ETag       string     `json:"etag"`
	StoredAt   time.Time  `json:"stored_at"`
	VerifiedAt time.Time  `json:"verified_at"`
	VerifiedBy string     `json:"verified_by"`
	LastReadAt *time.Time `json:"last_read_at"` // its bytes were compared with their digest; nil: not yet
	Problem    string     `json:"problem"`      // altered or missing; "": it is not known to be bad
}

// Copies lists the copies of a file, newest first.
func (r Registry) Copies(ctx context.Context, file int64) iter.Seq2[Copy, error] {
	return Pages[Copy](ctx, r, about("files", file, "/copies"), nil, 0)
}

// Checksum is a digest that a file has, or has had.
type Checksum struct {
	ID        int64     `json:"id"`
	FileID    int64     `json:"generic_file_id"`
	File      string    `json:"generic_file_identifier"`
	Algorithm string    `json:"algorithm"`
	Digest    string    `json:"digest"` // hexadecimal
	At        time.Time `json:"datetime"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Checksums lists the digests of a file, newest first.
func (r Registry) Checksums(ctx context.Context, file int64) iter.Seq2[Checksum, error] {
	return Pages[Checksum](ctx, r, about("files", file, "/checksums"), nil, 0)
}

// Event is a PREMIS event, with what it is about.
type Event struct {
	ID                 int64     `json:"id"`
	Identifier         string    `json:"identifier"` // UUID
	EventType          string    `json:"event_type"`
	EventTypeURI       string    `json:"event_type_uri"`
	DateTime           time.Time `json:"date_time"`
	Detail             string    `json:"detail"`
	Outcome            string    `json:"outcome"`
	OutcomeDetail      string    `json:"outcome_detail"`
	OutcomeInformation string    `json:"outcome_information"`
	Object             string    `json:"object"`
	Agent              string    `json:"agent"`
	InstitutionID      int64     `json:"institution_id"`
	ObjectID           int64     `json:"intellectual_object_id"`
	ObjectIdentifier   string    `json:"intellectual_object_identifier"`
	FileID             *int64    `json:"generic_file_id"` // nil: it is about the object
	FileIdentifier     string    `json:"generic_file_identifier"`
	RecordedAt         time.Time `json:"created_at"`
}

// EventFilter narrows a list of events. Object, File, Failed, the type deletion, or a window
// of at most 31 days has to be set.
type EventFilter struct {
	Institution                   string // identifier
	Object, File                  int64  // ID
	Failed                        bool   // only events with the outcome Failure
	Type                          string
	Identifier                    string // UUID; only with Object or File
	RecordedAfter, RecordedBefore time.Time
}

// Events lists events, newest first.
func (r Registry) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	q := query{}
	q.text("institution", f.Institution)
	q.number("object", f.Object)
	q.number("file", f.File)
	q.truth("failed", f.Failed)
	q.text("type", f.Type)
	q.text("identifier", f.Identifier)
	q.time("recorded_after", f.RecordedAfter)
	q.time("recorded_before", f.RecordedBefore)
	return Pages[Event](ctx, r, "events", url.Values(q), 0)
}
