package registry_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// archive is a registry of the test's own with one institution.
type archive struct {
	*registry.Registry
	t  testing.TB
	db *pgxpool.Pool
	in record.Institution
}

func newArchive(t testing.TB) *archive {
	t.Helper()
	db := testenv.Database(t)
	a := &archive{registry.New(db), t, db, record.Institution{}}
	a.in = a.institution("test.edu")
	return a
}

func (a *archive) institution(identifier string) record.Institution {
	a.t.Helper()
	return must.Get(a.AddInstitution(context.Background(), record.Institution{
		Name: "Test", Identifier: identifier, ReceivingBucket: "receiving." + identifier, RestoreBucket: "restore." + identifier,
	}))(a.t)
}

func (a *archive) exec(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.db.Exec(context.Background(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

// scene makes rows what time or an engine would have made of them.
func (a *archive) scene(sql string) {
	a.t.Helper()
	testenv.Scene(a.t, a.db, sql)
}

func value[T any](a *archive, sql string, args ...any) T {
	a.t.Helper()
	var v T
	if err := a.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return v
}
