package upkeep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// byName are the items of the archive by the names of their tars.
func (a *archive) byName() map[string]int64 {
	a.T.Helper()
	rows := must.Get(a.DB.Query(a.T.Context(), `SELECT id, name FROM work_items`))(a.T)
	defer rows.Close()
	ids := map[string]int64{}
	for rows.Next() {
		var id int64
		var name string
		must.Do(a.T, rows.Scan(&id, &name))
		ids[name] = id
	}
	return ids
}

// look has the receiving buckets read, and returns how many items that made.
func (a *archive) look(d pipeline.Deps) int {
	a.T.Helper()
	return must.Get((&BucketReader{Registry: d.Registry, Receiving: d.Receiving, Log: d.Log}).ReadAll(context.Background()))(a.T)
}

// A bag whose name could not be given back ends as Failed, whatever is in it, and
// nothing of it is read or stored.
func TestBagOfAnIllegalNameFails(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	tar := a.Bag(bagtest.Spec{})
	names := []string{".tar", "..tar", "...tar", "~.tar", "a\tb.tar", "a\nb.tar", "a\x7fb.tar", "a\u009bb.tar", `a\b.tar`, "..b01.of02.tar"}
	for _, name := range names {
		a.PutRaw(name, tar)
	}
	// The server cannot write these into its listing, and lists them as one.
	a.PutRaw("a\x01b.tar", tar)
	a.PutRaw("a\x02b.tar", tar)
	names = append(names, "a\ufffdb.tar")
	if n := a.look(a.Deps); n != len(names) {
		t.Fatalf("%d items for %d tars", n, len(names))
	}
	if n := a.look(a.Deps); n != 0 {
		t.Errorf("%d items for tars that have one", n)
	}
	a.Work()
	ids := a.byName()
	for _, name := range names {
		item := a.Item(ids[name])
		want, _ := bag.JudgeName(name)
		if item.Status != "Failed" || item.Stage != "Receive" || item.ErrorCode != "illegal-name" || item.Note != want.Message {
			t.Errorf("%q: %s at %s, %s: %s", name, item.Status, item.Stage, item.ErrorCode, item.Note)
		}
		if f := a.Faults(item.ID); len(f.List) != 1 || f.List[0].Code != "illegal-name" {
			t.Errorf("%q: faults = %+v", name, f)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM intellectual_objects`); n != 0 {
		t.Errorf("%d objects are on record", n)
	}
	for _, id := range ids {
		a.Age(id, 15)
	}
	a.round() // the janitor removes them as it does what is invalid
	if left := a.Keys(a.Receiving); !slices.Equal(left, []string{"a\ufffdb.tar", "a\ufffdb.tar"}) {
		t.Errorf("still there: %q, want what nobody can delete by the name in the listing", left)
	}
}

// What lies in a folder is left alone; a slash that makes no folder is part of an
// illegal name.
func TestSlashThatMakesNoFolderIsIllegal(t *testing.T) {
	t.Parallel()
	for key, alone := range map[string]bool{
		"folder/bag.tar": true, "a/b/..tar": true, "/bag.tar": false, "../bag.tar": false, "a//bag.tar": false, "a/../bag.tar": false, "./bag.tar": false,
	} {
		if why := notABag(storage.Object{Key: key, ETag: "e"}); (why != "") != alone {
			t.Errorf("%q: %q", key, why)
		}
		if _, legal := bag.JudgeName(key); legal {
			t.Errorf("%q is legal", key)
		}
	}
	if notABag(storage.Object{Key: "odd.tar"}) == "" {
		t.Error("an upload without an ETag is taken for a bag")
	}
}

// Any key has a name on record, always the same, and none that is legal unless the
// key is.
func FuzzEveryKeyCanBeRecorded(f *testing.F) {
	for _, key := range []string{"a.tar", "\xff.tar", "\x00.tar", strings.Repeat("日", 341) + ".tar", strings.Repeat("\xff", 1020) + ".tar"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := recordable(key)
		if !utf8.ValidString(name) || strings.Contains(name, "\x00") || len(name) > 1000 || name == "" != (key == "") {
			t.Fatalf("%q is recorded as %q", key, name)
		}
		_, legalKey := bag.JudgeName(key)
		if _, legal := bag.JudgeName(name); legal != legalKey || legal && name != key {
			t.Fatalf("%q is recorded as %q", key, name)
		}
	})
}

// An object that is on record under a name that no bag may have any more is given
// back nowhere else than where it belongs: not at all, with a reason.
func TestObjectOfAnIllegalNameIsNotGivenBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "good"})
	for _, sql := range []string{
		`UPDATE generic_files SET identifier = replace(identifier, 'test.edu/good/', 'test.edu/../')`,
		`UPDATE intellectual_objects SET identifier = 'test.edu/..', bag_name = '..'`,
	} {
		must.Get(a.DB.Exec(t.Context(), sql))(t)
	}
	for _, identifier := range []string{"test.edu/..", "test.edu/../data/hello.txt"} {
		item := a.Restored(identifier)
		if item.Status != "Failed" || item.ErrorCode != "restore-name" || !strings.Contains(item.Note, `"test.edu/.."`) {
			t.Errorf("%s: %s, %s: %s", identifier, item.Status, item.ErrorCode, item.Note)
		}
		must.Get(a.Deps.Registry.Cancel(t.Context(), item.ID, "test"))(t)
	}
	if keys := a.Keys(a.RestoreBucket()); len(keys) != 0 {
		t.Errorf("given back: %q", keys)
	}
}

// An item that an earlier version has taken past Receive goes on record no more.
func TestIllegalNameIsNotRecorded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("good.tar", a.Bag(bagtest.Spec{}))
	engine := a.Engine()
	a.UpTo(engine, "Record")
	a.rename(id, "...tar")
	a.One(engine, "Record")
	if item := a.Item(id); item.Status != "Failed" || item.ErrorCode != "illegal-name" {
		t.Errorf("%s, %s: %s", item.Status, item.ErrorCode, item.Note)
	}
}

// rename gives an item another name, as nobody may by hand.
func (a *archive) rename(id int64, name string) {
	a.T.Helper()
	tx := must.Get(a.DB.Begin(a.T.Context()))(a.T)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it was committed
	for _, sql := range []string{`SET LOCAL session_replication_role = replica`, fmt.Sprintf(`UPDATE work_items SET name = '%s' WHERE id = %d`, name, id)} {
		must.Get(tx.Exec(a.T.Context(), sql))(a.T)
	}
	must.Do(a.T, tx.Commit(a.T.Context()))
}
