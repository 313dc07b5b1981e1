package registry

import (
	"cmp"
	"context"
	_ "embed" // the statements of a recording
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
	Object     Object
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
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			objectID, err = record(ctx, tx, rec, r.agents)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("record object %q: %w", rec.Object.Identifier, err)
	}
	return objectID, nil
}

func record(ctx context.Context, tx pgx.Tx, rec Recording, agents Agents) (int64, error) {
	// An item that was lost before we begin is not worth the work; the look that
	// counts is the one before the commit.
	if err := Fence(ctx, tx, rec.Item, rec.Token, ""); err != nil {
		return 0, err
	}
	objectID, isNew, err := recordObject(ctx, tx, rec.Object)
	if err != nil {
		return 0, err
	}
	if err := copyFiles(ctx, tx, rec.Files); err != nil {
		return 0, err
	}
	args := pgx.NamedArgs{
		"item": rec.Item, "object_id": objectID, "institution_id": rec.Object.InstitutionID,
		"storage_option": rec.Object.StorageOption, "identifier": rec.Object.Identifier,
		"access": rec.Object.Access, "is_new": isNew,
		"validated_by": rec.Validation.By, "validator": rec.Validation.Software, "warnings": rec.Validation.Warnings, "found": rec.Validation.Found,
		"validated_at": rec.Validation.At,
	}
	maps.Copy(args, agents.args())
	for _, name := range []string{"files", "renamed", "replaced", "retire", "checksums", "copies", "file events", "object events"} {
		if _, err := tx.Exec(ctx, statement(name), args); err != nil {
			return 0, fmt.Errorf("%s: %w", name, Refusal(err))
		}
		if name == "files" {
			if err := checkMoved(ctx, tx); err != nil {
				return 0, err
			}
		}
	}
	return objectID, Fence(ctx, tx, rec.Item, rec.Token, "FOR UPDATE")
}

// Fence refuses what is recorded by a claim that has moved on. FOR UPDATE keeps it
// from moving until we commit; it is taken last, since no heartbeat renews a locked item.
func Fence(ctx context.Context, tx pgx.Tx, item, token int64, lock string) error {
	var one int
	err := tx.QueryRow(ctx, `SELECT 1 FROM work_items WHERE id = $1 AND claim_token = $2 AND status = 'Started' `+lock, item, token).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrLost
	}
	return err
}

func recordObject(ctx context.Context, tx pgx.Tx, o Object) (id int64, isNew bool, err error) {
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

// copyFiles streams the files into the temporary table by COPY.
func copyFiles(ctx context.Context, tx pgx.Tx, files iter.Seq2[FileRecord, error]) error {
	if _, err := tx.Exec(ctx, statement("table")); err != nil {
		return fmt.Errorf("create the temporary table of the files: %w", err)
	}
	next, stop := iter.Pull2(files)
	defer stop()
	columns := []string{
		"identifier", "uuid", "file_format", "format_puid", "identified_by", "format_name", "format_method", "signature_version",
		"format_reason", "identified_at", "virus_scanner", "not_scanned", "scanned_at", "size", "mod_time",
		"md5", "sha1", "sha256", "sha512", "digested_at", "manifests",
		"targets", "buckets", "keys", "urls", "etags", "stored_at", "verified_at", "verified_by",
	}
	var fileErr error // the server's answer to a COPY that we break off has only its text
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"recording"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		f, err, ok := next()
		if !ok || err != nil {
			fileErr = err
			return nil, err
		}
		return f.row(), nil
	}))
	if fileErr != nil {
		return fmt.Errorf("copy the files: %w", fileErr)
	}
	if err != nil {
		return fmt.Errorf("copy the files: %w", err)
	}
	if _, err := tx.Exec(ctx, `ANALYZE recording`); err != nil {
		return fmt.Errorf("count the files: %w", err)
	}
	return nil
}

func (f FileRecord) row() []any {
	var targets, buckets, keys, urls, etags, by []string
	var stored, verified []time.Time
	for _, c := range f.Copies {
		targets, buckets, keys = append(targets, c.Target), append(buckets, c.Bucket), append(keys, c.Key)
		urls, etags = append(urls, c.URL), append(etags, c.ETag)
		stored, verified = append(stored, c.StoredAt), append(verified, c.VerifiedAt)
		by = append(by, c.VerifiedBy)
	}
	var scanner *string
	if f.Virus.Scanner != "" {
		scanner = &f.Virus.Scanner
	}
	return []any{
		f.Identifier, f.UUID, f.Format.MIME, f.Format.PUID, f.Format.IdentifiedBy, f.Format.Name, f.Format.Method, f.Format.SignatureVersion,
		f.Format.Reason, TimeOrNull(f.Format.At), scanner, f.Virus.Unchecked, TimeOrNull(f.Virus.At), f.Size, TimeOrNull(f.ModTime),
		f.MD5, f.SHA1, f.SHA256, f.SHA512, f.DigestedAt, f.Manifests,
		targets, buckets, keys, urls, etags, stored, verified, by,
	}
}

// TimeOrNull is t for a column in which a time that is not known is NULL.
func TimeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// checkMoved finds files that the registry holds under another uuid or object:
// the statement before has left them without an id.
func checkMoved(ctx context.Context, tx pgx.Tx) error {
	var identifier string
	err := tx.QueryRow(ctx, `SELECT identifier FROM recording WHERE id IS NULL LIMIT 1`).Scan(&identifier)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the files: %w", err)
	}
	return fmt.Errorf("file %q: %w", identifier, ErrMoved)
}
