package claim

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// A process that is stopped in the middle of a transaction must not keep others
// from claiming and reaping for as long as it sleeps.
func TestTransactionsOfSleepersEnd(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	for name, options := range map[string][]dial.Option{"directly": nil, "pooled": {dial.Through("transaction")}, "prepared": {dial.Through("prepared")}} {
		at := url
		if options != nil {
			at = testenv.Pooled(t, url)
		}
		db := must.Get(dial.Connect(t.Context(), at, "test", options...))(t)
		t.Cleanup(db.Close)
		p := must.Get(newPostgres(db, nil))(t)
		t.Cleanup(p.close)
		for _, l := range []lane.Lane{p.hot, p.beat, p.upkeep} {
			err := l.Transact(t.Context(), func(tx pgx.Tx) error {
				var most string
				err := tx.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&most)
				if most != "10s" {
					t.Errorf("%s, a transaction may idle for %q, want 10s", name, most)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if options == nil && idles(t, db) != "30s" {
			t.Errorf("a transaction of a stage may idle for %s, want 30s", idles(t, db))
		}
	}
}

func idles(t *testing.T, db *pgxpool.Pool) (most string) {
	t.Helper()
	must.Do(t, db.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&most))
	return most
}

// Where one item of a page cannot be ended, the items are listed first and ended one by
// one. A lease that was renewed in between is not ended.
func TestRenewedLeaseIsNotReaped(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	var id int64
	must.Do(t, db.QueryRow(t.Context(), `
		WITH i AS (INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore') RETURNING id)
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Receive', 'a.tar', 'receiving', 'e', 1, now() FROM i RETURNING id`).Scan(&id))
	e := must.Get(New(t.Context(), db, DefaultOptions()))(t)
	t.Cleanup(e.Close)
	if items, err := e.Claim(t.Context(), Filter{Stages: []Want{{"Receive", 1}}}, 1); err != nil || len(items) != 1 {
		t.Fatalf("Claim = %v, %v", items, err)
	}
	for _, step := range []struct {
		lease string
		want  int
	}{{"now() + interval '1 hour'", 0}, {"now() - interval '1 second'", 1}} {
		must.Get(db.Exec(t.Context(), `UPDATE work_items SET lease_expires_at = `+step.lease))(t)
		if list, err := reapIn(t.Context(), db, []int64{id}, newDeaths(nil, nil)); err != nil || len(list) != step.want {
			t.Errorf("with a lease until %s, %d items are reaped, %v; want %d", step.lease, len(list), err, step.want)
		}
	}
}
