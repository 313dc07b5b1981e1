package topiclog

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// reader returns the mirror's reader, locked and registered, and its connection.
func reader(t *testing.T, db *pgxpool.Pool) (Reader, *pgx.Conn) {
	t.Helper()
	conn := must.Get(db.Acquire(t.Context()))(t)
	t.Cleanup(conn.Release)
	r := NewReader(conn.Conn(), "nsq-mirror")
	if locked, err := r.Lock(t.Context()); err != nil || !locked {
		t.Fatalf("Lock = %t, %v", locked, err)
	}
	must.Get(r.Register(t.Context()))(t)
	return r, conn.Conn()
}

// foreign fills the log as a restored database has it: transactions numbered
// far beyond this cluster's. The reader has passed message 2, whose transaction
// came before that of message 1.
func foreign(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	testenv.Exec(t, db, `
		INSERT INTO topic_messages (xid, topic, body) VALUES
			('900000000002', 'restored', '1'), ('900000000001', 'restored', '2'), ('900000000003', 'restored', '3')`)
	testenv.Exec(t, db, `INSERT INTO topic_readers VALUES ('nsq-mirror', '900000000001', 2)`)
}

// Messages that nobody has read yet may be ahead of this cluster even if the
// cursor is not.
func TestMessagesFromAnotherClusterDoNotWaitForTheirNumber(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	foreign(t, db)
	testenv.Exec(t, db, `UPDATE topic_readers SET xid = '10'`)
	log, _ := reader(t, db)
	at := must.Get(log.Position(t.Context()))(t)
	if want := (Position{XID: 3}); at != want {
		t.Errorf("Position = %+v, want %+v", at, want)
	}
	if renumbered, err := log.Register(t.Context()); renumbered || err != nil {
		t.Errorf("Register again = %t, %v; want nothing to do", renumbered, err)
	}
}

func TestLagCountsBehindTheCursor(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	lag := func() Lag {
		t.Helper()
		return must.Get(ReadLag(t.Context(), db, "nsq-mirror"))(t)
	}
	if got := lag(); got != (Lag{}) {
		t.Errorf("Lag of an empty log = %+v", got)
	}
	testenv.Exec(t, db, `
		INSERT INTO topic_messages (xid, topic, body, created_at)
		SELECT '10', 't', 'x', now() - interval '48 hours' - n * interval '1 minute' FROM generate_series(1, 3) n`)
	if got := lag(); got.Messages != 3 || got.Oldest.Round(time.Minute) != 48*time.Hour+3*time.Minute {
		t.Errorf("Lag of a reader that is not there yet = %+v, want 3 messages of 48h3m", got)
	}
	testenv.Exec(t, db, `INSERT INTO topic_readers VALUES ('nsq-mirror', '10', 2)`)
	if got := lag(); got.Messages != 1 {
		t.Errorf("Lag = %+v, want 1 message", got)
	}
}

// A reader must cost the same however long the log is.
func TestReadingWalksTheKeyOnly(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	testenv.Exec(t, db, `INSERT INTO topic_messages (xid, topic, body) SELECT (n / 10)::text::xid8, 't', 'x' FROM generate_series(10, 50000) n`)
	_, conn := reader(t, db)
	rows, _ := conn.Query(t.Context(), "EXPLAIN "+afterSQL, pgx.NamedArgs{"xid": uint64(500), "id": int64(7), "n": 500})
	plan := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
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
