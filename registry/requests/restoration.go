package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// RestorationRequest asks for an object or a file back.
type RestorationRequest struct {
	By         string // e-mail of an active user; "" is the archive itself, who may have anything
	Identifier string // of an object, or of a file
	File       bool   // of a file

	// Class is the storage class from which the copies have to be restored first;
	// "": they can be read as they are. Tier is the provider's for that: Expedited,
	// Standard or Bulk. Days is for how long the copies then can be read.
	Class, Tier string
	Days        int
	Priority    int
}

// restorable is what a request names.
type restorable struct {
	InstitutionID int64
	Institution   string
	ObjectID      int64
	Object        string
	FileID        *int64
	Files, Bytes  int64
	StorageOption string
	State         string
	Deleting      bool
	By            string `db:"-"` // the e-mail of who asks, as it is registered
	ByID          *int64 `db:"-"` // nil: the archive itself
}

const (
	restorableObjectSQL = `
SELECT o.institution_id, i.identifier AS institution, o.id AS object_id, o.identifier AS object, NULL::bigint AS file_id,
	coalesce(h.files, 0) AS files, coalesce(h.bytes, 0) AS bytes, o.storage_option, o.state, o.deleted_by_item IS NOT NULL
		OR EXISTS (SELECT FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A' AND f.deleted_by_item IS NOT NULL) AS deleting
FROM intellectual_objects o JOIN institutions i ON i.id = o.institution_id
LEFT JOIN object_holdings h ON h.intellectual_object_id = o.id
WHERE o.identifier = $1 AND ($2 OR o.institution_id = $3)`
	restorableFileSQL = `
SELECT f.institution_id, i.identifier AS institution, o.id AS object_id, o.identifier AS object, f.id AS file_id,
	1::bigint AS files, f.size AS bytes, f.storage_option, f.state, f.deleted_by_item IS NOT NULL OR o.deleted_by_item IS NOT NULL AS deleting
FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id JOIN institutions i ON i.id = f.institution_id
WHERE f.identifier = $1 AND ($2 OR f.institution_id = $3)`
)

// find looks up what is asked for within what who asks may have
// (intellectual_objects_identifier_key, generic_files_identifier_key). What another
// institution has is not there.
func (r Records) find(ctx context.Context, db registry.RowQuerier, q RestorationRequest) (t restorable, err error) {
	var u record.User
	if q.By != "" {
		if u, err = r.registry.Actor(ctx, db, q.By); err != nil {
			return t, err
		}
	}
	sql := restorableObjectSQL
	if q.File {
		sql = restorableFileSQL
	}
	rows, _ := db.Query(ctx, sql, q.Identifier, q.By == "" || u.Role == registry.RoleAdmin, u.InstitutionID)
	if t, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[restorable]); err != nil {
		return t, registry.Refusal(err)
	}
	if q.By != "" {
		t.By, t.ByID = u.Email, &u.ID
	}
	switch {
	case t.State != "A":
		return t, fmt.Errorf("%w: it was deleted", registry.ErrRefused)
	case t.Deleting:
		return t, fmt.Errorf("%w: it is being deleted", registry.ErrRefused)
	case t.Files == 0:
		return t, fmt.Errorf("%w: all its files were deleted", registry.ErrRefused)
	}
	return t, nil
}

// Quote reports what a restoration would cost, and changes nothing.
func (r Records) Quote(ctx context.Context, q RestorationRequest) (record.Quote, error) {
	t, err := r.find(ctx, r.db, q)
	var quote record.Quote
	if err == nil {
		quote, err = r.quote(ctx, r.db, q, t.Files, t.Bytes)
	}
	if err != nil {
		return record.Quote{}, fmt.Errorf("estimate the cost of the restoration of %q: %w", q.Identifier, err)
	}
	return quote, nil
}

// StorageOptionOf reports where an object or a file is kept.
func (r Records) StorageOptionOf(ctx context.Context, q RestorationRequest) (string, error) {
	t, err := r.find(ctx, r.db, q)
	if err != nil {
		return "", fmt.Errorf("look up %q: %w", q.Identifier, err)
	}
	return t.StorageOption, nil
}

// quoteSQL rounds to a cent, as an invoice does.
const quoteSQL = `
SELECT round($3::numeric / 1073741824 * p.per_gib + $4::numeric / 1000 * p.per_1000_requests, 2) AS price, s.retrieval_cap, p.takes
FROM retrieval_prices p CROSS JOIN request_settings s
WHERE p.storage_class = $1 AND p.tier = $2`

func (r Records) quote(ctx context.Context, db registry.RowQuerier, q RestorationRequest, files, bytes int64) (record.Quote, error) {
	quote := record.Quote{Files: files, Bytes: bytes, Class: q.Class, Tier: q.Tier, Days: q.Days, Price: "0.00", Cap: "0.00"}
	if q.Class == "" {
		quote.Tier, quote.Days = "", 0
		return quote, nil
	}
	err := db.QueryRow(ctx, `SELECT price::text, retrieval_cap::text, takes, price > retrieval_cap FROM (`+quoteSQL+`) q`,
		q.Class, q.Tier, bytes, files).Scan(&quote.Price, &quote.Cap, &quote.Takes, &quote.NeedsApproval)
	if errors.Is(err, pgx.ErrNoRows) {
		return quote, fmt.Errorf("%w: retrieval_prices has no tier %q for %s; its tiers are %s", registry.ErrRefused, q.Tier, q.Class, r.tiers(ctx, db, q.Class))
	}
	return quote, err
}

func (r Records) tiers(ctx context.Context, db registry.RowQuerier, class string) (list string) {
	err := db.QueryRow(ctx, `SELECT coalesce(string_agg(tier, ', ' ORDER BY takes), 'none') FROM retrieval_prices WHERE storage_class = $1`, class).Scan(&list)
	if err != nil {
		return "not known"
	}
	return list
}

const createRestorationSQL = `
INSERT INTO work_items (institution_id, action, stage, status, retry, needs_admin_review, name, bucket, etag, size, bag_date, priority,
	object_identifier, intellectual_object_id, generic_file_id, storage_option, "user", note, outcome, error_code)
SELECT o.institution_id, @action, 'Requested', CASE WHEN @parked THEN 'Suspended' ELSE 'Pending' END, NOT @parked, @parked,
	coalesce(w.name, o.bag_name || '.tar'), i.receiving_bucket, o.etag, @bytes, coalesce(w.bag_date, o.created_at), @priority,
	o.identifier, o.id, @file::bigint, o.storage_option, coalesce(nullif(@by, ''), 'system@aptrust.org'),
	'Requested by ' || coalesce(nullif(@by, ''), 'system@aptrust.org') || '.' || @note, 'Item is pending restoration',
	CASE WHEN @parked THEN 'cost-approval' ELSE '' END
FROM intellectual_objects o JOIN institutions i ON i.id = o.institution_id
LEFT JOIN LATERAL ( -- work_items_ended_bag, work_items_archive_bag
	SELECT a.name, a.bag_date FROM all_work_items a
	WHERE a.institution_id = o.institution_id AND a.name = o.bag_name || '.tar' AND a.etag = o.etag AND a.action = 'Ingest' AND NOT a.retry
	ORDER BY a.id DESC LIMIT 1) w ON true
WHERE o.id = @object
RETURNING id`

// BeingRestored reports whether a live restoration gives something back under a key of a
// restoration bucket.
func (r Records) BeingRestored(ctx context.Context, key string) (live bool, err error) {
	// work_items_requests, by each object that the key can be of
	err = r.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM work_items w WHERE w.retry AND w.stage = 'Requested' AND w.action <> 'Ingest' AND w.object_identifier = ANY (
			SELECT left(k, n) FROM (SELECT $1::text AS k) key, generate_series(1, length(k)) n WHERE n = length(k) - length('.tar') OR substr(k, n + 1, 1) = '/'))`, key).Scan(&live)
	if err != nil {
		return false, fmt.Errorf("look up what is restored to %s: %w", key, registry.Refusal(err))
	}
	return live, nil
}

// RequestRestoration puts a restoration into the queue. It is ErrRefused while an
// item is in work on the same object, or file of it. One that costs more than the
// cap waits, Suspended, for [Registry.ApproveRetrieval].
func (r Records) RequestRestoration(ctx context.Context, q RestorationRequest) (record.Restoration, error) {
	var done record.Restoration
	var id int64
	err := registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) (err error) {
			id, done.Quote, err = r.RequestRestorationIn(ctx, tx, q)
			return err
		})
	})
	if err != nil {
		return record.Restoration{}, fmt.Errorf("restore %q: %w", q.Identifier, registry.Refusal(err))
	}
	done.Item, err = r.registry.WorkItem(ctx, id)
	return done, err
}

// RequestRestorationIn is [Records.RequestRestoration] within a transaction.
func (r Records) RequestRestorationIn(ctx context.Context, tx pgx.Tx, q RestorationRequest) (id int64, quote record.Quote, err error) {
	t, err := r.find(ctx, tx, q)
	if err != nil {
		return 0, quote, err
	}
	if quote, err = r.quote(ctx, tx, q, t.Files, t.Bytes); err != nil {
		return 0, quote, err
	}
	action := "Restore Object"
	switch {
	case q.Class != "":
		action = "Glacier Restore"
	case q.File:
		action = "Restore File"
	}
	note := ""
	if quote.NeedsApproval {
		note = fmt.Sprintf(" Restoring %d files (%d bytes) from the archive costs about $%s, which is more than $%s: an admin must approve it.",
			quote.Files, quote.Bytes, quote.Price, quote.Cap)
	}
	err = tx.QueryRow(ctx, createRestorationSQL, pgx.NamedArgs{
		"action": action, "parked": quote.NeedsApproval, "bytes": t.Bytes, "priority": q.Priority, "file": t.FileID, "by": t.By,
		"note": note, "object": t.ObjectID,
	}).Scan(&id)
	if err != nil || q.Class == "" {
		return id, quote, err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO retrievals (work_item_id, storage_class, tier, days, files, bytes, price, cap, requested_by)
		VALUES ($1, $8, $2, $3, $4, $5, $6::text::numeric, $7::text::numeric, $9)`,
		id, q.Tier, q.Days, quote.Files, quote.Bytes, quote.Price, quote.Cap, q.Class, t.ByID)
	return id, quote, err
}

// ApproveRetrieval lets a restoration go on that costs more than the cap. Who approves is
// an admin, or an institutional admin of its institution, and another person than who has
// requested it (two_people).
func (r Records) ApproveRetrieval(ctx context.Context, item int64, by string) (record.WorkItem, error) {
	err := registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			u, err := r.registry.Actor(ctx, tx, by)
			if err != nil {
				return err
			}
			var institution int64
			var approved, waits, two bool
			var ask string
			err = tx.QueryRow(ctx, `
				SELECT w.institution_id, p.approved_at IS NOT NULL, p.price > p.cap, two_people(retrieval_requester(w.id), $2),
					whom_to_ask(w.institution_id, retrieval_requester(w.id), true)
				FROM work_items w JOIN retrievals p ON p.work_item_id = w.id
				WHERE w.id = $1 FOR UPDATE`, item, u.ID).Scan(&institution, &approved, &waits, &two, &ask)
			if errors.Is(err, pgx.ErrNoRows) {
				return fmt.Errorf("%w: there is no item %d that costs anything", registry.ErrNotFound, item)
			}
			if err != nil {
				return err
			}
			own := u.Role == registry.RoleInstitutionalAdmin && u.InstitutionID == institution
			switch {
			case u.Role != registry.RoleAdmin && !own:
				return fmt.Errorf("%w: %s may not approve it. %s", registry.ErrRefused, u.Email, ask)
			case !two:
				return fmt.Errorf("%w: %s may not approve it: the same person has requested it, or one whose account was in the same hands within seven days. %s", registry.ErrRefused, u.Email, ask)
			case approved:
				return fmt.Errorf("%w: it was approved already", registry.ErrRefused)
			case !waits: // to requeue it is not what an approval is for
				return fmt.Errorf("%w: it costs no more than the cap, and needs no approval", registry.ErrRefused)
			}
			if _, err := tx.Exec(ctx, `UPDATE retrievals SET approved_by = $2, approved_at = now() WHERE work_item_id = $1`, item, u.ID); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `SELECT requeue($1)`, item)
			return err
		})
	})
	if err != nil {
		return record.WorkItem{}, fmt.Errorf("approve the cost of item %d: %w", item, registry.Refusal(err))
	}
	return r.registry.WorkItem(ctx, item)
}
