package testenv

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Exec runs a statement, and fails the test if the database refuses it.
func Exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
