package registry_test

import (
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// connected is a pool as processes have it.
func connected(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	db := must.Get(dial.Connect(t.Context(), url, "test"))(t)
	t.Cleanup(db.Close)
	return db
}

// A standby that takes the place of its primary is no backup. Its timeline grows as that of one does.
func TestFailoverIsNoRestore(t *testing.T) {
	t.Parallel()
	primary := testenv.NewServer(t)
	db := connected(t, primary.URL)
	must.Get(db.Exec(t.Context(), `SELECT 1`))(t)
	standby := primary.Standby()
	must.Get(db.Exec(t.Context(), `UPDATE request_settings SET deletion_wait = '1 day'`))(t) // as heartbeats are written
	testenv.Eventually(t, "the standby to replay it", func() bool {
		var there bool
		err := connected(t, standby.URL+"&target_session_attrs=any").QueryRow(t.Context(), `SELECT deletion_wait = '1 day' FROM request_settings`).Scan(&there)
		return err == nil && there
	})
	before := origin(t, db)
	db.Close()
	primary.End(syscall.SIGQUIT)
	standby.Promote()

	after := connected(t, standby.URL)
	restore := must.Get(upkeep.In(registry.New(after)).Restored(t.Context()))(t)
	if now := origin(t, after); restore != nil || now == before {
		t.Errorf("after a failover the origin is %s, and was %s; restored: %+v", now, before, restore)
	}
	after.Close()
	standby.End(syscall.SIGINT)
	standby.Start()
	again := connected(t, standby.URL)
	if restore := must.Get(upkeep.In(registry.New(again)).Restored(t.Context()))(t); restore != nil {
		t.Errorf("after a restart: %+v", restore)
	}
}

func origin(t testing.TB, db *pgxpool.Pool) (is string) {
	t.Helper()
	must.Do(t, db.QueryRow(t.Context(), `SELECT origin FROM registry_origin`).Scan(&is))
	return is
}

// A database that was copied into another, as pg_restore does, is a restored one; the first that is seen is
// none. A role that may not look connects, and so does everybody to a database without a schema.
func TestCopyOfADatabaseIsARestore(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	url := testenv.DatabaseURL(t)
	db := connected(t, url)
	first := registry.New(db)
	if restore := must.Get(upkeep.In(first).Restored(t.Context()))(t); restore != nil {
		t.Errorf("a new database: %+v", restore)
	}
	of := func() { // has it come from another cluster
		t.Helper()
		must.Get(db.Exec(t.Context(), `UPDATE registry_origin SET origin = replace(origin, '/', '1/')`))(t)
	}
	of()
	if restore := must.Get(upkeep.In(registry.New(connected(t, url))).Restored(t.Context()))(t); restore != nil {
		t.Errorf("an empty database that was copied: %+v", restore)
	}
	of()
	must.Get(db.Exec(t.Context(), `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'in', 'out');
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) SELECT id, 'Ingest', 'Receive', 'a.tar', 'in', 'e', 1, now() FROM institutions`))(t)
	again := connected(t, url)
	restore := must.Get(upkeep.In(registry.New(again)).Restored(t.Context()))(t)
	if restore == nil {
		t.Fatal("it is not known as restored")
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM registry_restores`:                                                      1,
		`SELECT count(*) FROM stage_settings WHERE NOT paused`:                                        0,
		`SELECT count(*) FROM fixity_feed WHERE NOT paused`:                                           0,
		`SELECT count(*) FROM schedules WHERE paused AND job = 'janitor'`:                             1,
		`SELECT claim_token::int FROM work_items`:                                                     100_000,
		`SELECT nextval(pg_get_serial_sequence('work_items', 'id'))::int`:                             1_000_001,
		`SELECT count(*) FROM work_items WHERE status = 'Pending' AND id < 1000000`:                   1,
		`SELECT nextval(pg_get_serial_sequence('deletion_requests', 'id'))::int`:                      1,
		`SELECT count(*) FROM (SELECT note_origin() AS again) n WHERE again`:                          0,
		`SELECT count(*) FROM registry_restores WHERE reconciled_at IS NULL`:                          1,
		`SELECT count(*) FROM pauses WHERE lifted_at IS NULL AND reason NOT LIKE '%farol reconcile.'`: 0,
	} {
		var n int
		if err := again.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != want {
			t.Errorf("%s is %d, want %d: %v", sql, n, want, err)
		}
	}
	must.Do(t, upkeep.In(registry.New(again)).Reconciled(t.Context()))
	for _, sql := range []string{`SELECT count(*) FROM stage_settings WHERE paused`, `SELECT count(*) FROM schedules WHERE paused`, `SELECT count(*) FROM pauses WHERE lifted_at IS NULL`} {
		var n int
		if err := again.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s is %d: %v", sql, n, err)
		}
	}
	must.Get(connected(t, a.db.Config().ConnString()).Exec(t.Context(), `DROP FUNCTION note_origin()`))(t)
	must.Get(connected(t, a.db.Config().ConnString()).Exec(t.Context(), `SELECT 1`))(t)
}
