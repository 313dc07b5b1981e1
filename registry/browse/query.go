package browse

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// query is a statement in the making. Its pieces are constants; args has the values.
type query struct {
	sql     string // which finds up to @n rows
	args    pgx.NamedArgs
	timeout time.Duration
	advice  string // what to add if it is too broad
	ordered bool   // an index has the order
	parts   bool   // rows have parts, which are in an order of their own
	upwards bool   // it finds those on the page that ends at a key, the nearest first; no key follows
	nothing bool   // no record can meet the filter within the scope: nothing is asked
	key     string // condition that the page sets; "": it is the first
	conds   []string
	inside  inside
}

// inside is whose records a query may find: those of one institution, or of all.
type inside struct {
	one        bool
	id         string // SQL that is the ID of the one
	identifier string // of the one
}

// in begins a query within a scope, of one institution if it is named.
func in(s registry.Scope, institution, advice string) *query {
	q := &query{args: pgx.NamedArgs{}, timeout: timeout, advice: advice}
	own, identifier := s.Institution()
	switch {
	case s.None(), own != 0 && institution != "" && institution != identifier:
		q.nothing = true
	case own != 0:
		q.args["own"] = own
		q.inside = inside{true, `@own::bigint`, identifier}
	case institution != "":
		q.args["institution"] = institution
		q.inside = inside{true, `(SELECT n.id FROM institutions n WHERE n.identifier = @institution)`, institution}
	}
	return q
}

// where adds a condition with its value.
func (q *query) where(piece, name string, value any) {
	q.args[name] = value
	q.conds = append(q.conds, piece)
}

// equal adds a condition for a value that is set.
func (q *query) equal(piece, name, value string) {
	if value != "" {
		q.where(piece, name, value)
	}
}

// number adds a condition for an ID that is set.
func (q *query) number(piece, name string, id int64) {
	if id != 0 {
		q.where(piece, name, id)
	}
}

// truth adds a condition for a truth that is set.
func (q *query) truth(piece, name string, value *bool) {
	if value != nil {
		q.where(piece, name, *value)
	}
}

// since adds a condition for a time that is set.
func (q *query) since(piece, name string, t time.Time) {
	if !t.IsZero() {
		q.where(piece, name, t)
	}
}

// anyOf adds a condition for a list that is not empty.
func anyOf[T ~string](q *query, piece, name string, list []T) {
	if len(list) == 0 {
		return
	}
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	q.where(piece, name, texts)
}

// within adds the condition that keeps rows of others out; column is that of the
// institution's ID.
func (q *query) within(column string) {
	if q.inside.one {
		q.conds = append(q.conds, column+` = `+q.inside.id)
	}
}

// named finds the one record that has an ID, or else an identifier, and says what is looked
// for; row is the alias of its table.
func (q *query) named(kind, row string, id int64, identifier string) (what string) {
	q.within(row + `.institution_id`)
	if id != 0 {
		q.where(row+`.id = @id`, "id", id)
		return fmt.Sprintf("%s %d", kind, id)
	}
	q.where(row+`.identifier = @identifier`, "identifier", identifier)
	return fmt.Sprintf("%s %q", kind, identifier)
}

// after sets the condition of a page that comes after an ID.
func (q *query) after(piece string, id int64) {
	if id != 0 {
		q.args["after"] = id
		q.key = piece
	}
}

// newest finds rows of a table by descending IDs: of one institution, by an index on the
// institution and the ID, or of all, by the primary key. The institution is a range and not
// a value, and part of the order. PostgreSQL would else drop it from the order, take the
// primary key for the cheaper index, and read the rows of all others.
func (q *query) newest(table, row string) string {
	q.ordered = true
	where, order := append([]string{}, q.conds...), row+`.id DESC`
	switch {
	case q.inside.one && q.key != "":
		where = append(where, `(`+row+`.institution_id, `+row+`.id) < (`+q.inside.id+`, @after)`, row+`.institution_id >= `+q.inside.id)
	case q.inside.one:
		where = append(where, row+`.institution_id <= `+q.inside.id, row+`.institution_id >= `+q.inside.id)
	case q.key != "":
		where = append(where, q.key)
	}
	if q.inside.one {
		order = row + `.institution_id DESC, ` + order
	}
	if len(where) == 0 {
		where = []string{`true`}
	}
	return `SELECT ` + row + `.* FROM ` + table + ` ` + row + ` WHERE ` + strings.Join(where, ` AND `) + ` ORDER BY ` + order + ` LIMIT @n`
}

// inOrder keeps PostgreSQL from an index on a column, whose rows it would have to sort, where
// another index has the order of the list.
func inOrder(column string) string { return column + ` + 0` }

// ownRange adds conditions for the range of identifiers that the one institution's records
// have, so that an index that is in the order of bytes is not walked through those of others.
func (q *query) ownRange(column string) {
	if q.inside.one {
		q.where(column+` >= @own_first`, "own_first", q.inside.identifier+"/")
		q.where(column+` < @own_end`, "own_end", q.inside.identifier+"0")
	}
}

// all are the conditions, with that of the page.
func (q *query) all() string {
	conds := append([]string{}, q.conds...)
	if q.key != "" {
		conds = append(conds, q.key)
	}
	if len(conds) == 0 {
		return `true`
	}
	return strings.Join(conds, ` AND `)
}

// prefixed adds conditions for texts that begin with a prefix, in an index that is in the
// order of bytes.
func (q *query) prefixed(column, name, prefix string) {
	q.where(column+` >= @`+name, name, prefix)
	if end := endOf(prefix); end != "" {
		q.where(column+` < @`+name+`_end`, name+"_end", end)
	}
}

// endOf is the first text, in the order of bytes, that comes after all that begin with a
// prefix; "" if there is none.
func endOf(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xD7FF:
			return prefix + "\uE000" // between them are surrogates
		case last < utf8.MaxRune:
			return prefix + string(last+1)
		}
	}
	return ""
}

// onOff is a setting's text.
func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// tooBroad refuses a list that would read a large table.
func (q *query) tooBroad() error { return fmt.Errorf("%w: %s", ErrTooBroad, q.advice) }

// refused refuses a filter that makes no sense.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{registry.ErrRefused}, args...)...)
}
