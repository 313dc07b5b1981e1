package fixity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ErrHeld says that another worker or person is repairing a copy.
var ErrHeld = errors.New("another worker or person is repairing it")

const badCopyColumns = `failure, file, institution, target, provider, url, problem, algorithm, expected, found, found_at, seen_at, quarantined_as`

// BadCopies lists up to n bad copies behind a failure, in the order of their
// failures: those of a file, of all files of an object, or any with "". It lists
// only those that have been known for as long as known says.
func (r Records) BadCopies(ctx context.Context, identifier string, known time.Duration, after int64, n int) ([]record.FixityBadCopy, error) {
	return registry.Collect[record.FixityBadCopy](ctx, r.db, "list bad copies", `
		SELECT `+badCopyColumns+` FROM bad_copies
		WHERE failure > @after AND noted_at <= now() - @known::interval
		  AND (@identifier = '' OR file = @identifier OR starts_with(file, @identifier || '/') AND EXISTS (
			SELECT FROM intellectual_objects o WHERE o.identifier = @identifier))
		ORDER BY failure LIMIT @n`,
		pgx.NamedArgs{"identifier": identifier, "known": known, "after": after, "n": n})
}

// BadFiles returns the SHA-256 on record of an object's files that have a copy known
// to be bad, by their identifiers (fixity_failures_open).
func (r Records) BadFiles(ctx context.Context, objectID int64) (map[string]string, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT f.identifier, coalesce((SELECT c.digest FROM checksums c WHERE c.generic_file_id = f.id AND c.algorithm = 'sha256'
			ORDER BY c.datetime DESC LIMIT 1), '')
		FROM bad_copies b JOIN generic_files f ON f.id = b.generic_file_id
		WHERE f.intellectual_object_id = $1`, objectID)
	bad := map[string]string{}
	var identifier, sum string
	_, err := pgx.ForEachRow(rows, []any{&identifier, &sum}, func() error {
		bad[identifier] = sum
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list bad files of object %d: %w", objectID, err)
	}
	return bad, nil
}

// Repair is a bad copy in the hands of who repairs it.
type Repair struct {
	Hold
	record.FixityBadCopy

	Bucket       string // of the bad copy
	Key          string
	Object       string // identifier
	Path         string // in the bag
	Size         int64
	Format       string // MIME type
	MD5          string `db:"md5"`    // on record
	SHA256       string `db:"sha256"` // likewise
	RepairedFrom string // URL of the copy by which someone began to replace it, and did not come to record that
	Others       []record.FixityOtherCopy
}

// holdRepairSQL takes a bad copy that nobody is checking or repairing.
const holdRepairSQL = `
INSERT INTO fixity_checks AS c (storage_record_id, target, token, worker, run_at)
SELECT b.storage_record_id, b.target, nextval('fixity_tokens'), @worker, now() + @lease::interval FROM bad_copies b WHERE b.failure = @failure
ON CONFLICT (storage_record_id) DO UPDATE SET token = excluded.token, worker = excluded.worker, run_at = excluded.run_at
	WHERE c.worker = '' OR c.run_at <= now()
RETURNING storage_record_id, token`

const repairSQL = `
SELECT b.failure, b.file, b.institution, b.target, b.provider, b.url, b.problem, b.algorithm, b.expected, b.found, b.found_at, b.seen_at,
	b.quarantined_as, r.repaired_from, s.id, 0::bigint AS token, s.bucket, s.key, o.identifier AS object,
	substr(f.identifier, length(o.identifier) + 2) AS path, f.size, f.file_format AS format,
	coalesce((SELECT digest FROM checksums WHERE generic_file_id = f.id AND algorithm = 'md5' ORDER BY datetime DESC LIMIT 1), '') AS md5,
	coalesce((SELECT digest FROM checksums WHERE generic_file_id = f.id AND algorithm = 'sha256' ORDER BY datetime DESC LIMIT 1), '') AS sha256,
	coalesce((SELECT jsonb_agg(jsonb_build_object('id', n.id, 'target', n.target, 'bucket', n.bucket, 'key', n.key, 'url', n.url, 'etag', n.etag, 'stored_at', n.stored_at,
			'bad',
			EXISTS (SELECT FROM fixity_failures e WHERE e.storage_record_id = n.id AND e.state = 'open')) ORDER BY n.id)
		FROM storage_records n WHERE n.generic_file_id = f.id AND n.id <> s.id), '[]') AS others
FROM bad_copies b
JOIN fixity_failures r ON r.id = b.failure
JOIN storage_records s ON s.id = b.storage_record_id
JOIN generic_files f ON f.id = s.generic_file_id
JOIN intellectual_objects o ON o.id = f.intellectual_object_id
WHERE b.failure = $1`

// HoldRepair takes a bad copy, as a claim for a check does: until the lease lapses nobody
// else checks or repairs it. A copy that is no longer bad is ErrNotFound; one that is being
// checked or repaired is ErrHeld.
func (r Records) HoldRepair(ctx context.Context, worker string, failure int64, lease time.Duration) (w Repair, err error) {
	var hold Hold
	err = registry.Again(func() error {
		return r.db.QueryRow(ctx, holdRepairSQL, pgx.NamedArgs{"worker": worker, "failure": failure, "lease": lease}).Scan(&hold.ID, &hold.Token)
	})
	none := errors.Is(err, pgx.ErrNoRows)
	if err == nil || none {
		w, err = r.Repair(ctx, failure)
		if err == nil && none {
			err = ErrHeld
		}
	}
	if err != nil {
		return w, fmt.Errorf("claim bad copy %d: %w", failure, err)
	}
	w.Hold = hold
	return w, nil
}

// Repair reports what there is to know of a bad copy, without taking it.
func (r Records) Repair(ctx context.Context, failure int64) (Repair, error) {
	return registry.One[Repair](ctx, r.db, fmt.Sprintf("look up bad copy %d", failure), repairSQL, failure)
}

// NoteRepair puts on record where the bad bytes are kept, and by which copy they are
// about to be replaced, before the first byte is. It is the last check: if the claim
// was lost, or the copy is none any more, it is ErrLost, and nothing may be written.
func (r Records) NoteRepair(ctx context.Context, w Repair, quarantinedAs, from string) error {
	tag, err := r.db.Exec(ctx, `
		UPDATE fixity_failures b SET quarantined_as = coalesce(nullif($4, ''), b.quarantined_as), repaired_from = $5
		FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
		WHERE b.id = $1 AND b.state = 'open' AND b.storage_record_id = $2 AND c.storage_record_id = $2 AND c.token = $3 AND c.worker <> ''
		  AND c.run_at > now() AND s.active`, w.Failure, w.ID, w.Token, quarantinedAs, from)
	if err != nil {
		return fmt.Errorf("record the repair of bad copy %d: %w", w.Failure, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("record the repair of bad copy %d: %w", w.Failure, registry.ErrLost)
	}
	return nil
}

// Repaired says that a bad copy was replaced by a verified one.
type Repaired struct {
	Repair

	ETag     string
	StoredAt time.Time // by the provider's clock
}

// recordRepairSQL ends a failure, and the claim with it.
const recordRepairSQL = `
WITH ended AS (
	DELETE FROM fixity_checks WHERE storage_record_id = @id AND token = @token AND worker <> '' RETURNING storage_record_id AS id
), failure AS (
	UPDATE fixity_failures b SET state = 'repaired', closed_at = now()
	FROM ended e WHERE b.id = @failure AND b.storage_record_id = e.id AND b.state = 'open'
	RETURNING b.storage_record_id AS id, b.problem, b.quarantined_as, b.repaired_from
), copy AS (
	UPDATE storage_records s SET etag = @etag, stored_at = @stored_at, verified_at = now(), verified_by = 'read', last_fixity_at = now(),
		fixity_since = NULL, updated_at = now()
	FROM failure WHERE s.id = failure.id
	RETURNING s.id, s.generic_file_id, s.url
), file AS (
	UPDATE generic_files f SET last_fixity_check = now(), updated_at = now()
	FROM copy WHERE f.id = copy.generic_file_id
	RETURNING f.id, f.institution_id, f.intellectual_object_id
), event AS (
	INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(@failure, copy.url, 'replication', copy.url), f.institution_id, f.intellectual_object_id, f.id, 'replication', now(),
		'Replaced a ' || CASE failure.problem WHEN 'missing' THEN 'missing' ELSE 'damaged' END || ' copy from a verified one', 'Success', copy.url,
		'Copied from ' || failure.repaired_from || CASE failure.quarantined_as WHEN '' THEN '. There were no bytes to keep.'
			ELSE '. The damaged bytes are at ' || failure.quarantined_as || '.' END,
		@copy_object, @copy_agent
	FROM copy JOIN failure USING (id) CROSS JOIN file f
)
SELECT id FROM copy`

// RecordRepair puts on record that a bad copy is good again: the event, the copy, and
// the end of the failure, in one transaction. If the claim was lost, or the copy is
// on record no more, it is ErrLost, and nothing was written.
func (r Records) RecordRepair(ctx context.Context, d Repaired) error {
	args := r.registry.EventArgs()
	args["id"], args["token"], args["failure"], args["etag"], args["stored_at"] = d.ID, d.Token, d.Failure, d.ETag, d.StoredAt
	err := registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			var id int64
			err := tx.QueryRow(ctx, `
				SELECT s.id FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
				WHERE s.id = $1 AND s.key = $2 AND s.active FOR NO KEY UPDATE OF f, s`, d.ID, d.Key).Scan(&id)
			if err == nil {
				err = tx.QueryRow(ctx, recordRepairSQL, args).Scan(&id)
			}
			if errors.Is(err, pgx.ErrNoRows) {
				return registry.ErrLost
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("record the repair of bad copy %d: %w", d.Failure, err)
	}
	return nil
}
