package nsqcompat

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/testenv"
)

func throughProxy(t *testing.T, config *pgxpool.Config, proxy *testenv.Proxy) *pgxpool.Pool {
	t.Helper()
	at, err := netip.ParseAddrPort(proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks = at.Addr().String(), at.Port(), nil
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// foreign fills the log as a restored database has it: transactions numbered
// far beyond this cluster's. The reader has passed message 2, whose transaction
// came before that of message 1.
func foreign(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	exec(t, db, `
		INSERT INTO topic_messages (xid, topic, body) VALUES
			('900000000002', 'restored', '1'), ('900000000001', 'restored', '2'), ('900000000003', 'restored', '3')`)
	exec(t, db, `INSERT INTO topic_readers VALUES ('nsq-mirror', '900000000001', 2)`)
}

func TestRestoreIntoAnotherClusterLosesNoMessage(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	foreign(t, db)
	exec(t, db, `INSERT INTO topic_readers VALUES ('slow', '0', 0), ('done', '900000000003', 3)`)
	restored := subscribe(t, nsqd.TCPAddr, "restored")
	put(t, db, "restored", "4") // since the restore, and before the mirror
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	// 2 comes again: by id, which is all the order that is left, it is behind 1.
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, restored.take(t, 4)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	rows, _ := db.Query(t.Context(), `SELECT name || ' ' || xid || ' ' || message_id FROM topic_readers WHERE name <> 'nsq-mirror' ORDER BY name`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"done 3 3", "slow 3 0"}, got); diff != "" {
		t.Errorf("other readers (-want +got):\n%s", diff)
	}
}

// Messages that nobody has read yet may be ahead of this cluster even if the
// cursor is not.
func TestMessagesFromAnotherClusterDoNotWaitForTheirNumber(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	foreign(t, db)
	exec(t, db, `UPDATE topic_readers SET xid = '10'`)
	_, log := leader(t, db, MirrorOptions{})
	at, err := log.cursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (position{XID: 3}); at != want {
		t.Errorf("cursor = %+v, want %+v", at, want)
	}
	if renumbered, err := log.enter(t.Context()); renumbered || err != nil {
		t.Errorf("enter again = %t, %v; want nothing to do", renumbered, err)
	}
}

func TestLagCountsBehindTheCursor(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	m := NewMirror(db, MirrorOptions{})
	lag := func() Lag {
		t.Helper()
		lag, err := m.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return lag
	}
	if got := lag(); got != (Lag{}) {
		t.Errorf("Lag of an empty log = %+v", got)
	}
	exec(t, db, `
		INSERT INTO topic_messages (xid, topic, body, created_at)
		SELECT '10', 't', 'x', now() - interval '48 hours' - n * interval '1 minute' FROM generate_series(1, 3) n`)
	if got := lag(); got.Messages != 3 || got.Oldest.Round(time.Minute) != 48*time.Hour+3*time.Minute {
		t.Errorf("Lag of a reader that is not there yet = %+v, want 3 messages of 48h3m", got)
	}
	exec(t, db, `INSERT INTO topic_readers VALUES ('nsq-mirror', '10', 2)`)
	if got := lag(); got.Messages != 1 {
		t.Errorf("Lag = %+v, want 1 message", got)
	}
}

// A reader must cost the same however long the log is.
func TestReadingWalksTheKeyOnly(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	exec(t, db, `INSERT INTO topic_messages (xid, topic, body) SELECT (n / 10)::text::xid8, 't', 'x' FROM generate_series(10, 50000) n`)
	_, log := leader(t, db, MirrorOptions{})
	rows, _ := log.conn.Query(t.Context(), "EXPLAIN "+afterSQL, pgx.NamedArgs{"xid": uint64(500), "id": int64(7), "n": 500})
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	walks := 0
	for _, node := range plan {
		if strings.Contains(node, "Index Scan using pipeline_messages_") {
			walks++
		}
		if strings.Contains(node, "Seq Scan") || strings.Contains(node, "Sort  ") {
			t.Errorf("plan = %q, want only walks along the keys of partitions", plan)
		}
	}
	if walks != 3 {
		t.Errorf("plan = %q, want a walk along the key of each of three partitions", plan)
	}
}
