package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// SelectDeletions reads a [DeletionRequest] from rows of deletion_requests, which the query or
// the table in place of %s has. Of each the items are counted (work_items_deletion,
// work_items_archive_deletion).
const SelectDeletions = `
SELECT d.id, i.identifier AS institution, r.email AS requested_by, d.requested_at, coalesce(a.email, '') AS approved_by, d.approved_at,
	coalesce(d.requested_as, '') AS requested_as, coalesce(d.approved_as, '') AS approved_as, coalesce(d.on_paper, '') AS on_paper, d.begins_at,
	coalesce(c.email, '') AS cancelled_by, d.cancelled_at, coalesce(d.cancel_reason, '') AS cancel_reason,
	(SELECT count(*) FROM deletion_requests_intellectual_objects o WHERE o.deletion_request_id = d.id) AS objects,
	(SELECT count(*) FROM deletion_requests_generic_files f WHERE f.deletion_request_id = d.id) AS files,
	w.items, w.done, w.failed, w.cancelled, d.approved_at IS NOT NULL AND d.cancelled_at IS NOT NULL AND EXISTS (
		SELECT FROM all_work_items k JOIN deletion_receipts c ON c.work_item_id = k.id
		WHERE k.deletion_request_id = d.id AND c.removed_at IS NOT NULL) AS removed, -- deletion_receipts_pkey
	CASE WHEN d.approved_at IS NULL AND d.cancelled_at IS NULL THEN whom_to_ask(d.institution_id, d.requested_by, false) ELSE '' END AS ask, w.kept
FROM %s d
JOIN institutions i ON i.id = d.institution_id
JOIN users r ON r.id = d.requested_by
LEFT JOIN users a ON a.id = d.approved_by
LEFT JOIN users c ON c.id = d.cancelled_by
CROSS JOIN LATERAL ( -- work_items_deletion
	SELECT count(*) AS items, count(*) FILTER (WHERE w.status = 'Success') AS done,
		count(*) FILTER (WHERE w.status IN ('Failed', 'Suspended')) AS failed, count(*) FILTER (WHERE w.status = 'Cancelled') AS cancelled,
		coalesce(max(w.note) FILTER (WHERE w.status = 'Pending' AND w.error_code = 'kept-by-store'), '') AS kept -- the latest: the notes begin alike
	FROM all_work_items w WHERE w.deletion_request_id = d.id) w`

//nolint:gochecknoglobals // a constant, but for Go
var deletionRequestsSQL = fmt.Sprintf(SelectDeletions, `deletion_requests`)

// DeletionRequests lists the requests of an institution, or of all with "", the
// newest first, after the one with the id given if that is not 0.
func (r Records) DeletionRequests(ctx context.Context, institution string, before int64, n int) ([]record.DeletionRequest, error) {
	return registry.Collect[record.DeletionRequest](ctx, r.db, "list deletion requests", deletionRequestsSQL+`
		WHERE ($1 = '' OR i.identifier = $1) AND ($2::bigint = 0 OR d.id < $2) ORDER BY d.id DESC LIMIT $3`, institution, before, n)
}

// DeletionRequest returns one, or ErrNotFound.
func (r Records) DeletionRequest(ctx context.Context, id int64) (record.DeletionRequest, error) {
	return registry.One[record.DeletionRequest](ctx, r.db, fmt.Sprintf("show deletion request %d", id), deletionRequestsSQL+` WHERE d.id = $1`, id)
}

// named are the identifiers of a request, each once.
type named struct {
	objects, files []int64
	unknown        []string
}

// lookUpSQL says of each identifier what it is to the institution of who asks.
const lookUpSQL = `
SELECT n.identifier, o.id AS object, f.id AS file
FROM (SELECT DISTINCT unnest($1::text[]) AS identifier) n
LEFT JOIN intellectual_objects o ON o.identifier = n.identifier AND o.institution_id = $2
LEFT JOIN generic_files f ON f.identifier = n.identifier AND f.institution_id = $2
ORDER BY n.identifier`

// RequestDeletion asks for the deletion of objects and files, by their identifiers.
// by is the e-mail of an institutional admin, and everything has to be of the same
// institution. Nothing is deleted before another person has approved it. What is refused of
// one is refused of all, and the error names it.
func (r Records) RequestDeletion(ctx context.Context, by string, identifiers []string) (d record.DeletionRequest, err error) {
	var id int64
	err = registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) (err error) {
			id, err = r.requestDeletion(ctx, tx, by, identifiers)
			return err
		})
	})
	if err != nil {
		return record.DeletionRequest{}, fmt.Errorf("request a deletion: %w", registry.Refusal(err))
	}
	return r.DeletionRequest(ctx, id)
}

func (r Records) requestDeletion(ctx context.Context, tx pgx.Tx, by string, identifiers []string) (id int64, err error) {
	u, err := r.requester(ctx, tx, by, identifiers)
	if err != nil {
		return 0, err
	}
	n, err := lookUp(ctx, tx, identifiers, u.InstitutionID)
	if err != nil {
		return 0, err
	}
	if len(n.unknown) > 0 {
		return 0, fmt.Errorf("%w: the institution has no object and no file %s", registry.ErrNotFound, some(n.unknown))
	}
	if id, err = noteNamed(ctx, tx, u, n); err != nil {
		return 0, err
	}
	if err := deletable(ctx, tx, id); err != nil {
		return 0, err
	}
	return id, alertOfDeletion(ctx, tx, id, "Deletion Requested", fmt.Sprintf(
		"%s requests the deletion of %d objects and %d files. Nothing is deleted before another person has approved it.",
		u.Email, len(n.objects), len(n.files)))
}

// requester is the person who asks for a deletion, if that person may.
func (r Records) requester(ctx context.Context, tx pgx.Tx, by string, identifiers []string) (record.User, error) {
	u, err := r.registry.Actor(ctx, tx, by)
	switch {
	case err != nil:
		return u, err
	case u.Role != registry.RoleInstitutionalAdmin:
		return u, fmt.Errorf("%w: %s is no institutional admin; only they request deletions", registry.ErrRefused, u.Email)
	case len(identifiers) == 0:
		return u, fmt.Errorf("%w: name an object or files", registry.ErrRefused)
	}
	return u, nil
}

// noteNamed records a request with what it names.
func noteNamed(ctx context.Context, tx pgx.Tx, u record.User, n named) (id int64, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO deletion_requests (institution_id, requested_by) VALUES ($1, $2) RETURNING id`, u.InstitutionID, u.ID).Scan(&id)
	if err != nil {
		return 0, err
	}
	for _, sql := range []struct {
		text string
		ids  []int64
	}{
		{`INSERT INTO deletion_requests_intellectual_objects SELECT $1, unnest($2::bigint[])`, n.objects},
		{`INSERT INTO deletion_requests_generic_files SELECT $1, unnest($2::bigint[])`, n.files},
	} {
		if _, err := tx.Exec(ctx, sql.text, id, sql.ids); err != nil {
			return 0, err
		}
	}
	return id, nil
}

func lookUp(ctx context.Context, db registry.RowQuerier, identifiers []string, institution int64) (n named, err error) {
	rows, _ := db.Query(ctx, lookUpSQL, identifiers, institution)
	var identifier string
	var object, file *int64
	_, err = pgx.ForEachRow(rows, []any{&identifier, &object, &file}, func() error {
		switch {
		case object != nil:
			n.objects = append(n.objects, *object)
		case file != nil:
			n.files = append(n.files, *file)
		default:
			n.unknown = append(n.unknown, identifier)
		}
		return nil
	})
	return n, err
}

// some names a few of many.
func some(list []string) string {
	const most = 10
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// UndeletableSQL says of what the request @deletion names why it cannot be deleted now: it was
// deleted, its retention is not over, or an item is in work on it.
const UndeletableSQL = `
WITH named AS (
	SELECT o.identifier, o.identifier AS object, NULL::bigint AS file, o.state, o.storage_option,
		greatest(o.created_at, (SELECT max(f.created_at) FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A')) AS stored_at,
		false AS twice
	FROM deletion_requests_intellectual_objects d JOIN intellectual_objects o ON o.id = d.intellectual_object_id
	WHERE d.deletion_request_id = @deletion
	UNION ALL
	SELECT f.identifier, o.identifier, f.id, f.state, f.storage_option, f.created_at,
		EXISTS (SELECT FROM deletion_requests_intellectual_objects w WHERE w.deletion_request_id = @deletion AND w.intellectual_object_id = o.id)
	FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id
	JOIN intellectual_objects o ON o.id = f.intellectual_object_id
	WHERE d.deletion_request_id = @deletion
), judged AS (
	SELECT n.identifier, CASE
		WHEN n.state = 'D' THEN 'it was deleted'
		WHEN n.twice THEN 'its object is named too'
		WHEN n.stored_at > now() - s.retention_days * interval '1 day' THEN
			format('%s must be kept for %s days, until %s', n.storage_option, s.retention_days,
				to_char(n.stored_at + s.retention_days * interval '1 day', 'YYYY-MM-DD'))
		ELSE request_rival(n.object, n.file, 0) END AS why
	FROM named n JOIN storage_options s ON s.name = n.storage_option
)
SELECT identifier, why FROM judged WHERE why IS NOT NULL ORDER BY identifier`

func undeletable(ctx context.Context, db registry.RowQuerier, request int64) ([]record.Undeletable, error) {
	rows, _ := db.Query(ctx, UndeletableSQL, pgx.NamedArgs{"deletion": request})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[record.Undeletable])
	if err != nil {
		return nil, fmt.Errorf("check what can be deleted: %w", err)
	}
	return list, nil
}

// deletable refuses a request for what cannot be deleted now.
func deletable(ctx context.Context, db registry.RowQuerier, request int64) error {
	list, err := undeletable(ctx, db, request)
	if err != nil || len(list) == 0 {
		return err
	}
	texts := make([]string, len(list))
	for i, u := range list {
		texts[i] = u.Identifier + " (" + u.Why + ")"
	}
	return fmt.Errorf("%w: cannot be deleted: %s", registry.ErrRefused, some(texts))
}

// alertOfDeletion alerts the institution to the result of a request.
func alertOfDeletion(ctx context.Context, tx pgx.Tx, request int64, kind, text string) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT institution_id, $2, $2 || ': ' || id, $3, id FROM deletion_requests WHERE id = $1`, request, kind, text)
	return err
}

// lockNamedSQL locks what a request names, in the order of all who lock several.
const lockNamedSQL = `
SELECT lock_object(o.name) FROM (
	SELECT o.identifier COLLATE "C" AS name FROM intellectual_objects o WHERE o.id IN (
		SELECT intellectual_object_id FROM deletion_requests_intellectual_objects WHERE deletion_request_id = $1
		UNION
		SELECT f.intellectual_object_id FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id
		WHERE d.deletion_request_id = $1)
	ORDER BY 1
) o`

// createDeletionsSQL makes an item for each object and file of a request.
const createDeletionsSQL = `
INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, intellectual_object_id,
	generic_file_id, storage_option, "user", inst_approver, deletion_request_id, run_at, note, outcome)
SELECT o.institution_id, 'Delete', 'Requested', o.bag_name || '.tar', i.receiving_bucket, o.etag, n.size, o.created_at, o.identifier, o.id,
	n.file, o.storage_option, @requester::text, @approver::text, @request, (SELECT begins_at FROM deletion_requests WHERE id = @request),
	format('Requested by %s, approved by %s.', @requester::text, @approver::text), 'Item is pending deletion'
FROM (
	SELECT d.intellectual_object_id AS object, NULL::bigint AS file, coalesce((
		SELECT h.bytes FROM object_holdings h WHERE h.intellectual_object_id = d.intellectual_object_id), 0) AS size
	FROM deletion_requests_intellectual_objects d WHERE d.deletion_request_id = @request
	UNION ALL
	SELECT f.intellectual_object_id, f.id, f.size
	FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id WHERE d.deletion_request_id = @request
) n
JOIN intellectual_objects o ON o.id = n.object
JOIN institutions i ON i.id = o.institution_id
ORDER BY o.identifier COLLATE "C", n.file`

// ApproveDeletion approves a request, and puts an item into the queue for each object and
// file that it names: all of them, or none if one cannot be deleted now. by is the e-mail
// of an institutional admin of the same institution other than the requester, or of an
// admin of the archive where the institution has no other admin: the database's own rule
// (deletion_request_decided). onPaper says why the approval is entered for a person who has
// not signed in; it is needed then, and ignored for one who has.
func (r Records) ApproveDeletion(ctx context.Context, id int64, by, onPaper string) (record.DeletionRequest, error) {
	return r.decideDeletion(ctx, id, by, "approve", func(ctx context.Context, tx pgx.Tx, u record.User, approved *time.Time) error {
		requester, err := approve(ctx, tx, id, u, onPaper, approved)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, createDeletionsSQL, pgx.NamedArgs{"request": id, "requester": requester, "approver": u.Email})
		if err != nil {
			return err
		}
		var waits *string
		if err := tx.QueryRow(ctx, `SELECT deletion_waits($1)`, id).Scan(&waits); err != nil {
			return err
		}
		text := fmt.Sprintf("%s has approved the request of %s. %d items are in the queue.", u.Email, requester, tag.RowsAffected())
		if waits != nil {
			text += " " + *waits
		}
		return alertOfDeletion(ctx, tx, id, "Deletion Confirmed", text)
	})
}

// errOnlyAsked undoes an approval that was only tried.
var errOnlyAsked = errors.New("only asked")

// MayApproveDeletion refuses what ApproveDeletion would refuse now, and changes nothing.
func (r Records) MayApproveDeletion(ctx context.Context, id int64, by, onPaper string) (record.DeletionRequest, error) {
	d, err := r.decideDeletion(ctx, id, by, "approve", func(ctx context.Context, tx pgx.Tx, u record.User, approved *time.Time) error {
		if _, err := approve(ctx, tx, id, u, onPaper, approved); err != nil {
			return err
		}
		return errOnlyAsked
	})
	if errors.Is(err, errOnlyAsked) {
		return r.DeletionRequest(ctx, id)
	}
	return d, err
}

// approve decides a request, and locks what it names.
func approve(ctx context.Context, tx pgx.Tx, id int64, u record.User, onPaper string, approved *time.Time) (requester string, err error) {
	if approved != nil {
		return "", fmt.Errorf("%w: it was approved already, at %s", registry.ErrRefused, approved.UTC().Format(time.RFC3339))
	}
	err = tx.QueryRow(ctx, `
		UPDATE deletion_requests d SET approved_by = $2, on_paper = nullif($3, '')
		FROM users u WHERE d.id = $1 AND u.id = d.requested_by RETURNING u.email`, id, u.ID, onPaper).Scan(&requester)
	if err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, lockNamedSQL, id); err != nil {
		return "", err
	}
	return requester, deletable(ctx, tx, id)
}
