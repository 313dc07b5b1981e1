package testenv

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Scene runs statements that set the scene of a test: those that make what time,
// an engine or an accident would have made of rows. The rules for what people type
// would complete or refuse them, so no trigger runs and no foreign key is looked
// at; what such a rule keeps besides is the statement's own business.
func Scene(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), sql, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
