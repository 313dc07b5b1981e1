package preserved_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/storage"
)

// gate is the only way of a worker to S3 and to the database. It counts what goes through, so
// that the worker can die, or something else can happen, before any request or statement.
type gate struct {
	touched func(bucket, key string) // an object may be another from now on

	mu     sync.Mutex
	events int                      // requests and statements of the current attempt
	asked  int                      // requests of it
	killAt int                      // event before which the worker dies; 0: none
	dead   bool                     // nothing goes through any more
	revive bool                     // but for statements
	die    func()                   // called when it dies
	deny   string                   // bucket that refuses everything; "": none
	before func(int, *http.Request) // called before each request, with its number
}

// plan is what goes wrong during one attempt.
type plan struct {
	killAt int
	deny   string
	before func(int, *http.Request)
}

func (g *gate) begin(p plan, die func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events, g.asked, g.dead, g.revive = 0, 0, false, false
	g.killAt, g.deny, g.before, g.die = p.killAt, p.deny, p.before, die
}

// lets the worker's statements through again: it has lost its item.
func (g *gate) comesBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revive = true
}

func (g *gate) passes(statement bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.events++; g.killAt > 0 && g.events >= g.killAt && !g.dead {
		g.dead = true
		g.die()
	}
	return !g.dead || g.revive && statement
}

// TraceQueryStart is of pgx.QueryTracer.
func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return g.traced(ctx)
}

// TraceQueryEnd is of pgx.QueryTracer.
func (*gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart is of pgx.BatchTracer.
func (g *gate) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return g.traced(ctx)
}

// TraceBatchQuery is of pgx.BatchTracer.
func (*gate) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is of pgx.BatchTracer.
func (*gate) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (g *gate) traced(ctx context.Context) context.Context {
	if g.passes(true) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// serve starts the way to S3.
func (g *gate) serve(w *world) (change func(*storage.Target)) {
	forward := w.S3.Proxy(w.T)
	server := httptest.NewUnstartedServer(g.handler(forward))
	server.EnableHTTP2 = false
	server.StartTLS()
	w.T.Cleanup(server.Close)
	caFile := testenv.CAFile(w.T, server)
	return func(t *storage.Target) { t.Endpoint, t.CAFile = server.URL, caFile }
}

func (g *gate) handler(forward *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		passes := g.passes(false)
		g.mu.Lock()
		g.asked++
		n, before, deny := g.asked, g.before, g.deny
		g.mu.Unlock()
		switch {
		case !passes:
			panic(http.ErrAbortHandler)
		case deny == bucket:
			out.WriteHeader(http.StatusForbidden)
			fmt.Fprint(out, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
			return
		case before != nil:
			before(n, r)
		}
		forward.ServeHTTP(out, r)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			g.touched(bucket, key)
		}
	})
}
