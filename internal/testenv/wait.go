package testenv

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/retry"
)

// Patience is how long a test waits for an event that must come. It bounds a hang, and
// is not a measure of speed.
const Patience = 60 * time.Second

// Eventually waits until a condition holds, and fails the test if it does not within
// [Patience].
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for !holds() {
		if !retry.Pause(ctx, 5*time.Millisecond) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// Exec runs a statement, and fails the test if the database refuses it.
func Exec(t testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
