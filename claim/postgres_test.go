package claim

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/registry"
)

// A process that is stopped in the middle of a transaction must not keep others
// from claiming and reaping for as long as it sleeps.
func TestTransactionsOfSleepersEnd(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	for name, options := range map[string][]registry.Option{"directly": nil, "pooled": {registry.ThroughPooler}} {
		at := url
		if options != nil {
			at = testenv.Pooled(t, url)
		}
		db, err := registry.Connect(t.Context(), at, "test", options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		p, err := newPostgres(db, nil)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := db.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&most); err != nil {
		t.Fatal(err)
	}
	return most
}
