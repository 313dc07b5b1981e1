package nsqcompat

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func throughProxy(t *testing.T, config *pgxpool.Config, proxy *injure.Proxy) *pgxpool.Pool {
	t.Helper()
	at := must.Get(netip.ParseAddrPort(proxy.Addr()))(t)
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks = at.Addr().String(), at.Port(), nil
	db := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(db.Close)
	return db
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

func TestRestoreIntoAnotherClusterLosesNoMessage(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	foreign(t, db)
	testenv.Exec(t, db, `INSERT INTO topic_readers VALUES ('slow', '0', 0), ('done', '900000000003', 3)`)
	restored := subscribe(t, nsqd.TCPAddr, "restored")
	testenv.PutMessages(t, db, "restored", "4") // since the restore, and before the mirror
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	// 2 comes again: by id, which is all the order that is left, it is behind 1.
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, restored.take(t, 4)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	rows, _ := db.Query(t.Context(), `SELECT name || ' ' || xid || ' ' || message_id FROM topic_readers WHERE name <> 'nsq-mirror' ORDER BY name`)
	got := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	if diff := cmp.Diff([]string{"done 3 3", "slow 3 0"}, got); diff != "" {
		t.Errorf("other readers (-want +got):\n%s", diff)
	}
}
