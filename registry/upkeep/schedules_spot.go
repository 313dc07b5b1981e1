package upkeep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// SpotInstitution is an institution whose objects are restored at random.
type SpotInstitution struct {
	ID         int64
	Identifier string
	Days       int // between two
}

// dueForSpotSQL takes half a day too early for on time: the job is a moment later
// every day, and would pass over every other. One that was cancelled has shown
// nothing.
const dueForSpotSQL = `
SELECT i.id, i.identifier, i.spot_restore_days AS days FROM institutions i
WHERE i.state = 'A' AND i.spot_restore_days > 0 AND ($1::bigint = 0 OR i.id = $1) AND NOT EXISTS (
	SELECT FROM spot_restores s -- spot_restores_institution
	WHERE s.institution_id = i.id AND s.outcome IS DISTINCT FROM 'cancelled'
	  AND (s.ended_at IS NULL OR s.requested_at > now() - i.spot_restore_days * interval '1 day' + interval '12 hours'))
ORDER BY i.id`

// DueForSpotRestore lists the active institutions whose last spot restoration is as
// long ago as theirs are apart.
func (r Records) DueForSpotRestore(ctx context.Context) ([]SpotInstitution, error) {
	return registry.Collect[SpotInstitution](ctx, r.db, "list institutions that are due for a spot restoration", dueForSpotSQL, 0)
}

// SpotChoice says what an object may be drawn from.
type SpotChoice struct {
	Institution SpotInstitution
	Options     []string // storage options that can be read at once
	Least, Most int64    // bytes of its files
}

// drawSQL looks at so many objects of an institution from one on, and at one after
// the other of these, in no order, until one may be drawn.
const drawSQL = `
WITH page AS MATERIALIZED ( -- intellectual_objects_drawn
	SELECT o.id, o.identifier, o.storage_option, o.deleted_by_item FROM intellectual_objects o
	WHERE o.institution_id = @institution AND o.state = 'A' AND o.id >= @from
	ORDER BY o.id
	LIMIT @n
), drawn AS (
	SELECT p.identifier FROM (
		SELECT * FROM page
		WHERE deleted_by_item IS NULL AND storage_option = ANY (@options) AND (@again OR NOT EXISTS (
			SELECT FROM spot_restores s -- spot_restores_object
			WHERE s.intellectual_object_id = page.id AND s.requested_at > now() - @days * interval '1 day'))
		ORDER BY random()
	) p
	CROSS JOIN LATERAL (SELECT h.bytes FROM object_holdings h WHERE h.intellectual_object_id = p.id AND h.files > 0 OFFSET 0) h
	WHERE h.bytes BETWEEN @least AND @most AND request_rival(p.identifier, NULL, 0) IS NULL
		AND NOT EXISTS (SELECT FROM generic_files f WHERE f.intellectual_object_id = p.id AND f.state = 'A' AND f.deleted_by_item IS NOT NULL) -- generic_files_deleting
	LIMIT 1
)
SELECT (SELECT count(*) FROM page) AS seen, coalesce((SELECT max(id) FROM page), 0) AS last, coalesce((SELECT identifier FROM drawn), '') AS identifier`

const drawRangeSQL = `
SELECT
	(SELECT min(id) FROM intellectual_objects WHERE institution_id = $1 AND state = 'A'), -- intellectual_objects_drawn
	(SELECT max(id) FROM intellectual_objects WHERE institution_id = $1 AND state = 'A'),
	EXISTS (
		SELECT FROM spot_restores s -- spot_restores_institution
		WHERE s.institution_id = $1 AND s.requested_at > now() - $2 * interval '1 day')`

// Draw draws an object of an institution at random: not one of the last period, if
// there is another. It is "" if there is none that may be drawn. It looks at some
// pages anywhere among the institution's objects, and at all of them only where
// these have nothing.
func (r Records) Draw(ctx context.Context, c SpotChoice) (object string, err error) {
	var lowest, highest *int64
	var lately bool
	if err := r.db.QueryRow(ctx, drawRangeSQL, c.Institution.ID, c.Institution.Days).Scan(&lowest, &highest, &lately); err != nil {
		return "", fmt.Errorf("choose a random object of %s: %w", c.Institution.Identifier, err)
	}
	if lowest == nil {
		return "", nil
	}
	object, err = r.drawFrom(ctx, c, *lowest, *highest, false)
	if err == nil && object == "" && lately {
		object, err = r.drawFrom(ctx, c, *lowest, *highest, true)
	}
	return object, err
}

func (r Records) drawFrom(ctx context.Context, c SpotChoice, lowest, highest int64, again bool) (object string, err error) {
	const draws, page, step = 8, 100, 1000
	for range draws {
		if _, object, err = r.drawPage(ctx, c, lowest+rand.N(highest-lowest+1), page, again); err != nil || object != "" {
			return object, err
		}
	}
	for from := lowest; ; {
		last, object, err := r.drawPage(ctx, c, from, step, again)
		if err != nil || object != "" || last == 0 {
			return object, err
		}
		from = last + 1
	}
}

// drawPage returns the last object that it looked at, or 0 if there are no more.
func (r Records) drawPage(ctx context.Context, c SpotChoice, from int64, n int, again bool) (last int64, object string, err error) {
	var seen int
	err = r.db.QueryRow(ctx, drawSQL, pgx.NamedArgs{
		"institution": c.Institution.ID, "days": c.Institution.Days, "options": c.Options, "least": c.Least, "most": c.Most,
		"from": from, "n": n, "again": again,
	}).Scan(&seen, &last, &object)
	if err != nil {
		return 0, "", fmt.Errorf("choose a random object of %s: %w", c.Institution.Identifier, err)
	}
	if seen < n {
		last = 0
	}
	return last, object, nil
}

// RequestSpotRestore puts the restoration of an object that was drawn into the
// queue, for the archive itself. The item is 0 if the institution is not due any
// more; it is ErrRefused if the object cannot be restored now.
func (r Records) RequestSpotRestore(ctx context.Context, institution int64, object string, priority int) (item int64, err error) {
	err = registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) (err error) {
			item, err = r.requestSpotRestore(ctx, tx, institution, object, priority)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("queue the spot restoration of %q: %w", object, registry.Refusal(err))
	}
	return item, nil
}

func (r Records) requestSpotRestore(ctx context.Context, tx pgx.Tx, institution int64, object string, priority int) (item int64, err error) {
	// Those who come at once run one after another here, and the second sees what the first did.
	if _, err := tx.Exec(ctx, `SELECT FROM institutions WHERE id = $1 FOR NO KEY UPDATE`, institution); err != nil {
		return 0, err
	}
	rows, _ := tx.Query(ctx, dueForSpotSQL, institution)
	if _, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[SpotInstitution]); errors.Is(err, pgx.ErrNoRows) {
		return 0, nil // someone was quicker
	} else if err != nil {
		return 0, err
	}
	item, _, err = requests.In(r.registry).RequestRestorationIn(ctx, tx, requests.RestorationRequest{Identifier: object, Priority: priority})
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO spot_restores (institution_id, work_item_id, intellectual_object_id)
		SELECT institution_id, id, intellectual_object_id FROM work_items WHERE id = $1`, item)
	return item, err
}
