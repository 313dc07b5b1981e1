package lists

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// from reads some records of a table.
func from(table string) string { return strings.ReplaceAll(some, "{table}", table) }

// page is a place in a list.
type page string

const (
	first page = "first"
	deep  page = "deep" // in the middle
	last  page = "last"
)

// visit is a request for a page of a list.
type visit struct {
	list string
	page page
	url  string
}

// scope is whose records a person sees: 0: those of all.
type scope int64

func (s scope) in(column string) string {
	if s == 0 || column == "" {
		return `true`
	}
	return fmt.Sprintf(`%s = %d`, column, s)
}

// visits are all pages that a person of a scope may read of a list. read requests a URL.
func (l *list) visits(ctx context.Context, db *pgxpool.Pool, s scope, read func(path string) (answer, error)) (found []visit, err error) {
	values := []string{""}
	if l.values != "" {
		column := "x.institution_id"
		if strings.Contains(l.values, "FROM institutions x") {
			column = "x.id"
		}
		if values, err = texts(ctx, db, strings.ReplaceAll(l.values, "{in}", s.in(column))); err != nil {
			return nil, fmt.Errorf("find values for %s: %w", l.name, err)
		}
	}
	for _, v := range values {
		path := l.url(v)
		found = append(found, visit{l.name, first, path})
		a, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		if a.Next == nil || l.of == "" {
			continue
		}
		of := s
		if l.values == institutions {
			if err := db.QueryRow(ctx, `SELECT id FROM institutions WHERE identifier = $1`, v).Scan(&of); err != nil {
				return nil, fmt.Errorf("look up %s: %w", v, err)
			}
		}
		more, err := l.later(ctx, db, of, v, *a.Next)
		if err != nil {
			return nil, fmt.Errorf("find pages of %s: %w", l.name, err)
		}
		found = append(found, more...)
	}
	return found, nil
}

func (l *list) url(value string) string {
	query := strings.TrimSuffix(l.query, "%s")
	switch query {
	case l.query:
	case "":
		query = value // which is a query itself
	default:
		query += url.QueryEscape(value)
	}
	if query == "" {
		return l.path
	}
	return l.path + "?" + query
}

// later are the deep and the last page of a list whose second page is at next.
func (l *list) later(ctx context.Context, db *pgxpool.Pool, s scope, value, next string) (found []visit, err error) {
	for _, p := range []page{deep, last} {
		k, err := l.place(ctx, db, s, value, p)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		at, err := k.of(next)
		if err != nil {
			return nil, err
		}
		found = append(found, visit{l.name, p, at})
	}
	return found, nil
}

// place is a key in a list: one of a record in the middle, or of one that few follow.
type place struct {
	id         int64
	at         *time.Time
	identifier string
}

const (
	few    = 20     // records that follow the last page's key: less than a page
	middle = 10_000 // records that follow the deep page's key, in a list by identifiers that has more than twice as many
)

// place finds the key of a page. The middle of a list is between its lowest and its highest
// time or ID.
func (l *list) place(ctx context.Context, db *pgxpool.Pool, s scope, value string, p page) (k place, err error) {
	rows := strings.NewReplacer("{in}", s.in(l.in), "{v}", "$1::text").Replace(l.of)
	var args []any
	if strings.Contains(rows, "$1") {
		args = append(args, value)
	}
	columns, by, direction := l.key.columns(), cmp.Or(l.key.at, l.key.id, l.key.identifier), ""
	if l.key.up {
		direction = " DESC"
	}
	order, skip := by+direction, fmt.Sprint(few)
	if l.key.at != "" {
		order += ", " + l.key.id
	}
	switch {
	case p == deep && l.key.identifier != "":
		skip = fmt.Sprintf(`(SELECT count(*) / 2 FROM (SELECT FROM %s LIMIT %d) c)`, rows, 2*middle)
	case p == deep:
		skip = "0"
		end := func(direction string) string {
			return fmt.Sprintf(`(SELECT %s FROM %s ORDER BY %s %s LIMIT 1)`, by, rows, by, direction)
		}
		rows += fmt.Sprintf(` AND %s >= %s + (%s - %s) / 2`, by, end("ASC"), end("DESC"), end("ASC"))
	}
	sql := fmt.Sprintf(`SELECT %s FROM %s ORDER BY %s OFFSET %s LIMIT 1`, columns, rows, order, skip)
	if err := db.QueryRow(ctx, sql, args...).Scan(&k.id, &k.at, &k.identifier); err != nil {
		return k, fmt.Errorf("%s: %w", sql, err)
	}
	return k, nil
}

// columns are those of a [place].
func (k key) columns() string {
	return cmp.Or(k.id, "0") + ", " + cmp.Or(k.at, "NULL::timestamptz") + ", " + cmp.Or(k.identifier, "''")
}

// of puts the key in the place of the one of a URL of a page.
func (k place) of(next string) (string, error) {
	u, err := url.Parse(next)
	if err != nil {
		return "", fmt.Errorf("read the URL of the next page: %w", err)
	}
	q := u.Query()
	text, err := base64.RawURLEncoding.DecodeString(q.Get("after"))
	if err != nil {
		return "", fmt.Errorf("read the cursor: %w", err)
	}
	var cursor struct {
		Of  string          `json:"f"`
		Key json.RawMessage `json:"k"`
	}
	if err := json.Unmarshal(text, &cursor); err != nil {
		return "", fmt.Errorf("read the cursor: %w", err)
	}
	if cursor.Key, err = k.key(cursor.Key); err != nil {
		return "", err
	}
	if text, err = json.Marshal(cursor); err != nil {
		return "", fmt.Errorf("write the cursor: %w", err)
	}
	q.Set("after", base64.RawURLEncoding.EncodeToString(text))
	u.RawQuery = q.Encode()
	return u.RequestURI(), nil
}

// key is the key in the form of another.
func (k place) key(like json.RawMessage) (json.RawMessage, error) {
	var is any = k.id
	if len(like) > 0 && like[0] == '{' {
		fields := map[string]any{}
		if k.id != 0 {
			fields["id"] = k.id
		}
		if k.at != nil {
			fields["at"] = k.at
		}
		if k.identifier != "" {
			fields["identifier"] = k.identifier
		}
		is = fields
	}
	text, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("write the key: %w", err)
	}
	return text, nil
}

func texts(ctx context.Context, db *pgxpool.Pool, sql string) ([]string, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	return list, nil
}
