package testenv

import (
	"strings"
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

// Refused runs a statement that the database has to refuse, with an error that contains
// reason. Without a reason the error of a statement with a wrong name would do too.
func Refused(t testing.TB, db *pgxpool.Pool, reason, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: %v, want it refused because %q", sql, err, reason)
	}
}
