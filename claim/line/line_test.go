package line

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A wait that a notice has ended takes no turn that comes after it: nobody would look at it before
// the next notice.
func TestWaitThatHasEndedTakesNoTurn(t *testing.T) {
	t.Parallel()
	conn := must.Get(pgx.ConnectConfig(t.Context(), testenv.Database(t).Config().ConnConfig))(t)
	t.Cleanup(func() { conn.Close(context.Background()) }) //nolint:errcheck // the test is done with it
	must.Get(conn.Exec(t.Context(), "LISTEN "+Work))(t)
	turned := make(chan struct{}, 1)
	l := &listener{Conn: conn, Ears: Ears{Turned: turned}}
	for i := range 300 {
		must.Get(conn.Exec(t.Context(), "NOTIFY "+Work))(t)
		l.spoken = time.Now()
		if n := must.Get(l.next(t.Context()))(t); n == nil {
			t.Fatal("the notice was not received")
		}
		turned <- struct{}{}
		for range 5 {
			runtime.Gosched()
		}
		select {
		case <-turned:
		default:
			t.Fatalf("turn %d was taken by the wait before it", i)
		}
	}
}
