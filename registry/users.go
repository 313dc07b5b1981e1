package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Roles of users.
const (
	RoleAdmin              = "admin"               // the archive's own staff
	RoleOperator           = "operator"            // looks after the queue and the machinery, and sees no records
	RoleAuditor            = "auditor"             // reads, of one institution or of all
	RoleInstitutionalAdmin = "institutional_admin" // may request deletions, and approve those of others
	RoleInstitutionalUser  = "institutional_user"  // may have things restored
)

const usersSQL = `
SELECT u.id, u.email, u.name, coalesce(i.identifier, '') AS institution, coalesce(u.institution_id, 0) AS institution_id, u.role,
	u.deactivated_at, u.created_at
FROM users u LEFT JOIN institutions i ON i.id = u.institution_id`

// AddUser registers a person by e-mail, name, role and institution; the other
// fields are ignored. An e-mail that is taken, in whatever case, is ErrRefused, and
// an institution that there is not ErrNotFound.
func (r *Registry) AddUser(ctx context.Context, u record.User) (record.User, error) {
	var id int64
	err := r.db.QueryRow(ctx, `
		INSERT INTO users (email, name, role, institution_id)
		SELECT $1, $2, $3, i.id FROM (VALUES (1)) one LEFT JOIN institutions i ON i.identifier = $4
		WHERE $4 = '' OR i.id IS NOT NULL
		RETURNING id`, u.Email, u.Name, u.Role, u.Institution).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return record.User{}, fmt.Errorf("add user %q: %w: there is no institution %q", u.Email, ErrNotFound, u.Institution)
	}
	if err != nil {
		return record.User{}, fmt.Errorf("add user %q: %w", u.Email, Refusal(err))
	}
	return r.oneUser(ctx, r.db, u.Email)
}

// Users lists the people of an institution, or of all with "".
func (r *Registry) Users(ctx context.Context, institution string) ([]record.User, error) {
	return Collect[record.User](ctx, r.db, "list users", usersSQL+` WHERE $1 = '' OR i.identifier = $1 ORDER BY u.email`, institution)
}

// RowQuerier is the database or a transaction.
type RowQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (r *Registry) oneUser(ctx context.Context, db RowQuerier, email string) (record.User, error) {
	rows, _ := db.Query(ctx, usersSQL+` WHERE lower(u.email) = lower($1)`, email)
	u, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.User])
	if err != nil {
		return record.User{}, fmt.Errorf("look up user %q: %w", email, Refusal(err))
	}
	return u, nil
}

// Actor returns a person who may act, which who was deactivated may not.
func (r *Registry) Actor(ctx context.Context, db RowQuerier, email string) (record.User, error) {
	u, err := r.oneUser(ctx, db, email)
	if errors.Is(err, ErrNotFound) {
		return u, &Refused{Code: "no-user", Text: fmt.Sprintf("there is no user %q", email), Kind: ErrRefused}
	}
	if err == nil && u.DeactivatedAt != nil {
		return u, fmt.Errorf("%w: the user %s was deactivated", ErrRefused, u.Email)
	}
	return u, err
}
