package registry_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// A new database that fills quickly has statistics of when it was empty, and sessions keep
// the plans that they made then. What each item asks must not walk all others then.
func TestPlansOfAnEmptyDatabaseServeAFullOne(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	item, _ := a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.exec(`ANALYZE work_items, intellectual_objects, generic_files, storage_records`)
	config := a.db.Config().Copy()
	config.MaxConns = 1 // so that the plans are kept
	one := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(one.Close)
	r := registry.New(one)
	ask := func() {
		t.Helper()
		must.Get(r.Repeats(t.Context(), item))(t)
	}
	for range 10 { // after some, PostgreSQL keeps a plan for any arguments
		ask()
	}
	a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		SELECT $1, 'test.edu/other' || n, 't', 'other' || n, 'p', 'e' || n FROM generate_series(1, 3000) n`, a.in.ID)
	before := rowsRead(t, one)
	for range 5 {
		ask()
	}
	if n := rowsRead(t, one) - before; n > 500 {
		t.Errorf("%d rows were read for five items, want 500 at most", n)
	}
}

// rowsRead is how many rows of tables were read by this session and those that have ended.
func rowsRead(t *testing.T, db *pgxpool.Pool) (n int64) {
	t.Helper()
	_, err := db.Exec(context.Background(), `SELECT pg_stat_force_next_flush()`)
	if err == nil {
		err = db.QueryRow(context.Background(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables`).Scan(&n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
