package record

import "time"

// File is a file with all that is on record of its content and its copies.
type File struct {
	ID                     int64      `json:"id"`
	Identifier             string     `json:"identifier"` // <object identifier>/<path in bag>
	Object                 string     `json:"object_identifier"`
	Institution            string     `json:"institution_identifier"`
	UUID                   string     `json:"uuid" db:"uuid"`
	State                  string     `json:"state"` // A or D
	Size                   int64      `json:"size"`
	StorageOption          string     `json:"storage_option"`
	FileFormat             string     `json:"file_format"` // MIME type
	FormatPUID             string     `json:"format_puid" db:"format_puid"`
	FormatName             string     `json:"format_name"`
	FormatMethod           string     `json:"format_method"`
	FormatIdentifiedBy     string     `json:"format_identified_by"`
	FormatSignatureVersion string     `json:"format_signature_version"`
	FormatReason           string     `json:"format_reason"` // why the identifier gave no type; "": it did
	FormatIdentifiedAt     *time.Time `json:"format_identified_at"`
	ModTime                *time.Time `json:"mod_time"` // as the tar had it
	CreatedAt              time.Time  `json:"created_at"`
	UpdatedAt              time.Time  `json:"updated_at"`
	LastFixityCheck        time.Time  `json:"last_fixity_check"`
	DeletedByItem          *int64     `json:"deleted_by_item"` // that deletes the file, or has deleted it
	Digests                []Digest   `json:"digests"`         // those of the present content first
	Copies                 []FileCopy `json:"copies"`          // none once it is deleted
}

// Digest is a digest that a file has had.
type Digest struct {
	Algorithm string    `json:"algorithm"`
	Digest    string    `json:"digest"`
	At        time.Time `json:"datetime"`
	Present   bool      `json:"present"` // of the content that the file has now, or had when it was deleted
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
	VerifiedBy string     `json:"verified_by"`  // sha256, etag or read; "": that was not kept
	LastReadAt *time.Time `json:"last_read_at"` // its bytes were compared with their digest; nil: never since it was stored
	Problem    string     `json:"problem"`      // altered or missing; "": it is not known to be bad
}

// CopyFailure is a copy of a file that was found to be bad, and what became of it.
type CopyFailure struct {
	Target        string     `json:"target"`
	URL           string     `json:"url" db:"url"`
	Problem       string     `json:"problem"` // altered or missing
	Algorithm     string     `json:"algorithm"`
	Expected      string     `json:"expected"`
	Found         string     `json:"found"`    // digest; "": there was nothing
	FoundAt       time.Time  `json:"found_at"` // for the first time
	SeenAt        time.Time  `json:"seen_at"`  // for the last time
	State         string     `json:"state"`    // open, repaired, good again, replaced or deleted
	ClosedAt      *time.Time `json:"closed_at"`
	QuarantinedAs string     `json:"quarantined_as"` // where the bad bytes are kept
	RepairedFrom  string     `json:"repaired_from"`  // URL of the good copy
}

// Institution is a depositor.
type Institution struct {
	ID              int64     `json:"id"`
	Name            string    `json:"name"`
	Identifier      string    `json:"identifier"` // a domain name
	State           string    `json:"state"`      // A or D
	ReceivingBucket string    `json:"receiving_bucket"`
	RestoreBucket   string    `json:"restore_bucket"`
	SpotRestoreDays int       `json:"spot_restore_days"`      // an object is restored at random as often, to see that it can be; 0: none
	DeletionWait    *float64  `json:"deletion_wait_hours"`    // that an approved deletion waits; null: as long as the settings of requests say
	FactorRequired  bool      `json:"second_factor_required"` // of all its people
	CreatedAt       time.Time `json:"created_at"`
	Version         int64     `json:"version"`
}

// Object is an intellectual object: what a bag becomes.
type Object struct {
	ID                        int64  `json:"id"`
	InstitutionID             int64  `json:"institution_id"`
	Identifier                string `json:"identifier"` // <institution identifier>/<bag name>
	Title                     string `json:"title"`
	Description               string `json:"description"`
	Access                    string `json:"access"` // consortia, institution or restricted
	AltIdentifier             string `json:"alt_identifier"`
	BagName                   string `json:"bag_name"`
	BagGroupIdentifier        string `json:"bag_group_identifier"`
	BagItProfileIdentifier    string `json:"bagit_profile_identifier" db:"bagit_profile_identifier"`
	SourceOrganization        string `json:"source_organization"`
	InternalSenderIdentifier  string `json:"internal_sender_identifier"`
	InternalSenderDescription string `json:"internal_sender_description"`
	ETag                      string `json:"etag" db:"etag"` // of the tar ingested last
	StorageOption             string `json:"storage_option"`
	State                     string `json:"state"`        // A or D
	TagEncoding               string `json:"tag_encoding"` // of its tag files; "" is UTF-8
	Deletions                 int64  `json:"deletions"`    // of it or its files, so far
	Deleting                  bool   `json:"deleting"`     // a deletion of it, or of a file, has begun and is not completed
}

// ObjectSummary counts what is on record of an object.
type ObjectSummary struct {
	Files   int64            `json:"files"` // active ones
	Bytes   int64            `json:"bytes"`
	Counted bool             `json:"counted"` // false: the object has more than 10,000 files, and what else is on record of them is not counted
	Copies  *int64           `json:"copies"`
	Events  map[string]int64 `json:"events"` // by PREMIS event type, the files' and the object's own; nil: not counted
}

// ObjectCopies counts what is known of the copies of an object's active files.
type ObjectCopies struct {
	NeverRead *int64 `json:"never_read"` // since they were stored; nil: not counted
	Bad       int64  `json:"bad"`        // altered or missing, and not yet repaired
}

// Event is a PREMIS event.
type Event struct {
	Identifier         string    `json:"identifier"`
	EventType          string    `json:"event_type"`
	EventTypeURI       string    `json:"event_type_uri" db:"event_type_uri"` // its term in a vocabulary, most in the Library of Congress'
	DateTime           time.Time `json:"date_time"`
	Detail             string    `json:"detail"`
	Outcome            string    `json:"outcome"`
	OutcomeDetail      string    `json:"outcome_detail"`
	OutcomeInformation string    `json:"outcome_information"`
	Object             string    `json:"object"`
	Agent              string    `json:"agent"`
}

// ListedChecksum is a digest that a file has, or has had.
type ListedChecksum struct {
	ID        int64     `json:"id"`
	FileID    int64     `json:"generic_file_id" db:"file_id"`
	File      string    `json:"generic_file_identifier"`
	Algorithm string    `json:"algorithm"`
	Digest    string    `json:"digest"`
	At        time.Time `json:"datetime"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// ListedCopy is a stored copy of a file, with its ID.
type ListedCopy struct {
	FileCopy

	ID int64 `json:"id"`
}

// ListedEvent is a PREMIS event in a list, with what it is about.
type ListedEvent struct {
	Event

	ID            int64     `json:"id"`
	InstitutionID int64     `json:"institution_id"`
	ObjectID      int64     `json:"intellectual_object_id" db:"object_id"`
	ObjectName    string    `json:"intellectual_object_identifier"`
	FileID        *int64    `json:"generic_file_id" db:"file_id"` // nil: it is about the object
	FileName      string    `json:"generic_file_identifier"`      // at that time
	RecordedAt    time.Time `json:"created_at"`
}

// ListedFile is a file in a list.
type ListedFile struct {
	ID         int64      `json:"id"`
	Identifier string     `json:"identifier"`
	State      string     `json:"state"` // A or D
	Size       int64      `json:"size"`
	FileFormat string     `json:"file_format"`
	FormatPUID string     `json:"format_puid" db:"format_puid"`
	Copies     int64      `json:"copies"`
	NeverRead  int64      `json:"never_read"`   // of these
	Bad        int64      `json:"bad"`          // of these
	LastReadAt *time.Time `json:"last_read_at"` // the oldest of the copies' last checks; nil: none was read
}

// ObjectTarget is what is kept of an object at one storage target.
type ObjectTarget struct {
	Target     string     `json:"target"`
	Copies     int64      `json:"copies"`
	Bytes      int64      `json:"bytes"`
	NeverRead  int64      `json:"never_read"`   // of these, since they were stored
	LastReadAt *time.Time `json:"last_read_at"` // the oldest of the copies' last checks; nil: none was read
}

// ObjectFormat is a format of an object's files.
type ObjectFormat struct {
	PUID       string `json:"format_puid"` // "": not identified
	Name       string `json:"format_name"`
	FileFormat string `json:"file_format"` // MIME type
	Files      int64  `json:"files"`
	Bytes      int64  `json:"bytes"`
}

// ObjectHoldings is what the active files of an object are, and where their copies are.
type ObjectHoldings struct {
	Counted bool           `json:"counted"` // false: the object has more than 10,000 files, and the lists are empty
	Targets []ObjectTarget `json:"targets"`
	Formats []ObjectFormat `json:"formats"` // those of most files first, up to 100
}

// ListedObject is an object in a list, with what is kept of it.
type ListedObject struct {
	ID            int64      `json:"id"`
	Identifier    string     `json:"identifier"`
	Title         string     `json:"title"`
	StorageOption string     `json:"storage_option"`
	State         string     `json:"state"` // A or D
	Files         int64      `json:"files"` // active ones
	Bytes         int64      `json:"bytes"`
	LastIngest    *time.Time `json:"last_ingest"` // nil: no event says when
	UpdatedAt     time.Time  `json:"-"`
}

// Sample is drawn from all files on record. The same seed, number and highest ID draw the
// same files.
type Sample struct {
	Seed    string        `json:"seed"`
	Through int64         `json:"through"` // highest ID that was drawn from: of files, or of the objects of an institution
	Files   []SampledFile `json:"items"`   // in the order of their IDs; fewer than were asked for if some were drawn twice
}

// SampledFile is a file of a sample, with the last checks of its copies.
type SampledFile struct {
	ID          int64      `json:"id"`
	Identifier  string     `json:"identifier"`
	Institution string     `json:"institution_identifier"`
	Size        int64      `json:"size"`
	State       string     `json:"state"`        // A, or D: deleted
	Copies      int64      `json:"copies"`       // on record
	Unread      int64      `json:"never_read"`   // of these, copies that nobody has read since they were stored
	Bad         int64      `json:"bad_copies"`   // of these, copies that failed their last check
	Oldest      *time.Time `json:"oldest_check"` // last check of the copy that was checked longest ago; nil: none was
	Newest      *time.Time `json:"newest_check"`
}

// ObjectView is an object with what is kept of it.
type ObjectView struct {
	Object

	Summary  ObjectSummary  `json:"summary"`
	Copies   ObjectCopies   `json:"copies"`
	Deletion ObjectDeletion `json:"deletion" doc:"What deletions did to it, or are about to"`
}

// FileView is a file with its copies that were bad, and what deletions did to them.
type FileView struct {
	File

	Failures []CopyFailure `json:"failures" doc:"Copies that were found to be bad, the newest first"`
	Receipts []DeletedCopy `json:"receipts" doc:"What deletions did to each copy"`
}

// StoredCopy is a copy of a file, and where it is.
type StoredCopy struct {
	ID       int64     `json:"id"`
	Target   string    `json:"target"`
	Bucket   string    `json:"bucket"`
	Key      string    `json:"key"`
	URL      string    `json:"url"`
	ETag     string    `json:"etag"`
	StoredAt time.Time `json:"stored_at"` // by the provider's clock
}
