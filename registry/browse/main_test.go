package browse_test

import (
	"context"
	_ "embed"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// sceneSQL makes the records of two institutions; one has hardly any among the
// newest items. The name of one begins as that of the other does.
//
//go:embed testdata/scene.sql
var sceneSQL string

// eventsSQL makes their events; some are the rows of an ingest.
//
//go:embed testdata/events.sql
var eventsSQL string

// archive is a registry of the test's own, with connections as [dial.Connect] makes them.
type archive struct {
	*registry.Registry
	t   testing.TB
	db  *pgxpool.Pool
	ins []record.Institution
}

func newArchive(t testing.TB) *archive {
	t.Helper()
	db := testenv.Database(t)
	config := db.Config()
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET jit = off; SET plan_cache_mode = force_generic_plan`)
		return err
	}
	generic := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(generic.Close)
	a := &archive{registry.New(generic), t, generic, nil}
	for _, identifier := range []string{"test.edu", "test.edu.org"} {
		in := must.Get(a.AddInstitution(t.Context(), record.Institution{
			Name: "Test", Identifier: identifier, ReceivingBucket: "receiving." + identifier, RestoreBucket: "restore." + identifier,
		}))(t)
		a.ins = append(a.ins, in)
	}
	testenv.Scene(t, db, sceneSQL)
	must.Get(db.Exec(t.Context(), eventsSQL+`; ANALYZE`))(t)
	return a
}

// everything are the records without a bound.
func (a *archive) everything() browse.Records { return browse.In(a.Registry, registry.Everything()) }

// rows reads what an oracle needs.
func rows[T any](a *archive, sql string) []T {
	a.t.Helper()
	r, _ := a.db.Query(context.Background(), sql)
	list, err := pgx.CollectRows(r, pgx.RowToStructByName[T])
	if err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return list
}
