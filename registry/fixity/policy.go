package fixity

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const policyColumns = `target, provider, mode, interval_days AS days,
	CASE WHEN paused_until > now() THEN nullif(paused_until, 'infinity') END AS paused_until,
	CASE WHEN paused_until > now() THEN pause_reason ELSE '' END AS pause_reason`

// Policies lists the policies of all targets.
func (r Records) Policies(ctx context.Context) ([]record.FixityPolicy, error) {
	return registry.Collect[record.FixityPolicy](ctx, r.db, "list fixity policies", `SELECT `+policyColumns+` FROM fixity_policies ORDER BY target`)
}

// SetPolicy changes a target's policy, which counts at once for all its copies:
// how they are checked, and the days between two checks, 0 for what is configured.
// A pause of the target is over.
func (r Records) SetPolicy(ctx context.Context, target, mode string, days int) (record.FixityPolicy, error) {
	return registry.One[record.FixityPolicy](ctx, r.db, fmt.Sprintf("set the fixity policy of %q", target), `
		UPDATE fixity_policies SET mode = @mode, interval_days = nullif(@days::int, 0), failures = 0, paused_until = '-infinity', pause_reason = ''
		WHERE target = @target
		RETURNING `+policyColumns, pgx.NamedArgs{"target": target, "mode": mode, "days": days})
}

// requestSQL finds the files by generic_files_identifier_key, or those of an
// object by intellectual_objects_identifier_key and generic_files_object. A copy that was
// read a moment ago and found good is left out (fixity_failures_open).
const requestSQL = `
WITH file AS (
	SELECT f.id FROM generic_files f WHERE f.identifier = @identifier
	UNION ALL
	SELECT f.id FROM intellectual_objects o JOIN generic_files f ON f.intellectual_object_id = o.id WHERE o.identifier = @identifier
), copy AS MATERIALIZED (
	SELECT s.id, s.target, s.generic_file_id, NOT @again AND s.last_fixity_at BETWEEN now() - @recent::interval AND now() AND NOT EXISTS (
		SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open') AS recent
	FROM file JOIN storage_records s ON s.generic_file_id = file.id JOIN fixity_policies p ON p.target = s.target
	WHERE s.active AND CASE @target::text WHEN '' THEN p.mode = 'read' ELSE s.target = @target END
), asked AS (
	INSERT INTO fixity_checks AS c (storage_record_id, target, requested)
	SELECT id, target, true FROM copy WHERE recent IS NOT TRUE
	ORDER BY id
	ON CONFLICT (storage_record_id) DO UPDATE SET requested = true, run_at = CASE c.worker WHEN '' THEN now() ELSE c.run_at END
	RETURNING c.storage_record_id AS id, c.worker <> '' AND c.run_at > now() AS in_progress
)
SELECT @identifier::text AS identifier, target, count(DISTINCT generic_file_id) FILTER (WHERE recent IS NOT TRUE) AS files, count(asked.id) AS copies,
	count(*) FILTER (WHERE in_progress) AS in_progress, count(*) FILTER (WHERE recent) AS recent
FROM copy LEFT JOIN asked USING (id)
GROUP BY target ORDER BY target`

// recently is how long a check is recent: who asks twice is answered once.
const recently = time.Minute

// Request has the copies of a file, or of all files of an object, checked
// before all others, whatever the allowance: those in targets that are checked by
// reading, or in the one that is named. It reports how many there are in each target.
// An identifier that nothing active has is ErrNotFound; what has no such copies is
// an empty list. Copies that were found good in the last minute are left out, unless
// they are to be checked again.
func (r Records) Request(ctx context.Context, identifier, target string, again bool) ([]record.FixityRequested, error) {
	there, err := r.Stored(ctx, identifier)
	if err == nil && !there {
		err = fmt.Errorf("look up %q: %w", identifier, registry.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return registry.Collect[record.FixityRequested](ctx, r.db, fmt.Sprintf("ask for a check of %q", identifier), requestSQL,
		pgx.NamedArgs{"identifier": identifier, "target": target, "again": again, "recent": recently})
}

// putForwardSQL leaves out what is known to be bad (fixity_failures_open), and what was requested
// and waits (fixity_checks_pkey): its next try has a time (storage_records_copy).
const putForwardSQL = `
INSERT INTO fixity_checks AS c (storage_record_id, target, requested)
SELECT s.id, s.target, true FROM storage_records s
WHERE s.target = $1 AND s.key = ANY ($2::text[]) AND s.active
  AND NOT EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')
ORDER BY s.id
ON CONFLICT (storage_record_id) DO UPDATE SET requested = true, run_at = CASE c.worker WHEN '' THEN now() ELSE c.run_at END
	WHERE NOT c.requested`

// PutForward has the copies that a target has under some keys checked before all others, as
// [Records.Request] does for a person, and returns how many these are.
func (r Records) PutForward(ctx context.Context, target string, keys []string) (n int64, err error) {
	err = registry.Again(func() error {
		tag, err := r.db.Exec(ctx, putForwardSQL, target, keys)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("put %d copies in %s forward for a check: %w", len(keys), target, err)
	}
	return n, nil
}

// Stored reports whether there is an active file or object with an identifier.
func (r Records) Stored(ctx context.Context, identifier string) (bool, error) {
	return registry.Value[bool](ctx, r.db, fmt.Sprintf("look up %q", identifier), `
		SELECT EXISTS (SELECT FROM generic_files WHERE identifier = $1 AND state = 'A')
			OR EXISTS (SELECT FROM intellectual_objects WHERE identifier = $1 AND state = 'A')`, identifier)
}

// A RecordedCopy is a copy as it is on record, with the digests that its bytes must
// have.
type RecordedCopy struct {
	ID      int64
	File    string // identifier
	Bucket  string
	Key     string
	Digests map[string]string // by algorithm, in lower-case hex
}

// CopiesByKey returns the copies that a target has under some keys
// (storage_records_copy, checksums_generic_file_id_algorithm_digest_key).
func (r Records) CopiesByKey(ctx context.Context, target string, keys []string) ([]RecordedCopy, error) {
	return registry.Collect[RecordedCopy](ctx, r.db, fmt.Sprintf("look up %d copies in %s", len(keys), target), `
		SELECT s.id, (SELECT f.identifier FROM generic_files f WHERE f.id = s.generic_file_id) AS file, s.bucket, s.key, coalesce((
			SELECT jsonb_object_agg(k.algorithm, k.digest) FROM (
				SELECT DISTINCT ON (algorithm) algorithm, digest FROM checksums
				WHERE generic_file_id = s.generic_file_id ORDER BY algorithm, datetime DESC) k), '{}') AS digests
		FROM storage_records s WHERE s.target = $1 AND s.key = ANY ($2) AND s.active`, target, keys)
}
