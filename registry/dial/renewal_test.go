package dial_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// A password may be replaced while connections by the old one are open: new ones, of a pool and past it,
// are made by the new one.
func TestPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	own := testenv.Database(t)
	role := "renewed_" + strings.ToLower(rand.Text()[:12])
	at := must.Get(url.Parse(own.Config().ConnString()))(t)
	at.RawQuery = "sslmode=disable" // without what is for pools
	set := func(verb, password string) {
		t.Helper()
		must.Get(own.Exec(t.Context(), verb+` ROLE `+role+` LOGIN PASSWORD '`+password+`'`))(t)
		at.User = url.UserPassword(role, password)
	}
	set("CREATE", "first")
	t.Cleanup(func() { _, _ = own.Exec(t.Context(), `DROP ROLE `+role) })
	var now atomic.Pointer[string]
	say := func(text string) { now.Store(&text) }
	say(at.String())
	again := func() string { return *now.Load() }

	db := must.Get(dial.Connect(t.Context(), at.String(), "test", dial.Renewed(again)))(t)
	t.Cleanup(db.Close)
	session := must.Get(dial.Session(at.String(), "test"))(t)
	dial.Renew(session, again)
	must.Do(t, db.Ping(t.Context()))
	set("ALTER", "second")
	old := must.Get(db.Acquire(t.Context()))(t)
	t.Cleanup(old.Release)
	_, byPool := db.Acquire(t.Context())
	_, alone := pgx.ConnectConfig(t.Context(), session)
	if byPool == nil || alone == nil {
		t.Fatalf("by the old password: %v, %v", byPool, alone)
	}
	say("postgres://[") // which is being written
	if _, err := pgx.ConnectConfig(t.Context(), session); err == nil {
		t.Fatal("nonsense has let us in")
	}
	say(at.String())
	must.Get(db.Acquire(t.Context()))(t).Release()
	must.Do(t, must.Get(pgx.ConnectConfig(t.Context(), session))(t).Close(t.Context()))
	must.Do(t, old.Ping(t.Context()))
}
