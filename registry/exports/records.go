package exports

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Written is what is known of an export that was written to its end.
type Written struct {
	Records int64
	Bytes   int64
	SHA256  []byte
	Taken   time.Time
}

// Make puts an export on record in the name of the actor, and returns its ID.
func (r Records) Make(ctx context.Context, o Of) (int64, error) {
	return registry.Value[int64](ctx, r.db, "record an export", `INSERT INTO exports (kind, institution_id, intellectual_object_id) VALUES ($1, $2, nullif($3, 0::bigint)) RETURNING id`,
		o.Kind, o.Institution, o.ObjectID)
}

// Complete notes that an export was written to its end.
func (r Records) Complete(ctx context.Context, id int64, w Written) error {
	return registry.Do(ctx, r.db, "record the end of an export", `UPDATE exports SET records = $2, bytes = $3, sha256 = $4, taken_at = $5, completed_at = now() WHERE id = $1`,
		id, w.Records, w.Bytes, w.SHA256, w.Taken)
}

// recordsSQL finds exports within a scope that are of some kinds.
const recordsSQL = `
SELECT e.id, e.kind, i.identifier AS institution, o.identifier AS object, e.requested_by, e.created_at, e.work_item_id AS work_item,
	CASE WHEN e.work_item_id IS NOT NULL THEN i.restore_bucket END AS bucket, e.key, e.records, e.bytes, encode(e.sha256, 'hex') AS sha256,
	e.taken_at, e.completed_at, e.institution_id, coalesce(e.intellectual_object_id, 0) AS object_id
FROM exports e JOIN institutions i ON i.id = e.institution_id LEFT JOIN intellectual_objects o ON o.id = e.intellectual_object_id
WHERE (@all OR e.institution_id = @own) AND e.kind = ANY (@kinds::text[])`

// recordRow is a row of them.
type recordRow struct {
	record.Export

	InstitutionID int64
	ObjectID      int64
}

func (r Records) args(kinds []Kind) pgx.NamedArgs {
	own, _ := r.scope.Institution()
	return pgx.NamedArgs{"all": r.scope.All(), "own": own, "kinds": kinds}
}

// Page is a part of a list of exports: up to Limit, with lower IDs than Before if that is not
// 0.
type Page struct {
	Institution string // identifier; "": of all within the scope
	Before      int64
	Limit       int
}

// List lists exports within the scope that are of one of these kinds, the newest first
// (exports_pkey, downwards: there are few).
func (r Records) List(ctx context.Context, kinds []Kind, p Page) ([]record.Export, error) {
	args := r.args(kinds)
	args["institution"], args["before"], args["n"] = p.Institution, p.Before, p.Limit
	rows, _ := r.db.Query(ctx, recordsSQL+` AND (@institution = '' OR i.identifier = @institution) AND (@before::bigint = 0 OR e.id < @before)
		ORDER BY e.id DESC LIMIT @n`, args)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[recordRow])
	if err != nil {
		return nil, fmt.Errorf("list exports: %w", registry.Refusal(err))
	}
	list := make([]record.Export, len(found))
	for i, row := range found {
		list[i] = row.Export
	}
	return list, nil
}

// Show returns an export within the scope that is of one of these kinds, and what it is of
// (exports_pkey).
func (r Records) Show(ctx context.Context, id int64, kinds []Kind) (record.Export, Of, error) {
	args := r.args(kinds)
	args["id"] = id
	rows, _ := r.db.Query(ctx, recordsSQL+` AND e.id = @id`, args)
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[recordRow])
	if err != nil {
		return record.Export{}, Of{}, fmt.Errorf("look up an export: %w", registry.Refusal(err))
	}
	o := Of{Kind: found.Kind, Institution: found.InstitutionID, Identifier: found.Institution, ObjectID: found.ObjectID}
	if found.Object != nil {
		o.Object = *found.Object
	}
	return found.Export, o, nil
}

// WithKinds narrows what kinds of exports there are to those that show files and nothing of
// people or events.
func WithKinds(inventoryOnly bool) []Kind {
	if inventoryOnly {
		return []Kind{Inventory, Manifest}
	}
	return Kinds()
}
