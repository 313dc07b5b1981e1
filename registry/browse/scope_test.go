package browse_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/dial"
)

// lookUps are all look-ups, of records that only an institution has: by their number in a
// list of the oracle's, or of what does not exist.
func lookUps(o *oracle, of int64) map[string]func(b browse.Records) error {
	item := o.items[slices.IndexFunc(o.items, func(w itemRow) bool { return w.InstitutionID == of })]
	object := o.objects[slices.IndexFunc(o.objects, func(x objectRow) bool { return x.InstitutionID == of })]
	file := o.files[slices.IndexFunc(o.files, func(x fileRow) bool { return x.InstitutionID == of })]
	event := o.events[slices.IndexFunc(o.events, func(e eventRow) bool { return e.InstitutionID == of && e.FileID != nil })]
	own := o.events[slices.IndexFunc(o.events, func(e eventRow) bool { return e.InstitutionID == of && e.FileID == nil })]
	deletion := o.deletions[slices.IndexFunc(o.deletions, func(d deletionRow) bool { return d.InstitutionID == of })]
	alert := o.alerts[slices.IndexFunc(o.alerts, func(x alertRow) bool { return x.InstitutionID == of })]
	return map[string]func(b browse.Records) error{
		"item " + fmt.Sprint(item.ID):                 func(b browse.Records) error { _, err := b.Item(ctx, item.ID); return err },
		"object " + fmt.Sprint(object.ID):             func(b browse.Records) error { _, err := b.Object(ctx, object.ID); return err },
		fmt.Sprintf("object %q", object.Identifier):   func(b browse.Records) error { _, err := b.ObjectByIdentifier(ctx, object.Identifier); return err },
		"file " + fmt.Sprint(file.ID):                 func(b browse.Records) error { _, err := b.File(ctx, file.ID); return err },
		fmt.Sprintf("file %q", file.Identifier):       func(b browse.Records) error { _, err := b.FileByIdentifier(ctx, file.Identifier); return err },
		fmt.Sprintf("file %q", file.UUID):             func(b browse.Records) error { _, err := b.FileByUUID(ctx, file.UUID); return err },
		fmt.Sprintf("event %q", event.Identifier):     func(b browse.Records) error { _, err := b.Event(ctx, 0, *event.FileID, event.Identifier); return err },
		fmt.Sprintf("event %q", own.Identifier):       func(b browse.Records) error { _, err := b.Event(ctx, own.ObjectID, 0, own.Identifier); return err },
		"deletion request " + fmt.Sprint(deletion.ID): func(b browse.Records) error { _, err := b.Deletion(ctx, deletion.ID); return err },
		"alert " + fmt.Sprint(alert.ID):               func(b browse.Records) error { _, err := b.Alert(ctx, alert.ID, browse.AlertFilter{}); return err },
	}
}

// nothing are the same look-ups of what does not exist.
func nothing() map[string]func(b browse.Records) error {
	const id, text, uuid = math.MaxInt64, "nobody.edu/x", "00000000-0000-4000-8000-000000000000"
	return map[string]func(b browse.Records) error{
		"item " + fmt.Sprint(id):             func(b browse.Records) error { _, err := b.Item(ctx, id); return err },
		"object " + fmt.Sprint(id):           func(b browse.Records) error { _, err := b.Object(ctx, id); return err },
		fmt.Sprintf("object %q", text):       func(b browse.Records) error { _, err := b.ObjectByIdentifier(ctx, text); return err },
		"file " + fmt.Sprint(id):             func(b browse.Records) error { _, err := b.File(ctx, id); return err },
		fmt.Sprintf("file %q", text):         func(b browse.Records) error { _, err := b.FileByIdentifier(ctx, text); return err },
		fmt.Sprintf("file %q", uuid):         func(b browse.Records) error { _, err := b.FileByUUID(ctx, uuid); return err },
		fmt.Sprintf("event %q", uuid):        func(b browse.Records) error { _, err := b.Event(ctx, 0, 1, uuid); return err },
		"deletion request " + fmt.Sprint(id): func(b browse.Records) error { _, err := b.Deletion(ctx, id); return err },
		"alert " + fmt.Sprint(id):            func(b browse.Records) error { _, err := b.Alert(ctx, id, browse.AlertFilter{}); return err },
	}
}

// A record of another institution is not found, by the same words as one that does not
// exist; its own institution and the staff find it.
func testLookUps(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	one, two := browse.In(a.Registry, registry.Only(a.ins[0])), browse.In(a.Registry, registry.Only(a.ins[1]))
	for what, lookUp := range lookUps(o, a.ins[1].ID) {
		for who, b := range map[string]browse.Records{"its own institution": two, "the staff": a.everything()} {
			if err := lookUp(b); err != nil {
				t.Errorf("%s looks %s up: %v", who, what, err)
			}
		}
		err := lookUp(one)
		if want := "not found: there is no " + what; !errors.Is(err, registry.ErrNotFound) || err.Error() != want {
			t.Errorf("another institution looks %s up: %v, want %s", what, err, want)
		}
	}
	for what, lookUp := range nothing() {
		for _, b := range []browse.Records{one, a.everything()} {
			err := lookUp(b)
			if want := "not found: there is no " + what; !errors.Is(err, registry.ErrNotFound) || err.Error() != want {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
	}
}

// Items that are named are those of the queue that lie within the scope, in the order in which
// they are named.
func testItemsOf(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	named := slices.Clone(o.items)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(named), func(i, j int) { named[i], named[j] = named[j], named[i] })
	asked := append(ids(named, func(w itemRow) int64 { return w.ID }), math.MaxInt64)
	for _, c := range []struct {
		scope registry.Scope
		has   func(w itemRow) bool
	}{
		{registry.Everything(), func(itemRow) bool { return true }},
		{registry.Only(a.ins[0]), func(w itemRow) bool { return w.InstitutionID == a.ins[0].ID }},
		{registry.Scope{}, func(itemRow) bool { return false }},
	} {
		var want []int64
		for _, w := range named {
			if w.Retry && c.has(w) {
				want = append(want, w.ID)
			}
		}
		list, err := browse.In(a.Registry, c.scope).ItemsOf(ctx, asked)
		got := ids(list, func(w record.WorkItem) int64 { return w.ID })
		if err != nil || !slices.Equal(got, want) || c.scope != (registry.Scope{}) && (len(want) == 0 || len(want) == len(named)) {
			t.Errorf("in %+v: %d items of %d, want %d, %v", c.scope, len(got), len(asked), len(want), err)
		}
	}
}

// A scope that was forgotten shows nothing.
func testZeroScope(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	b := browse.In(a.Registry, registry.Scope{})
	r := rand.New(rand.NewPCG(3, 4))
	for _, ask := range o.questions() {
		q := ask(r)
		page, next, err := q.list(b, browse.Page{Limit: browse.MostRows})
		n, exact, counted := b.Count(ctx, q.filter)
		if len(page) > 0 || page != nil && next != (browse.Key{}) || err != nil || n != 0 || !exact || counted != nil {
			t.Errorf("%+v: %v, %+v, %v; counted %d, %v", q.filter, page, next, err, n, counted)
		}
	}
	for what, lookUp := range lookUps(o, a.ins[0].ID) {
		if err := lookUp(b); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A page that ends where another begins has the objects nearest to it.
func testUpwards(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	all := ids(o.objects, func(x objectRow) int64 { return x.ID })
	for _, at := range []int{0, 3, 100} {
		list, next, err := a.everything().Objects(ctx, browse.ObjectFilter{Newer: all[at]}, browse.Page{Limit: 10})
		got := ids(list, func(x record.ListedObject) int64 { return x.ID })
		if want := all[max(0, at-10):at]; err != nil || next != (browse.Key{}) || !slices.Equal(got, want) {
			t.Errorf("above %d: %v, %+v, %v, want %v", at, got, next, err, want)
		}
	}
}

func wantBelow(o *oracle, id int64, n int) (want []int64) {
	for _, w := range o.items {
		if w.ID < id && len(want) < n {
			want = append(want, w.ID)
		}
	}
	return want
}

// What would read a large table is refused, and the error names what to add.
func testTooBroad(t *testing.T, a *archive, _ *oracle) {
	t.Helper()
	b := a.everything()
	p := browse.Page{Limit: 10}
	june := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for want, list := range map[string]func() error{
		"list files: too broad: add object, ident": func() error {
			_, _, err := b.Files(ctx, browse.FileFilter{FileFilter: record.FileFilter{State: "A"}}, p)
			return err
		},
		"list files: too broad: a digest by SHA-1": func() error {
			_, _, err := b.Files(ctx, browse.FileFilter{FileFilter: record.FileFilter{Digest: strings.Repeat("a", 40)}}, p)
			return err
		},
		"list checksums: too broad: add file or d": func() error { _, _, err := b.Checksums(ctx, browse.ChecksumFilter{Algorithm: "md5"}, p); return err },
		"list copies: too broad: add file":         func() error { _, _, err := b.Copies(ctx, browse.CopyFilter{}, p); return err },
		"list events: too broad: add object, file": func() error {
			_, _, err := b.Events(ctx, browse.EventFilter{EventFilter: record.EventFilter{Type: "ingestion"}}, p)
			return err
		},
		"list events: too broad: an identifier of": func() error {
			_, _, err := b.Events(ctx, browse.EventFilter{EventFilter: record.EventFilter{Failed: true, Identifier: "00000000-0000-4000-8000-000000000000"}}, p)
			return err
		},
		"list events: too broad: add object, file, outcome": func() error {
			_, _, err := b.Events(ctx, browse.EventFilter{EventFilter: record.EventFilter{RecordedAfter: june, RecordedBefore: june.AddDate(0, 0, 32)}}, p)
			return err
		},
		"count records: too broad: add file":               func() error { _, _, err := b.Count(ctx, browse.CopyFilter{}); return err },
		"look up event \"x\": too broad: add object, file": func() error { _, err := b.Event(ctx, 0, 0, "x"); return err },
	} {
		if err := list(); !errors.Is(err, browse.ErrTooBroad) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, list := range map[string]func() error{
		"a page has 1 to 1000 rows, not 0":    func() error { _, _, err := b.Items(ctx, browse.ItemFilter{}, browse.Page{}); return err },
		"a page has 1 to 1000 rows, not 1001": func() error { _, _, err := b.Items(ctx, browse.ItemFilter{}, browse.Page{Limit: 1001}); return err },
		`"x" is no UUID`: func() error {
			_, _, err := b.Files(ctx, browse.FileFilter{FileFilter: record.FileFilter{UUID: "x"}}, p)
			return err
		},
		`look up a file: refused: "y" is no UU`: func() error { _, err := b.FileByUUID(ctx, "y"); return err },
		`"xy" is no digest in hexadecimal`: func() error {
			_, _, err := b.Files(ctx, browse.FileFilter{FileFilter: record.FileFilter{Digest: "xy"}}, p)
			return err
		},
		`"ab" is no digest: MD5 has`: func() error {
			_, _, err := b.Files(ctx, browse.FileFilter{FileFilter: record.FileFilter{Digest: "ab"}}, p)
			return err
		},
		`"abc" is no digest in hexadecimal`: func() error {
			_, _, err := b.Checksums(ctx, browse.ChecksumFilter{File: 1, Digest: "abc"}, p)
			return err
		},
		`and not "gone"`: func() error { _, _, err := b.Deletions(ctx, browse.DeletionFilter{State: "gone"}, p); return err },
	} {
		if err := list(); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A statement that takes too long is too broad, one that writes is refused, and a
// connection keeps nothing of what was set.
func testLimits(t *testing.T, a *archive, _ *oracle) {
	t.Helper()
	_, _, err := a.everything().Count(ctx, browse.Sleep{SQL: `SELECT pg_sleep(20)`})
	if want := "count records: too broad: not finished after 50ms; sleep less"; !errors.Is(err, browse.ErrTooBroad) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, _, err = a.everything().Count(ctx, browse.Sleep{SQL: `SELECT nextval('checksums_id_seq')`})
	if err == nil || !strings.Contains(err.Error(), "read-only transaction") {
		t.Errorf("a list has written: %v", err)
	}
	n, exact, err := a.everything().Count(ctx, browse.Sleep{SQL: `SELECT FROM generate_series(1, 20000) LIMIT @n`})
	if n != browse.MostCounted || exact || err != nil {
		t.Errorf("counted %d, exactly: %v, %v", n, exact, err)
	}
	for range 20 {
		var set string
		err := a.db.QueryRow(ctx, `SELECT current_setting('transaction_read_only') || current_setting('statement_timeout') || current_setting('enable_seqscan')`).Scan(&set)
		if err != nil || set != "off0on" {
			t.Errorf("a connection has kept %s, %v", set, err)
		}
	}
}

// A pooler gives the same session to others after each transaction: what a list has set
// ends with its own.
func testPooled(t *testing.T, a *archive, o *oracle) {
	t.Helper()
	pool := must.Get(dial.Connect(ctx, testenv.Pooled(t, a.db.Config().ConnString()), "pooled", dial.Through("transaction")))(t)
	t.Cleanup(pool.Close)
	b := browse.In(registry.New(pool), registry.Everything())
	for range 5 {
		list, _, err := b.Items(ctx, browse.ItemFilter{}, browse.Page{Limit: 20})
		if got := ids(list, func(w record.WorkItem) int64 { return w.ID }); err != nil || !slices.Equal(got, wantBelow(o, math.MaxInt64, 20)) {
			t.Fatalf("items %v, %v", got, err)
		}
		var set string
		err = pool.QueryRow(ctx, `SELECT current_setting('transaction_read_only') || current_setting('statement_timeout') || current_setting('enable_sort')`).Scan(&set)
		if err != nil || set != "off0on" {
			t.Errorf("a session has kept %s, %v", set, err)
		}
	}
}

// The range of a prefix ends where the next one begins.
func TestEndOfAPrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"": "", "a": "b", "test.edu/": "test.edu0", "a\x7f": "a\u0080", "\uD7FF": "\uE000", "x\U0010FFFF": "y", "\U0010FFFF": "", "é": "ê",
	} {
		if got := browse.EndOf(prefix); got != want {
			t.Errorf("%q ends before %q, want %q", prefix, got, want)
		}
	}
}
