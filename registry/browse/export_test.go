package browse

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Statements of the package.
const (
	SettingsSQL = settingsSQL // what is set before each statement
	EndedSQL    = endedSQL
	GroupsSQL   = groupsSQL
)

// Statement is the one that finds the rows of a filter.
func Statement(f Filter, s registry.Scope, after Key) (sql string, args pgx.NamedArgs, settings []any, err error) {
	q, err := f.find(s, after)
	if err != nil {
		return "", nil, nil, err
	}
	q.args["n"] = 11
	return q.sql, q.args, []any{"0", onOff(!q.ordered), onOff(q.parts)}, nil
}

// Sleep is a filter that finds nothing within its time.
type Sleep struct{ SQL string }

func (f Sleep) find(s registry.Scope, _ Key) (*query, error) {
	if s.None() {
		return nil, registry.ErrNotFound
	}
	return &query{args: pgx.NamedArgs{}, sql: f.SQL, timeout: 50 * time.Millisecond, advice: "sleep less"}, nil
}

// EndOf is endOf.
func EndOf(prefix string) string { return endOf(prefix) }

// Items lists the items that the statement finds, with what they refer to.
func (f Sleep) Items(ctx context.Context, r Records, s Slice) (Part[FlatItem], error) {
	return part(ctx, r, flatItems(), f, s)
}

// FlatStatement is the one that shows a page with what the rows of a filter refer to.
func FlatStatement(f Filter, s registry.Scope, after Key) (sql string, args pgx.NamedArgs, settings []any, err error) {
	sql, args, settings, err = Statement(f, s, after)
	if err != nil {
		return "", nil, nil, err
	}
	args["skip"], args["most"] = 0, 11
	switch f := f.(type) {
	case ItemFilter:
		sql = flatItems().statement(sql, flatItems().ownSQL)
	case ObjectFilter:
		sql = flatObjects(f.order()).statement(sql, flatObjects(f.order()).ownSQL)
	case FileFilter:
		sql = flatFiles(f.Digest != "").statement(sql, flatFiles(f.Digest != "").ownSQL)
	case ChecksumFilter:
		sql = flatChecksums().statement(sql, flatChecksums().ownSQL)
	case EventFilter:
		sql = flatEvents().statement(sql, flatEvents().ownSQL)
	case DeletionFilter:
		sql = flatDeletions().statement(sql, flatDeletions().ownSQL)
	case AlertFilter:
		sql = flatAlerts().statement(sql, flatAlerts().ownSQL)
	}
	return sql, args, settings, nil
}
