package claim_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// recorded is every statement that an engine sends, with its arguments.
type recorded struct {
	mu         sync.Mutex
	statements map[string][][]any
}

func (r *recorded) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.record(d.SQL, d.Args)
	return ctx
}

func (r *recorded) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorded) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *recorded) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	r.record(d.SQL, d.Args)
}

func (r *recorded) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (r *recorded) record(sql string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements[sql] = append(r.statements[sql], args)
}

func (r *recorded) sent(words string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sql := range r.statements {
		if strings.Contains(sql, words) {
			return true
		}
	}
	return false
}

// Workers whose clocks are hours apart continue, since none of them sends the
// database its time: in the whole life of items there is no argument that
// is a time, or has one in it. Durations there are, which now() is added to.
func TestOnlyTheDatabaseTellsTheTime(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	q := &queue{t, testPool(t, url)}
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	config := connect(t, url, "recorded").Config()
	r := &recorded{statements: map[string][][]any{}}
	config.ConnConfig.Tracer = r
	db := must.Get(dial.Open(t.Context(), config))(t)
	t.Cleanup(db.Close)
	e := (&queue{t, db}).engine(quick)
	running(t, e)
	for _, result := range []error{
		nil, errors.New("trouble"), claim.Snooze(time.Hour, "not yet"), claim.Fatal("bad-bag", "bad"), claim.Suspend("look", "look"),
		claim.Release("stopped"), claim.Cancel("unwanted", "unwanted"), claim.SendBack("Receive", "lost"),
	} {
		q.put("Receive", 1)
		h := q.claimOne(e, "Receive")
		h.CurrentFile("data/film.mov")
		q.settle(h, claim.Done{Next: "Validate"}, result)
		q.exec(`UPDATE work_items SET run_at = now() + interval '1 hour' WHERE stage = 'Receive' AND retry`)
	}
	q.exec(`UPDATE stage_settings SET cap = 1 WHERE action = 'Ingest' AND stage = 'Validate'`)
	testenv.Eventually(t, "a claim of a capped stage", func() bool {
		if items, err := e.Claim(t.Context(), at("Validate", 1), 1); err != nil || len(items) > 0 {
			q.lapse()
		}
		return r.sent("pg_advisory_xact_lock")
	})
	q.put("Receive", 1)
	q.carry(q.claimOne(e, "Receive"), claim.Done{Next: "Validate"})
	must.Get(e.Archive(t.Context(), time.Nanosecond))(t)
	for _, words := range []string{
		"'Item has started stage '", "ORDER BY id FOR UPDATE", "entered_token      = CASE", "FROM move_items(", "WITH mine AS", "WITH dead AS", "WITH RECURSIVE level",
		"FROM stage_settings", "UPDATE size_bands", "WITH untaken AS", "move_stranded()", "INSERT INTO work_items_archive", "pg_notify", "FROM worker_processes",
	} {
		testenv.Eventually(t, "the statement with "+words, func() bool { return r.sent(words) })
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for sql, calls := range r.statements {
		for _, args := range calls {
			for i, arg := range args {
				if hasTime(reflect.ValueOf(arg)) {
					t.Fatalf("argument %d is %v, by this process's clock:\n%s", i+1, arg, sql)
				}
			}
		}
	}
}

// hasTime reports whether a value is a time or holds one.
func hasTime(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return hasTime(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if hasTime(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if hasTime(key) || hasTime(v.MapIndex(key)) {
				return true
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return true
		}
		for i := range v.NumField() {
			if hasTime(v.Field(i)) {
				return true
			}
		}
	default:
	}
	return false
}
