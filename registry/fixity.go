package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// FixityFew is how many checks of a target in a row may fail for what no copy is
	// to blame for. Then the target is left alone for fixityPause; after that one
	// copy at a time is tried until one can be read. So a provider that is out leaves
	// few copies that every claim would have to pass over.
	FixityFew   = 5
	fixityPause = 5 * time.Minute
)

// A FixityCopy is a copy that somebody has claimed in order to check it.
type FixityCopy struct {
	ID         int64 // of its storage record
	Token      int64 // of the claim
	Attempts   int   // that failed before
	Requested  bool  // by a person
	FileID     int64
	Identifier string // of the file
	Target     string
	Bucket     string
	Key        string
	URL        string `db:"url"`
	Size       int64  // on record
	SHA256     string // on record, in lower-case hex; "" if there is none
}

// A FixityClaim says what to claim.
type FixityClaim struct {
	Worker  string        // who claims
	Targets []string      // of these
	Most    int           // copies
	Days    int           // between two checks, for targets whose policy leaves it open
	Lease   time.Duration // how long they are the worker's unless it is renewed
}

// lockFixitySQL has claims take turns: each sees what the last one took, and none
// comes back with less than there is. It goes by indexes whatever the planner thinks:
// fixity_checks has few rows when the plan is made, and may have a hundred thousand
// when somebody asks for an object.
const lockFixitySQL = `
SELECT pg_advisory_xact_lock(hashtextextended('farol fixity', 0)),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

// claimFixitySQL walks, of each target, what waits in fixity_checks
// (fixity_checks_waiting) and then what is due, the most overdue first
// (storage_records_fixity), passing over what others have locked: a copy whose file
// is being recorded or deleted right now. Whether a copy is in fixity_checks is asked
// for each by itself (fixity_checks_pkey), so that no plan loses the index's order.
// Of those found, the most overdue are taken, whichever target they are in. What
// waits was announced and counted when it was first taken, or was asked for by a
// person; what is due takes from the allowance.
const claimFixitySQL = `
WITH target AS MATERIALIZED (
	SELECT p.target, p.mode = 'read' AS reads, now() - make_interval(days => coalesce(p.interval_days, @days::int)) AS due,
		CASE WHEN p.failures < @few::int THEN @most::int ELSE 1 END AS most
	FROM fixity_policies p
	WHERE p.target = ANY (@targets) AND p.paused_until <= now() AND NOT (SELECT paused FROM fixity_feed)
), waiting AS MATERIALIZED (
	SELECT w.*, t.target, t.most FROM target t CROSS JOIN LATERAL (
		SELECT c.storage_record_id AS id, c.requested, c.run_at, c.token IS NULL AS is_new
		FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
		WHERE c.target = t.target AND c.run_at <= now() AND (c.requested OR t.reads) AND s.active
		ORDER BY c.requested DESC, c.run_at
		LIMIT t.most
		FOR NO KEY UPDATE OF s SKIP LOCKED
	) w
), overdue AS MATERIALIZED (
	SELECT d.*, t.target, t.most FROM target t CROSS JOIN LATERAL (
		SELECT s.id, t.due - s.fixity_from AS late
		FROM storage_records s
		WHERE s.target = t.target AND s.active AND s.fixity_from <= t.due AND t.reads
		  AND (SELECT c.run_at FROM fixity_checks c WHERE c.storage_record_id = s.id) IS NULL
		ORDER BY s.fixity_from, s.id
		LIMIT least(t.most, (SELECT allowance FROM fixity_feed))
		FOR NO KEY UPDATE OF s SKIP LOCKED
	) d
), allowed AS MATERIALIZED (
	SELECT * FROM overdue ORDER BY late DESC, id LIMIT (SELECT allowance FROM fixity_feed)
), found AS MATERIALIZED (
	SELECT *, row_number() OVER (PARTITION BY target ORDER BY rank, late DESC, run_at, id) AS nth FROM (
		SELECT id, target, most, CASE WHEN requested THEN 0 ELSE 1 END AS rank, interval '0' AS late, run_at, is_new FROM waiting
		UNION ALL
		SELECT id, target, most, 2, late, NULL, true FROM allowed
	) f
), chosen AS MATERIALIZED (
	SELECT * FROM found WHERE nth <= most ORDER BY rank, late DESC, run_at, id LIMIT @most
), taken AS (
	INSERT INTO fixity_checks AS c (storage_record_id, target, token, worker, run_at)
	SELECT id, target, nextval('fixity_tokens'), @worker, now() + @lease::interval FROM chosen
	ON CONFLICT (storage_record_id) DO UPDATE SET token = excluded.token, worker = excluded.worker, run_at = excluded.run_at
		WHERE c.run_at <= now()
	RETURNING c.storage_record_id AS id, c.target, c.token, c.attempts, xmax = 0 AS counts
), tried AS (
	UPDATE fixity_policies p SET paused_until = now() + @pause::interval
	WHERE p.failures >= @few AND p.target IN (SELECT target FROM taken)
), spent AS (
	UPDATE fixity_feed SET
		allowance  = greatest(allowance - (SELECT count(*) FROM taken WHERE counts), 0),
		drained_at = CASE WHEN drained THEN now() ELSE drained_at END
	FROM (SELECT (SELECT count(*) FROM overdue) < least(@most, (SELECT allowance FROM fixity_feed)) AND NOT (SELECT paused FROM fixity_feed) AS drained) d
	WHERE EXISTS (SELECT FROM taken WHERE counts)
	   OR drained AND coalesce(drained_at, '-infinity') < now() - interval '10 seconds'
), announced AS (
	INSERT INTO topic_messages (topic, body)
	SELECT DISTINCT 'fixity_check', s.generic_file_id::text
	FROM taken t JOIN chosen c USING (id) JOIN storage_records s USING (id) WHERE c.is_new
)
SELECT t.id, t.token, t.attempts, c.rank = 0 AS requested, f.id AS file_id, f.identifier, s.target, s.bucket, s.key, s.url, f.size,
	coalesce((SELECT k.digest FROM checksums k WHERE k.generic_file_id = f.id AND k.algorithm = 'sha256'
		ORDER BY k.datetime DESC LIMIT 1), '') AS sha256
FROM taken t
JOIN chosen c USING (id)
JOIN storage_records s USING (id)
JOIN generic_files f ON f.id = s.generic_file_id
ORDER BY c.rank, c.late DESC, c.run_at, t.id`

// ClaimFixity claims copies to check: those that somebody asked for, those that were
// begun and not ended, and then those that are due, the most overdue first, as long
// as the allowance lasts; none while checks are paused. A copy is under one claim at a time. Of each file whose
// check begins the topic log is told.
func (r *Registry) ClaimFixity(ctx context.Context, c FixityClaim) (list []FixityCopy, err error) {
	err = Again(func() error {
		batch := &pgx.Batch{} // one transaction, and nobody can stop in the middle of it
		batch.Queue(lockFixitySQL)
		batch.Queue(claimFixitySQL, pgx.NamedArgs{
			"worker": c.Worker, "targets": c.Targets, "most": c.Most, "days": c.Days, "lease": c.Lease,
			"few": FixityFew, "pause": fixityPause,
		}).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByName[FixityCopy])
			return err
		})
		return r.db.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("claim copies to check: %w", err)
	}
	return list, nil
}

// A FixityHold names a claim on a copy.
type FixityHold struct{ ID, Token int64 }

// columns are the IDs and tokens of some claims.
func columns(holds []FixityHold) (ids, tokens []int64) {
	for _, h := range holds {
		ids, tokens = append(ids, h.ID), append(tokens, h.Token)
	}
	return ids, tokens
}

// KeepFixity renews claims for another lease, and returns those that still were the
// caller's.
func (r *Registry) KeepFixity(ctx context.Context, lease time.Duration, holds ...FixityHold) (kept []FixityHold, err error) {
	ids, tokens := columns(holds)
	err = Again(func() error {
		rows, _ := r.db.Query(ctx, `
			WITH ours AS MATERIALIZED ( -- locked in one order, as by who records them
				SELECT c.storage_record_id FROM fixity_checks c JOIN unnest($1::bigint[], $2::bigint[]) AS h (id, token)
					ON c.storage_record_id = h.id AND c.token = h.token AND c.worker <> ''
				ORDER BY c.storage_record_id FOR UPDATE OF c
			)
			UPDATE fixity_checks c SET run_at = now() + $3::interval
			FROM ours WHERE c.storage_record_id = ours.storage_record_id
			RETURNING c.storage_record_id, c.token`, ids, tokens, lease)
		kept, err = pgx.CollectRows(rows, pgx.RowToStructByPos[FixityHold])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d claims on copies: %w", len(holds), err)
	}
	return kept, nil
}

// ReleaseFixity gives claims back: the copies can be claimed at once, without being
// announced or counted again.
func (r *Registry) ReleaseFixity(ctx context.Context, holds ...FixityHold) error {
	ids, tokens := columns(holds)
	err := Again(func() error {
		_, err := r.db.Exec(ctx, `
			UPDATE fixity_checks c SET run_at = now(), worker = ''
			FROM unnest($1::bigint[], $2::bigint[]) AS h (id, token)
			WHERE c.storage_record_id = h.id AND c.token = h.token`, ids, tokens)
		return err
	})
	if err != nil {
		return fmt.Errorf("release %d claims on copies: %w", len(holds), err)
	}
	return nil
}

// DropFixity ends a claim of which nothing is said. A claim that was lost changes
// nothing.
func (r *Registry) DropFixity(ctx context.Context, h FixityHold) error {
	_, err := r.db.Exec(ctx, `DELETE FROM fixity_checks WHERE storage_record_id = $1 AND token = $2 AND worker <> ''`, h.ID, h.Token)
	if err != nil {
		return fmt.Errorf("drop the check of a copy: %w", err)
	}
	return nil
}

// FixityTrouble is why a copy could not be judged.
type FixityTrouble struct {
	FixityHold

	Error   string
	Most    int           // tries, after which it is tried once a day
	Wait    time.Duration // until the next try; 0 is a minute, doubled with each
	Outage  bool          // it is not the copy's doing, and others of the target would fare no better
	Pause   time.Duration // of the target, if it happens a few times in a row; 0 is five minutes
	Wavered bool          // it was read twice, with two results
}

// retryFixitySQL counts the failure, and leaves the target alone if it is one of a
// few in a row (fixity_checks_pkey, fixity_policies_pkey).
const retryFixitySQL = `
WITH failed AS (
	UPDATE fixity_checks SET
		attempts = attempts + 1,
		worker   = '',
		error    = left(@error, 2000),
		run_at   = now() + CASE
			WHEN @wait::interval > '0' THEN @wait
			WHEN attempts + 1 >= @most_tries::int THEN interval '1 day'
			ELSE least(interval '1 minute' * (2 ^ least(attempts, 20)), interval '1 day') END
	WHERE storage_record_id = @id AND token = @token AND worker <> ''
	RETURNING target, attempts
), paused AS (
	UPDATE fixity_policies p SET
		failures     = p.failures + 1,
		paused_until = CASE WHEN p.failures + 1 >= @few::int THEN now() + @pause::interval ELSE p.paused_until END,
		pause_reason = CASE WHEN p.failures + 1 >= @few THEN left(@error, 2000) ELSE p.pause_reason END
	FROM failed WHERE p.target = failed.target AND @outage
), noted AS (
	INSERT INTO fixity_done AS d (target, minute, wavered)
	SELECT target, date_trunc('minute', now()), 1 FROM failed WHERE @wavered
	ON CONFLICT (target, minute) DO UPDATE SET wavered = d.wavered + 1
)
SELECT attempts FROM failed`

// RetryFixity gives back a copy that could not be judged, to be tried again later,
// and returns how often that has happened. A claim that was lost changes nothing.
func (r *Registry) RetryFixity(ctx context.Context, t FixityTrouble) (attempts int, err error) {
	pause := fixityPause
	if t.Pause > 0 {
		pause = t.Pause
	}
	err = Again(func() error {
		rows, _ := r.db.Query(ctx, retryFixitySQL, pgx.NamedArgs{
			"id": t.ID, "token": t.Token, "error": t.Error, "wait": t.Wait, "most_tries": t.Most, "few": FixityFew,
			"pause": pause, "outage": t.Outage, "wavered": t.Wavered,
		})
		list, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if len(list) > 0 {
			attempts = list[0]
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("put off the check of a copy: %w", err)
	}
	return attempts, nil
}

// FeedFixity says how many copies may be taken up from now on until it is called
// again, every so often. What was left of the last time is lost; it is returned.
func (r *Registry) FeedFixity(ctx context.Context, n int, every time.Duration) (left int64, err error) {
	err = r.db.QueryRow(ctx, `
		WITH was AS MATERIALIZED (SELECT allowance FROM fixity_feed)
		UPDATE fixity_feed SET allowance = $1, fed = $1, every = $2, fed_at = now()
		RETURNING (SELECT allowance FROM was)`, n, every).Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("allow %d checks of copies: %w", n, err)
	}
	if _, err := r.db.Exec(ctx, `DELETE FROM fixity_done WHERE minute < now() - interval '8 days'`); err != nil {
		return left, fmt.Errorf("clear away old counts of checks: %w", err)
	}
	return left, nil
}
