package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// ItemState is what of an item decides whether others still need its things.
type ItemState struct {
	ID               int64
	Action           registry.Action
	Stage            registry.Stage
	Status           registry.Status
	Live             bool // Pending or Started: it will be worked on
	Token            int64
	ErrorCode        string
	Rested           time.Duration // since it last changed, by the database's clock
	InstitutionID    int64
	ObjectIdentifier string
	Name             string
	Bucket           string
	ETag             string `db:"etag"`
	BagDate          time.Time
	StorageOption    string // "" if it was never learnt
	Stored           bool   // it has been at Store, so that copies of its files may be there
	Noted            bool   // what copies it may have made is in unrecorded_copies
}

// itemStatesSQL looks items up by their IDs, in the queue and in its archive
// (work_items_pkey, work_items_archive_pkey, work_item_attempts_pkey).
const itemStatesSQL = `
SELECT w.id, w.action, w.stage, w.status, w.retry AS live, w.claim_token AS token, w.error_code,
	greatest(now() - w.updated_at, interval '0') AS rested, w.institution_id, w.object_identifier, w.name, w.bucket, w.etag, w.bag_date,
	coalesce(w.storage_option, '') AS storage_option,
	EXISTS (SELECT FROM attempts a WHERE a.work_item_id = w.id AND a.stage = 'Store') AS stored,
	EXISTS (SELECT FROM unrecorded_copies u WHERE u.work_item_id = w.id) AS noted
FROM all_work_items w WHERE w.id = ANY ($1)`

// ItemStates returns the states of items by their IDs; an item that does not exist
// has none.
func (r Records) ItemStates(ctx context.Context, ids []int64) (map[int64]ItemState, error) {
	states := map[int64]ItemState{}
	rows, _ := r.db.Query(ctx, itemStatesSQL, ids)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[ItemState])
	if err != nil {
		return nil, fmt.Errorf("look up %d items: %w", len(ids), err)
	}
	for _, s := range list {
		states[s.ID] = s
	}
	return states, nil
}

// WhileAlone calls do while an item stays as it is: it has ended, nobody has
// changed it since this state was read, no other item of its object is live, and
// none becomes so before do returns. If that does not hold, do is not called and
// alone is false. do has to be short: anyone who would requeue the item waits.
func (r Records) WhileAlone(ctx context.Context, s ItemState, do func(ctx context.Context) error) (alone bool, err error) {
	const most = 20 * time.Second // a transaction that is idle for longer is ended
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		// The item first, then its object, as in lock_items. One of the archive has no
		// row to lock, and nobody can change it.
		err := tx.QueryRow(ctx, `SELECT true FROM work_items WHERE id = $1 AND claim_token = $2 AND NOT retry FOR UPDATE`,
			s.ID, s.Token).Scan(&alone)
		if errors.Is(err, pgx.ErrNoRows) {
			err = tx.QueryRow(ctx, `SELECT true FROM work_items_archive WHERE id = $1`, s.ID).Scan(&alone)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT lock_object($1)`, s.ObjectIdentifier); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM uploads_in_work WHERE object_identifier = $1)`, s.ObjectIdentifier).Scan(&alone)
		if err != nil || !alone {
			return err
		}
		if err := do(ctx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM objects_in_work WHERE object_identifier = $1`, s.ObjectIdentifier)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("lock item %d: %w", s.ID, err)
	}
	return alone, nil
}

// StillEnded reports whether an item is as it was when its state was read.
func (r Records) StillEnded(ctx context.Context, s ItemState) (bool, error) {
	var same bool
	err := r.db.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM work_items WHERE id = $1 AND (retry OR claim_token <> $2))`,
		s.ID, s.Token).Scan(&same)
	if err != nil {
		return false, fmt.Errorf("look up item %d: %w", s.ID, err)
	}
	return same, nil
}

// UnrecordedCopies are those that an item may have made: under its own uuids, and
// under keys that another version of its object may use too.
type UnrecordedCopies struct {
	Targets []string
	UUIDs   []string `db:"uuids"`
	Keys    []string
}

// NoteUnrecorded keeps which copies an item may have made, until they are deleted.
func (r Records) NoteUnrecorded(ctx context.Context, item int64, c UnrecordedCopies) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("record the copies of item %d", item), `
		INSERT INTO unrecorded_copies AS u (work_item_id, targets, uuids, keys)
		VALUES ($1, $2, $3::text[]::uuid[], coalesce($4::text[], '{}'))
		ON CONFLICT (work_item_id) DO UPDATE SET targets = excluded.targets,
			uuids = ARRAY (SELECT unnest(u.uuids) UNION SELECT unnest(excluded.uuids)),
			keys = ARRAY (SELECT unnest(u.keys) UNION SELECT unnest(excluded.keys))`, item, c.Targets, c.UUIDs, c.Keys)
}

// UnrecordedItems returns up to n items, after one, for which copies are noted.
func (r Records) UnrecordedItems(ctx context.Context, after int64, n int) ([]int64, error) {
	return r.itemIDs(ctx, `SELECT work_item_id FROM unrecorded_copies WHERE work_item_id > $1 ORDER BY work_item_id LIMIT $2`, after, n)
}

// RetiredItems returns up to n items, after one, that replaced copies which are not
// deleted (retired_copies_pkey).
func (r Records) RetiredItems(ctx context.Context, after int64, n int) ([]int64, error) {
	return r.itemIDs(ctx, `SELECT DISTINCT work_item_id FROM retired_copies WHERE work_item_id > $1 ORDER BY work_item_id LIMIT $2`, after, n)
}

func (r Records) itemIDs(ctx context.Context, sql string, after int64, n int) ([]int64, error) {
	rows, _ := r.db.Query(ctx, sql, after, n)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("list items that left copies: %w", err)
	}
	return ids, nil
}

// Unrecorded returns the copies that are noted for an item.
func (r Records) Unrecorded(ctx context.Context, item int64) (UnrecordedCopies, error) {
	return registry.One[UnrecordedCopies](ctx, r.db, fmt.Sprintf("look up the copies of item %d", item), `SELECT targets, uuids::text[] AS uuids, keys FROM unrecorded_copies WHERE work_item_id = $1`, item)
}

// OffRecord returns those of some uuids that are no file's and name no copy, in any
// target (generic_files_uuid_key, storage_records_copy).
func (r Records) OffRecord(ctx context.Context, targets, uuids []string) ([]string, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT u FROM unnest($2::text[]) u
		WHERE NOT EXISTS (SELECT FROM generic_files f WHERE f.uuid = u::uuid)
		  AND NOT EXISTS (SELECT FROM found_copies f WHERE f.key = u)
		  AND NOT EXISTS (SELECT FROM storage_records s WHERE s.target = ANY ($1) AND s.key = u)`, targets, uuids)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("compare %d keys with the records: %w", len(uuids), err)
	}
	return list, nil
}

// ForgetUnrecorded says that the copies noted for an item are deleted or on record.
func (r Records) ForgetUnrecorded(ctx context.Context, item int64) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("delete the list of copies of item %d", item), `DELETE FROM unrecorded_copies WHERE work_item_id = $1`, item)
}

// StoringSince returns how long ago the first of the passes through Store began
// that are not over; 0 if none is under way (work_items_ready, work_items_lease,
// work_item_attempts_pkey). Nothing that is older belongs to one of them.
func (r Records) StoringSince(ctx context.Context) (time.Duration, error) {
	var since time.Duration
	err := r.db.QueryRow(ctx, `
		SELECT coalesce(now() - min(a.claimed_at), interval '0') FROM work_item_attempts a
		JOIN (SELECT id, entered_token FROM work_items WHERE stage = 'Store' AND status = 'Started'
			UNION ALL SELECT id, entered_token FROM work_items WHERE stage = 'Store' AND status = 'Pending' AND retry) w
			ON a.work_item_id = w.id AND a.claim_token > w.entered_token`).Scan(&since)
	if err != nil {
		return 0, fmt.Errorf("read since when items are being stored: %w", err)
	}
	return max(since, 0), nil
}

// A Removal is something that the janitor removed.
type Removal struct {
	Item  int64 // 0: no item is known that it belonged to
	Store string
	What  string // objects, uploads, keys, copies or bags
	Why   string
	Name  string // of a single one
	Count int64
	Bytes int64
}

// NoteRemovals puts on record what was removed.
func (r Records) NoteRemovals(ctx context.Context, list ...Removal) error {
	rows := make([][]any, len(list))
	for i, m := range list {
		var item *int64
		if m.Item > 0 {
			item = &m.Item
		}
		rows[i] = []any{item, m.Store, m.What, m.Why, m.Name, m.Count, m.Bytes}
	}
	_, err := r.db.CopyFrom(ctx, pgx.Identifier{"removals"}, []string{"work_item_id", "store", "what", "why", "name", "count", "bytes"}, pgx.CopyFromRows(rows))
	if err != nil {
		return fmt.Errorf("record %d removals: %w", len(list), err)
	}
	return nil
}
