package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/storage"
)

// byName are the items of the archive by the names of their tars.
func (a *archive) byName() map[string]int64 {
	a.t.Helper()
	rows, err := a.db.Query(a.t.Context(), `SELECT id, name FROM work_items`)
	if err != nil {
		a.t.Fatal(err)
	}
	defer rows.Close()
	ids := map[string]int64{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			a.t.Fatal(err)
		}
		ids[name] = id
	}
	return ids
}

// look has the receiving buckets read, and returns how many items that made.
func (a *archive) look(d Deps) int {
	a.t.Helper()
	n, err := (&BucketReader{Registry: d.Registry, Receiving: d.Receiving, Log: d.Log}).ReadAll(context.Background())
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

// A bag whose name could not be given back ends as Failed, whatever is in it, and
// nothing of it is read or stored.
func TestBagOfAnIllegalNameFails(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	tar := a.bag(bagtest.Spec{})
	names := []string{".tar", "..tar", "...tar", "~.tar", "a\tb.tar", "a\nb.tar", "a\x7fb.tar", "a\u009bb.tar", `a\b.tar`, "..b01.of02.tar"}
	for _, name := range names {
		a.putRaw(name, tar)
	}
	// The server cannot write these into its listing, and lists them as one.
	a.putRaw("a\x01b.tar", tar)
	a.putRaw("a\x02b.tar", tar)
	names = append(names, "a\ufffdb.tar")
	if n := a.look(a.deps); n != len(names) {
		t.Fatalf("%d items for %d tars", n, len(names))
	}
	if n := a.look(a.deps); n != 0 {
		t.Errorf("%d items for tars that have one", n)
	}
	a.work()
	ids := a.byName()
	for _, name := range names {
		item := a.item(ids[name])
		want, _ := bag.JudgeName(name)
		if item.Status != "Failed" || item.Stage != "Receive" || item.ErrorCode != "illegal-name" || item.Note != want.Message {
			t.Errorf("%q: %s at %s, %s: %s", name, item.Status, item.Stage, item.ErrorCode, item.Note)
		}
		if f := a.faults(item.ID); len(f.List) != 1 || f.List[0].Code != "illegal-name" {
			t.Errorf("%q: faults = %+v", name, f)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM intellectual_objects`); n != 0 {
		t.Errorf("%d objects are on record", n)
	}
	for _, id := range ids {
		a.age(id, 15)
	}
	a.round() // the janitor removes them as it does what is invalid
	if left := a.keys(a.receiving); !slices.Equal(left, []string{"a\ufffdb.tar", "a\ufffdb.tar"}) {
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
	a.ingested(bagtest.Spec{Name: "good"})
	for _, sql := range []string{
		`UPDATE generic_files SET identifier = replace(identifier, 'test.edu/good/', 'test.edu/../')`,
		`UPDATE intellectual_objects SET identifier = 'test.edu/..', bag_name = '..'`,
	} {
		if _, err := a.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, identifier := range []string{"test.edu/..", "test.edu/../data/hello.txt"} {
		item := a.restored(identifier)
		if item.Status != "Failed" || item.ErrorCode != "restore-name" || !strings.Contains(item.Note, `"test.edu/.."`) {
			t.Errorf("%s: %s, %s: %s", identifier, item.Status, item.ErrorCode, item.Note)
		}
		if _, err := a.deps.Registry.Cancel(t.Context(), item.ID, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if keys := a.keys(a.restoreBucket()); len(keys) != 0 {
		t.Errorf("given back: %q", keys)
	}
}

// An item that an earlier version has taken past Receive goes on record no more.
func TestIllegalNameIsNotRecorded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("good.tar", a.bag(bagtest.Spec{}))
	engine := a.engine()
	a.upTo(engine, "Record")
	a.rename(id, "...tar")
	a.one(engine, "Record")
	if item := a.item(id); item.Status != "Failed" || item.ErrorCode != "illegal-name" {
		t.Errorf("%s, %s: %s", item.Status, item.ErrorCode, item.Note)
	}
}

// rename gives an item another name, as nobody may by hand.
func (a *archive) rename(id int64, name string) {
	a.t.Helper()
	tx, err := a.db.Begin(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // it was committed
	for _, sql := range []string{`SET LOCAL session_replication_role = replica`, fmt.Sprintf(`UPDATE work_items SET name = '%s' WHERE id = %d`, name, id)} {
		if _, err := tx.Exec(a.t.Context(), sql); err != nil {
			a.t.Fatal(err)
		}
	}
	if err := tx.Commit(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}
