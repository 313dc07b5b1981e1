package registry

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// ErrMoved says that what the registry holds of an object or file is not what
// the item was prepared against; the item must be checked against it again.
var ErrMoved = errors.New("the registry has changed since this item was checked against it")

// Copy is one stored and verified copy of a file.
type Copy struct {
	Target     string // name of the storage target
	Bucket     string
	Key        string
	URL        string
	ETag       string
	StoredAt   time.Time
	VerifiedAt time.Time
	VerifiedBy string // sha256 (the provider's checksum), etag, or read: its bytes
}

// FileRecord is a file as it goes on record.
type FileRecord struct {
	Identifier string // <object identifier>/<path in bag>
	UUID       string
	Format     Format
	Virus      VirusCheck
	Size       int64
	ModTime    time.Time
	MD5        string // all digests in lower-case hex
	SHA1       string
	SHA256     string
	SHA512     string
	DigestedAt time.Time
	Manifests  []string // algorithm:digest for each payload manifest that lists it
	Copies     []Copy   // all that the storage option promises, the primary first
}

// Format is what is known of a file's format, and how it was found out.
type Format struct {
	MIME             string    `json:"mime_type"`
	PUID             string    `json:"puid"`   // PRONOM identifier; "" if it is unknown
	Name             string    `json:"name"`   // PRONOM's
	Method           string    `json:"method"` // signature, container or extension
	IdentifiedBy     string    `json:"identified_by"`
	SignatureVersion string    `json:"signature_version"` // the identifier and its signature files; "" if none was asked
	Reason           string    `json:"reason"`            // why the identifier gave no type: a word, and more behind a colon
	At               time.Time `json:"identified_at"`
}

// VirusCheck is what a virus scanner said of a file that goes on record: one
// that is infected never does.
type VirusCheck struct {
	Scanner   string // engine and version of its signatures; "": none was asked
	Unchecked string // why it did not look at the whole file; "": it did, and found nothing
	At        time.Time
}

// Validation is the judgement that a bag is valid.
type Validation struct {
	By       string // profile and BagIt version
	Software string // what judged
	Warnings int
	Found    string // the warnings, in words
	At       time.Time
}

// Recording is all that an ingest puts on record.
type Recording struct {
	Item       int64 // work item
	Token      int64 // its claim; a newer one refuses the recording
	Object     record.Object
	Validation Validation
	Files      iter.Seq2[FileRecord, error]
}

//go:embed record.sql
var recordSQL string

// statement returns a named statement of record.sql.
func statement(name string) string {
	_, rest, _ := strings.Cut(recordSQL, "-- name: "+name+"\n")
	sql, _, _ := strings.Cut(rest, "\n-- name: ")
	return sql
}

// Record puts an object, its stored files, their checksums, copies and events
// on record in one transaction of set-based statements, whatever their number,
// and returns the object's id. Recording the same item again, also after a
// commit whose reply was lost, changes nothing. If the claim has moved on it
// returns ErrLost, if the registry has ErrMoved, and in both cases nothing was
// written.
func (r *Registry) Record(ctx context.Context, rec Recording) (objectID int64, err error) {
	err = Again(func() error {
		return pgx.BeginTxFunc(ctx, r.db, pgx.TxOptions{BeginQuery: beginRecording}, func(tx pgx.Tx) error {
			objectID, err = recordBag(ctx, tx, rec, r.agents)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("record object %q: %w", rec.Object.Identifier, err)
	}
	return objectID, nil
}

// beginRecording has the statements of a small bag planned once for each connection: to plan
// them costs the database more than to run them.
const beginRecording = `BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL jit = off`

// recordBag makes as few statements as it can: of a small bag that is new, six.
func recordBag(ctx context.Context, tx pgx.Tx, rec Recording, agents Agents) (int64, error) {
	objectID, isNew, err := recordObject(ctx, tx, rec.Object)
	if err != nil {
		return 0, err
	}
	said := newTexts(agents)
	files, err := takeFiles(ctx, tx, rec.Files, said)
	if err != nil {
		return 0, err
	}
	args := pgx.NamedArgs{
		"item": rec.Item, "object_id": objectID, "institution_id": rec.Object.InstitutionID,
		"storage_option": rec.Object.StorageOption, "identifier": rec.Object.Identifier, "is_new": isNew,
		"validated_at": rec.Validation.At, "object_facts": said.object(rec, files.count),
	}
	maps.Copy(args, agents.args())
	allNew, err := files.recorded(ctx, args)
	if err != nil {
		return 0, err
	}
	if args["texts"], args["kinds"], err = said.json(); err != nil {
		return 0, err
	}
	statements := [][]string{{"events", "records"}}
	if !allNew || !isNew {
		statements = [][]string{{"replaced"}, {"retire"}, {"digests"}, {"copies"}, {"events", "records", "once"}, {"events", "added"}}
	}
	for _, names := range statements {
		if err := files.run(ctx, args, names...); err != nil {
			return 0, err
		}
	}
	return objectID, Fence(ctx, tx, rec.Item, rec.Token)
}

// Fence refuses what is recorded by a claim that has moved on. FOR UPDATE keeps it
// from moving until we commit; it is taken last, since no heartbeat renews a locked item.
func Fence(ctx context.Context, tx pgx.Tx, item, token int64) error {
	var one int
	err := tx.QueryRow(ctx, `SELECT 1 FROM work_items WHERE id = $1 AND claim_token = $2 AND status = 'Started' FOR UPDATE`, item, token).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrLost
	}
	return err
}

func recordObject(ctx context.Context, tx pgx.Tx, o record.Object) (id int64, isNew bool, err error) {
	err = tx.QueryRow(ctx, statement("object"), pgx.NamedArgs{
		"institution_id": o.InstitutionID, "identifier": o.Identifier, "title": o.Title, "description": o.Description,
		"access": o.Access, "alt_identifier": o.AltIdentifier, "bag_name": o.BagName,
		"bag_group_identifier": o.BagGroupIdentifier, "bagit_profile_identifier": o.BagItProfileIdentifier,
		"source_organization": o.SourceOrganization, "internal_sender_identifier": o.InternalSenderIdentifier,
		"internal_sender_description": o.InternalSenderDescription, "etag": o.ETag, "storage_option": o.StorageOption,
		"tag_encoding": cmp.Or(o.TagEncoding, "UTF-8"), "deletions": o.Deletions,
	}).Scan(&id, &isNew)
	if errors.Is(err, pgx.ErrNoRows) { // the conflicting row is of another institution or storage option, or something was deleted since
		return 0, false, fmt.Errorf("object: %w", ErrMoved)
	}
	if err != nil {
		return 0, false, fmt.Errorf("object: %w", Refusal(err))
	}
	return id, isNew, nil
}

// TimeOrNull is t for a column in which a time that is not known is NULL.
func TimeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
