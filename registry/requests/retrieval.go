package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Retrieval is how copies are to be restored from an archive class.
type Retrieval struct {
	About    string // the object or file, as people call it
	Class    string
	Tier     string
	Days     int
	Price    string // US dollars
	Cap      string
	Approved bool          // or it costs no more than the cap
	Poll     time.Duration // between two polls
	Expected *time.Time    // by the table of prices, from when it was asked for; nil if that has no such tier
}

// Retrieval returns how the copies are restored that an item is about.
func (r Records) Retrieval(ctx context.Context, item int64) (Retrieval, error) {
	return registry.One[Retrieval](ctx, r.db, fmt.Sprintf("look up the retrieval of item %d", item), `
		SELECT coalesce('file ' || f.identifier, 'object ' || w.object_identifier) AS about,
			q.storage_class AS class, q.tier, q.days, q.price::text AS price, q.cap::text AS cap, q.price <= q.cap OR q.approved_at IS NOT NULL AS approved,
			coalesce(p.poll, interval '1 hour') AS poll, coalesce(q.approved_at, w.created_at) + p.takes AS expected
		FROM retrievals q JOIN work_items w ON w.id = q.work_item_id
		LEFT JOIN generic_files f ON f.id = w.generic_file_id
		LEFT JOIN retrieval_prices p ON p.storage_class = q.storage_class AND p.tier = q.tier
		WHERE q.work_item_id = $1`, item)
}

// RetrievalTimes reports how much time is between two polls of a retrieval, and how long
// a retrieval takes at the most; 0 if the table of prices does not say.
func (r Records) RetrievalTimes(ctx context.Context, class, tier string) (poll, takes time.Duration, err error) {
	err = r.db.QueryRow(ctx, `SELECT poll, takes FROM retrieval_prices WHERE storage_class = $1 AND tier = $2`, class, tier).Scan(&poll, &takes)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Hour, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look up how long a retrieval takes: %w", err)
	}
	return poll, takes, nil
}

// NoteReadable notes until when the copies of a retrieval can be read.
func (r Records) NoteReadable(ctx context.Context, item int64, until time.Time) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("record until when the copies of item %d can be read", item), `UPDATE retrievals SET readable_until = $2 WHERE work_item_id = $1`, item, registry.TimeOrNull(until))
}

// RequestOf returns what a request is about: both the item that has copies made
// readable, and the one that gives them back then.
func (r Records) RequestOf(ctx context.Context, w record.WorkItem) (q record.RetrievalRequest, err error) {
	if w.GenericFileID != nil {
		err := r.db.QueryRow(ctx, `SELECT identifier FROM generic_files WHERE id = $1`, *w.GenericFileID).Scan(&q.File)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return q, fmt.Errorf("look up the file of item %d: %w", w.ID, registry.Refusal(err))
		}
	}
	if w.Action == "Delete" {
		if err := r.db.QueryRow(ctx, `SELECT coalesce(deletion_item_waits(work_items), '') FROM work_items WHERE id = $1 AND retry`, w.ID).Scan(&q.Waits); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return q, fmt.Errorf("look up when item %d begins: %w", w.ID, registry.Refusal(err))
		}
		return q, nil
	}
	rows, _ := r.db.Query(ctx, `
		SELECT q.storage_class AS class, q.tier, q.days, q.readable_until AS until, q.work_item_id AS item, q.next_item AS next,
			q.price::text AS price, q.cap::text AS cap, q.price <= q.cap OR q.approved_at IS NOT NULL AS approved,
			CASE WHEN q.price <= q.cap OR q.approved_at IS NOT NULL THEN coalesce(q.approved_at, w.created_at) + p.takes END AS expected
		FROM retrievals q JOIN all_work_items w ON w.id = q.work_item_id
		LEFT JOIN retrieval_prices p ON p.storage_class = q.storage_class AND p.tier = q.tier
		WHERE q.work_item_id = $1 OR q.next_item = $1`, w.ID)
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Archive])
	if errors.Is(err, pgx.ErrNoRows) {
		return q, nil
	}
	if err != nil {
		return q, fmt.Errorf("look up from which archive item %d restores: %w", w.ID, registry.Refusal(err))
	}
	q.Archive = &a
	return q, nil
}

// HaveAgain says how what an item was about is had again, as a refusal to change it would;
// blank for a role that may only read.
func (r Records) HaveAgain(ctx context.Context, item int64) (advice registry.Refused, err error) {
	var args *string
	err = r.db.QueryRow(ctx, `SELECT code, args::text, hint FROM again($1)`, item).Scan(&advice.Code, &args, &advice.Text)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42501": // insufficient_privilege
		return registry.Refused{}, nil
	case err != nil:
		return advice, fmt.Errorf("look up the request of item %d: %w", item, registry.Refusal(err))
	}
	if args != nil {
		err = json.Unmarshal([]byte(*args), &advice.Args)
	}
	return advice, err
}
