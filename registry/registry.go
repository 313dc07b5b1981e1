// Package registry keeps the records of the archive: institutions, work items
// as people see them, intellectual objects, files, checksums, copies and PREMIS
// events.
//
// It knows nothing of how work is done. What it writes it writes so that
// writing twice is writing once. The claim columns of a work item are written
// by package claim alone.
//
// What comes in are changes, and what goes out are the types of package record. Requests, plans,
// fixity, formats, upkeep and the topic log are packages below it.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotFound says that no such record exists.
var ErrNotFound = errors.New("not found")

// ErrRefused wraps what the database's own rules refuse, such as requeueing an
// item that has succeeded. The text says which rule and what to do.
var ErrRefused = errors.New("refused")

// ErrChanged says that a record has another version than the one that a change names.
var ErrChanged = errors.New("changed in the meantime")

// ErrLost says that a work item is no longer the writer's: its claim token has
// moved on.
var ErrLost = errors.New("claim lost")

// Registry is the records in one database. It is safe for concurrent use.
type Registry struct {
	db     Database
	agents Agents
}

// New returns the registry in db, which package migrations has brought up to
// date. Its events name [Farol].
func New(db *pgxpool.Pool) *Registry { return &Registry{Database{db}, Farol("", "")} }

// Signed returns the same registry, whose events name other agents.
func (r *Registry) Signed(a Agents) *Registry { return &Registry{r.db, a} }

// DB is the database for the packages below this one, whose records have rules of
// their own.
func (r *Registry) DB() Database { return r.db }

// Ping reports whether the database answers.
func (r *Registry) Ping(ctx context.Context) error {
	if err := r.db.Ping(ctx); err != nil {
		return fmt.Errorf("query the database: %w", err)
	}
	return nil
}

// Refused is what a rule of the schema refuses, or does not find. Each channel makes the next
// step from the code and the arguments, in its own words; neither changes from version to
// version.
type Refused struct {
	Code string // "" if the text says what to do
	Args map[string]string
	Text string // what is wrong
	Kind error  // ErrRefused or ErrNotFound
}

// NoSuch is the error of a record that there is not, such as "item 7".
func NoSuch(what string) error { return &Refused{Text: "there is no " + what, Kind: ErrNotFound} }

// Error is the text behind its kind.
func (r *Refused) Error() string { return r.Kind.Error() + ": " + r.Text }

// Unwrap returns the kind.
func (r *Refused) Unwrap() error { return r.Kind }

// Refusal makes an error that the schema's rules raised a [Refused].
func Refusal(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case !errors.As(err, &pg):
		return err
	case pg.Code == "22021" || pg.Code == "22P05": // no text of PostgreSQL's has it
		return fmt.Errorf("%w: a text contains a NUL, or is not UTF-8", ErrRefused)
	case pg.Code == "P0002": // no_data_found, raised by functions that are given an ID or a name
		return refused(ErrNotFound, pg)
	case pg.Code[:2] == "23" || pg.Code == "22P02" || pg.Code == "22023" || pg.Code == "54000": // constraints, bad input, bounds
		return refused(ErrRefused, pg)
	}
	return err
}

// codes of refusals are told from the names of constraints by their hyphens.
var codes = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)

// refused reads the code, and the arguments from the field that names a data type elsewhere:
// psql shows neither to people. The hint of a refusal with a code is in the words of psql.
func refused(kind error, pg *pgconn.PgError) *Refused {
	r := &Refused{Text: hinted(pg), Kind: kind}
	if pg.Hint != "" && codes.MatchString(pg.ConstraintName) {
		r.Code, r.Text = pg.ConstraintName, pg.Message
		if json.Unmarshal([]byte(pg.DataTypeName), &r.Args) != nil {
			r.Args = nil
		}
	}
	return r
}

// rules are constraints as anyone who typed what they refuse should read them.
//
//nolint:gochecknoglobals,gosec // a constant, but for Go; the tokens are names of constraints
var rules = map[string]string{
	"an e-mail address":             "that is not an e-mail address",
	"users_email_check":             "an e-mail has at most 254 characters, and no spaces",
	"users_name_check":              "a name has 2 to 200 characters",
	"institutions_name_check":       "a name has 2 to 200 characters",
	"institutions_identifier_check": "an identifier is a domain name in lower case",
	"api_tokens_name_key":           "there is a token of that name",
	"users_email":                   "there is a person with that e-mail",
	"institutions_identifier_key":   "there is an institution with that identifier",
	"staff_have_no_institution":     "people of an institution have one, and admins and operators have none",
	"users_role_check":              "the roles are admin, operator, auditor, institutional_admin and institutional_user",
	"api_tokens_name_check":         "a name has 1 to 100 bytes",
}

func hinted(pg *pgconn.PgError) string {
	if rule, ok := rules[pg.ConstraintName]; ok && pg.Hint == "" {
		return rule
	}
	text := pg.Message
	if pg.Detail != "" && !strings.HasPrefix(pg.Detail, "Failing row") { // the whole row says less than the rule
		text += " (" + pg.Detail + ")"
	}
	if pg.Hint != "" {
		text += ". " + pg.Hint
	}
	return text
}
