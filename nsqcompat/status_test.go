package nsqcompat

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A server for people knows whether a mirror runs and when one published last, as a database
// user that may not see the sessions of others.
func TestServersKnowWhetherAMirrorRuns(t *testing.T) {
	t.Parallel()
	at, nsqd := testenv.DatabaseURL(t), testenv.NSQ(t)
	pool := func(url string) *pgxpool.Pool {
		db := must.Get(pgxpool.New(t.Context(), url))(t)
		t.Cleanup(db.Close)
		return db
	}
	work, web := pool(at), pool(testenv.WebURL(t, at))
	server := NewMirror(web, MirrorOptions{NSQDHTTPAddr: nsqd.HTTPAddr})
	if s, err := server.Status(t.Context()); err != nil || s.Leader != nil || s.Moved != nil {
		t.Errorf("before: %+v, %v", s, err)
	}
	newTestLeader(t, work, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	if s, err := server.Status(t.Context()); err != nil || s.Leader == nil || s.Leader.PID == 0 || s.Leader.Since != nil || s.Leader.Client != "" || s.Moved == nil {
		t.Errorf("as a server: %+v, %v", s, err)
	}
	super := NewMirror(work, MirrorOptions{NSQDHTTPAddr: nsqd.HTTPAddr})
	if s, err := super.Status(t.Context()); err != nil || s.Leader == nil || s.Leader.Since == nil || s.Leader.Client == "" {
		t.Errorf("as one that may see sessions: %+v, %v", s, err)
	}
}
