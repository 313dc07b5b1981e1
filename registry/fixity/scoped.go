package fixity

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// mostOwnFiles is up to how many files the copies of an institution are counted.
const mostOwnFiles = 20_000

// ownFilesSQL finds the files of an institution, up to one more than are counted: a range of
// generic_files_identifier_key. Identifiers begin with that of the institution.
const ownFilesSQL = `SELECT f.id FROM generic_files f WHERE f.identifier >= @first AND f.identifier < @end AND f.state = 'A' LIMIT @most`

// ownTargetsSQL counts the copies file by file (storage_records_generic_file_id_url_key),
// and those that are bad by fixity_failures_open.
const ownTargetsSQL = `
WITH file AS MATERIALIZED (` + ownFilesSQL + `), copy AS MATERIALIZED (
	SELECT s.target, s.fixity_from, s.last_fixity_at FROM file CROSS JOIN LATERAL (
		SELECT s.target, s.fixity_from, s.last_fixity_at FROM storage_records s WHERE s.generic_file_id = file.id AND s.active OFFSET 0) s
), counted AS (
	SELECT p.target, count(*) AS copies, count(*) FILTER (WHERE c.last_fixity_at IS NULL) AS unread, min(c.fixity_from) AS oldest,
		count(*) FILTER (WHERE p.mode <> 'off' AND c.fixity_from <= now() - make_interval(days => coalesce(p.interval_days, @days::int))) AS overdue
	FROM copy c JOIN fixity_policies p ON p.target = c.target GROUP BY p.target
)
SELECT p.target, p.mode, coalesce(p.interval_days, @days::int) AS days,
	CASE WHEN @counted THEN coalesce(c.copies, 0) END AS copies, CASE WHEN @counted AND p.mode <> 'off' THEN coalesce(c.overdue, 0) END AS overdue,
	CASE WHEN @counted THEN coalesce(c.unread, 0) END AS unread, c.oldest,
	(SELECT count(*) FROM bad_copies b WHERE b.target = p.target AND b.institution = @institution) AS bad
FROM fixity_policies p LEFT JOIN counted c ON c.target = p.target
ORDER BY p.target`

// OwnStatus counts the copies of the one institution of a scope; another scope is
// ErrNotFound. days is the interval of the targets whose policy names none.
func (r Records) OwnStatus(ctx context.Context, s registry.Scope, days int) (o record.FixityOwn, err error) {
	_, identifier := s.Institution()
	if identifier == "" {
		return o, fmt.Errorf("count the copies of an institution: %w", registry.ErrNotFound)
	}
	args := pgx.NamedArgs{"first": identifier + "/", "end": identifier + "0", "most": mostOwnFiles + 1, "days": days, "institution": identifier}
	err = r.registry.Look(ctx, func(tx pgx.Tx) error {
		var files int64
		if err := tx.QueryRow(ctx, `SELECT now(), count(*) FROM (`+ownFilesSQL+`) f`, args).Scan(&o.At, &files); err != nil {
			return err
		}
		if o.Counted = files <= mostOwnFiles; !o.Counted {
			args["most"] = 0
		}
		args["counted"] = o.Counted
		rows, _ := tx.Query(ctx, ownTargetsSQL, args)
		o.Targets, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.FixityOwnTarget])
		return err
	})
	if err != nil {
		return o, fmt.Errorf("count the copies of %s: %w", identifier, err)
	}
	for _, t := range o.Targets {
		o.Bad += t.Bad
	}
	return o, nil
}

// BadFilter says which bad copies are wanted.
type BadFilter struct {
	Institution string // identifier; "": any in the scope
	After       int64  // only failures with a higher number
	Limit       int
}

// BadCopiesIn lists bad copies within a scope, in the order of their failures
// (fixity_failures_open).
func (r Records) BadCopiesIn(ctx context.Context, s registry.Scope, f BadFilter) ([]record.FixityBadCopy, error) {
	_, own := s.Institution()
	return registry.Collect[record.FixityBadCopy](ctx, r.db, "list bad copies", `
		SELECT `+badCopyColumns+` FROM bad_copies
		WHERE failure > @after AND (@all OR institution = @own) AND (@institution = '' OR institution = @institution)
		ORDER BY failure LIMIT @n`,
		pgx.NamedArgs{"after": f.After, "all": s.All(), "own": own, "institution": f.Institution, "n": f.Limit})
}

// RequestIn is [Records.Request] within a scope: what another institution has is not found.
func (r Records) RequestIn(ctx context.Context, s registry.Scope, identifier, target string, again bool) ([]record.FixityRequested, error) {
	if _, own := s.Institution(); !s.All() && (own == "" || !strings.HasPrefix(identifier, own+"/")) {
		return nil, fmt.Errorf("look up %q: %w", identifier, registry.ErrNotFound)
	}
	return r.Request(ctx, identifier, target, again)
}
