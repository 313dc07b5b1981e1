package fixity

import (
	"context"
	_ "embed" // of claim.sql
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

const (
	// Few is how many checks of a target in a row may fail for what no copy is
	// to blame for. Then the target is left alone for fixityPause; after that one
	// copy at a time is tried until one can be read. So a provider that is out leaves
	// few copies that every claim would have to pass over.
	Few         = 5
	fixityPause = 5 * time.Minute
)

// A Copy is a copy that someone has claimed in order to check it.
type Copy struct {
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

// A Claim says what to claim.
type Claim struct {
	Worker  string        // who claims
	Targets []string      // of these
	Most    int           // copies
	Days    int           // between two checks, for targets whose policy leaves it open
	Lease   time.Duration // how long they are the worker's unless it is renewed
}

// lockSQL has claims run one after another: each sees what the last one took, and none
// comes back with less than there is. It goes by indexes whatever the planner thinks:
// fixity_checks has few rows when the plan is made, and may have a hundred thousand
// when someone asks for an object.
const lockSQL = `
SELECT pg_advisory_xact_lock(hashtextextended('farol fixity', 0)),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`

// claimSQL walks, of each target, what waits in fixity_checks
// (fixity_checks_waiting) and then what is due, the most overdue first
// (storage_records_fixity), passing over what others have locked: a copy whose file
// is being recorded or deleted right now. Whether a copy is in fixity_checks is asked
// for each by itself (fixity_checks_pkey), so that no plan loses the index's order.
// Of those found, the most overdue are taken, whichever target they are in. What
// waits was announced and counted when it was first taken, or was asked for by a
// person; what is due takes from the allowance.
//
//go:embed claim.sql
var claimSQL string

// Claim claims copies to check: those that someone asked for, those that were
// begun and not ended, and then those that are due, the most overdue first, as long
// as the allowance lasts; none while checks are paused. A copy is under one claim at a time. Of each file whose
// check begins the topic log gets a message.
func (r Records) Claim(ctx context.Context, c Claim) (list []Copy, err error) {
	err = registry.Again(func() error {
		batch := &pgx.Batch{} // one transaction, and nobody can stop in the middle of it
		batch.Queue(lockSQL)
		batch.Queue(claimSQL, pgx.NamedArgs{
			"worker": c.Worker, "targets": c.Targets, "most": c.Most, "days": c.Days, "lease": c.Lease,
			"few": Few, "pause": fixityPause,
		}).Query(func(rows pgx.Rows) (err error) {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Copy])
			return err
		})
		return r.db.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("claim copies to check: %w", err)
	}
	return list, nil
}

// A Hold names a claim on a copy.
type Hold struct{ ID, Token int64 }

// columns are the IDs and tokens of some claims.
func columns(holds []Hold) (ids, tokens []int64) {
	for _, h := range holds {
		ids, tokens = append(ids, h.ID), append(tokens, h.Token)
	}
	return ids, tokens
}

// Keep renews claims for another lease, and returns those that still were the
// caller's.
func (r Records) Keep(ctx context.Context, lease time.Duration, holds ...Hold) (kept []Hold, err error) {
	ids, tokens := columns(holds)
	err = registry.Again(func() error {
		rows, _ := r.db.Query(ctx, `
			WITH ours AS MATERIALIZED ( -- locked in one order, as by who records them
				SELECT c.storage_record_id FROM fixity_checks c JOIN unnest($1::bigint[], $2::bigint[]) AS h (id, token)
					ON c.storage_record_id = h.id AND c.token = h.token AND c.worker <> ''
				ORDER BY c.storage_record_id FOR UPDATE OF c
			)
			UPDATE fixity_checks c SET run_at = now() + $3::interval
			FROM ours WHERE c.storage_record_id = ours.storage_record_id
			RETURNING c.storage_record_id, c.token`, ids, tokens, lease)
		kept, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Hold])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew %d claims on copies: %w", len(holds), err)
	}
	return kept, nil
}

// Release gives claims back: the copies can be claimed at once, without being
// announced or counted again.
func (r Records) Release(ctx context.Context, holds ...Hold) error {
	ids, tokens := columns(holds)
	err := registry.Again(func() error {
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

// Drop ends a claim without a result. A claim that was lost changes
// nothing.
func (r Records) Drop(ctx context.Context, h Hold) error {
	return registry.Do(ctx, r.db, "drop the check of a copy", `DELETE FROM fixity_checks WHERE storage_record_id = $1 AND token = $2 AND worker <> ''`, h.ID, h.Token)
}

// Trouble is why a copy could not be judged.
type Trouble struct {
	Hold

	Error   string
	Most    int           // tries, after which it is tried once a day
	Wait    time.Duration // until the next try; 0 is a minute, doubled with each
	Outage  bool          // it is not the copy's doing, and others of the target would fare no better
	Pause   time.Duration // of the target, if it happens a few times in a row; 0 is five minutes
	Wavered bool          // two reads gave different results
}

// retrySQL counts the failure, and leaves the target alone if it is one of a
// few in a row (fixity_checks_pkey, fixity_policies_pkey).
const retrySQL = `
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

// Retry gives back a copy that could not be judged, to be tried again later,
// and returns how often that has happened. A claim that was lost changes nothing.
func (r Records) Retry(ctx context.Context, t Trouble) (attempts int, err error) {
	pause := fixityPause
	if t.Pause > 0 {
		pause = t.Pause
	}
	err = registry.Again(func() error {
		rows, _ := r.db.Query(ctx, retrySQL, pgx.NamedArgs{
			"id": t.ID, "token": t.Token, "error": t.Error, "wait": t.Wait, "most_tries": t.Most, "few": Few,
			"pause": pause, "outage": t.Outage, "wavered": t.Wavered,
		})
		list, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if len(list) > 0 {
			attempts = list[0]
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postpone the check of a copy: %w", err)
	}
	return attempts, nil
}
