package claim_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(childVar); arg != "" {
		os.Exit(childWorker(arg))
	}
	flag.Set("rapid.steps", "100") //nolint:errcheck // it is there; the command line goes before
	testenv.Main(m)
}

// queue is a database of the test's own with one institution in it.
type queue struct {
	t  testing.TB
	db *pgxpool.Pool
}

func newQueue(t testing.TB) *queue {
	t.Helper()
	q := &queue{t, testenv.Database(t)}
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	q.exec(`UPDATE stage_settings SET cap = 2 WHERE stage = 'Record'`)
	return q
}

func (q *queue) exec(sql string, args ...any) {
	q.t.Helper()
	if _, err := q.db.Exec(context.Background(), sql, args...); err != nil {
		q.t.Fatalf("%s: %v", sql, err)
	}
}

// value reads one value of one row.
func value[T any](q *queue, sql string, args ...any) T {
	q.t.Helper()
	var v T
	if err := q.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		q.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

var bags atomic.Int64 //nolint:gochecknoglobals // names are unique over all tests of the package

// put makes an item of a size in bytes at a stage.
func (q *queue) put(stage registry.Stage, size int64) int64 {
	q.t.Helper()
	return value[int64](q, `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', $1, $2, 'receiving', repeat('e', 32), $3, now() FROM institutions RETURNING id`,
		stage, fmt.Sprintf("bag-%d.tar", bags.Add(1)), size)
}

func (q *queue) engine(change ...func(*claim.Options)) *claim.Engine {
	q.t.Helper()
	o := claim.DefaultOptions()
	for _, c := range change {
		c(&o)
	}
	e := must.Get(claim.New(context.Background(), q.db, o))(q.t)
	q.t.Cleanup(e.Close)
	return e
}

// claimOne claims an item of a stage and holds it.
func (q *queue) claimOne(e *claim.Engine, stage registry.Stage) *claim.Hold {
	q.t.Helper()
	items, err := e.Claim(context.Background(), at(stage, 1), 1)
	if err != nil || len(items) != 1 {
		q.t.Fatalf("Claim(%s) = %d items, %v; want one", stage, len(items), err)
	}
	return e.Hold(context.Background(), items[0])
}

func (q *queue) settle(h *claim.Hold, done claim.Done, result error) {
	q.t.Helper()
	if err := h.Settle(context.Background(), done, result); err != nil {
		q.t.Fatalf("Settle: %v", err)
	}
}

// lapse lets the leases of all items run out.
func (q *queue) lapse() {
	q.t.Helper()
	q.exec(`UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE status = 'Started'`)
}

func (q *queue) reap(e *claim.Engine) int {
	q.t.Helper()
	return must.Get(e.Reap(context.Background()))(q.t)
}

// row is what a transition leaves of an item.
type row struct {
	Stage, Status string
	Attempt       int
	Retry, Review bool
	Leased        bool
	Due           bool
	Note          string
	Code          string
}

func (q *queue) row(id int64) (r row) {
	q.t.Helper()
	must.Do(q.t, q.db.QueryRow(context.Background(), `
		SELECT stage, status, attempt, retry, needs_admin_review, lease_expires_at IS NOT NULL, run_at <= now(), note, error_code
		FROM work_items WHERE id = $1`, id).
		Scan(&r.Stage, &r.Status, &r.Attempt, &r.Retry, &r.Review, &r.Leased, &r.Due, &r.Note, &r.Code))
	return r
}

func at(stage registry.Stage, n int) claim.Filter {
	return claim.Filter{Stages: []claim.Want{{Stage: stage, Most: n}}}
}

func itoa(port uint16) string { return fmt.Sprint(port) }
