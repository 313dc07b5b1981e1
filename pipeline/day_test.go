package pipeline

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/oracle"
	"github.com/farol-preservation/farol/registry/requests"
)

// untrue asks the oracle, which shares no code with us, for false sentences on record.
func (a *archive) untrue() (kinds []string) {
	a.t.Helper()
	client := a.s3.Client(a.t)
	buckets := map[string]string{}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		buckets[name] = a.deps.Targets[name].Name()
	}
	found, err := oracle.Records(context.Background(), a.db, client, buckets, []string{a.in.RestoreBucket})
	if err != nil {
		a.t.Fatal(err)
	}
	for _, v := range found {
		a.t.Log(v.Kind, ": ", v.Detail)
		kinds = append(kinds, v.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// day is a day of mixed work: deposits, versions, restorations, fixity checks, repairs,
// deletions, and what people change.
func (a *archive) day() {
	a.t.Helper()
	a.bothReadable()
	va, or := a.deps.Targets["Standard-VA"], a.deps.Targets["Standard-OR"]
	a.stored(map[string]string{"a": "a", "b": strings.Repeat("b", 100_000), "repaired": "repaired", "good again": "good again", "lost": "lost", "deleted bad": "x", "fine": "fine"})
	a.deposit("bad.tar", a.bag(bagtest.Spec{Name: "other"}))
	a.reingested(1, "first")
	a.reingested(2, "second")

	// Copies go bad; fixity sees some, and a repair and a deposit make them good.
	a.spoil(va, "repaired")
	kept := a.content(va, a.copyKey("good again"))
	a.spoil(va, "good again")
	a.spoil(or, "deleted bad")
	a.spoil(va, "map")
	a.makeDue("%/data/%")
	a.allow(1000)
	a.exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.checked(a.fixity())
	a.overwrite(va, a.copyKey("good again"), kept)
	a.makeDue("%/good again")
	a.checked(a.fixity())
	a.reingested(3, "second")
	a.repaired(a.repairer())

	// What a restoration finds.
	if err := va.Delete(context.Background(), a.copyKey("b")); err != nil {
		a.t.Fatal(err)
	}
	for _, identifier := range []string{"test.edu/bag", "test.edu/atlas", "test.edu/bag/data/fine"} {
		if item := a.restored(identifier); item.Status != "Success" {
			a.t.Errorf("%s: %s: %s", identifier, item.Status, item.Note)
		}
	}

	// Deletions, of a file one of whose copies was lost too, and of a whole object.
	if err := or.Delete(context.Background(), a.copyKey("lost")); err != nil {
		a.t.Fatal(err)
	}
	a.doomed("test.edu/bag/data/lost", "test.edu/bag/data/deleted bad", "test.edu/atlas")
	a.work()
	lost := value[int64](a, `SELECT id FROM work_items WHERE status = 'Suspended' AND action = 'Delete'`)
	if _, err := requests.In(a.deps.Registry).AcceptMissing(context.Background(), lost, ""); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.deps.Registry.Requeue(context.Background(), lost, ""); err != nil {
		a.t.Fatal(err)
	}
	a.work()
	a.reingested(1, "first") // it comes back
	id := a.deposit("atlas.tar", a.atlasOf(4, "called off"))
	if _, err := a.deps.Registry.Cancel(context.Background(), id, "Sent by mistake."); err != nil {
		a.t.Fatal(err)
	}
}

// After a day of mixed work every sentence on record is true, by an oracle that reads
// it, and by the questions that auditors are told to ask. So it is when the items are
// archived.
func TestADayEndsTruthfully(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.keeps()
	a.day()
	if got := a.untrue(); len(got) != 0 {
		t.Errorf("false sentences: %q", got)
	}
	a.round()
	for _, id := range a.rows(`SELECT id::text FROM work_items WHERE status = 'Success' AND action = 'Ingest'`) {
		if number, err := strconv.ParseInt(id, 10, 64); err != nil || len(a.keptLines(number)) < 3 {
			t.Errorf("of item %s is kept: %q, %v", id, a.keptLines(number), err)
		}
	}
	a.auditorsFindNothing()
	if n, err := a.engine().Archive(context.Background(), 0); err != nil || n == 0 {
		t.Fatalf("Archive = %d, %v", n, err)
	}
	a.auditorsFindNothing()
	if got := a.untrue(); len(got) != 0 {
		t.Errorf("false sentences after the archive: %q", got)
	}
}

// auditorsFindNothing asks the questions of docs/auditors.md to which there must be no
// answer.
func (a *archive) auditorsFindNothing() {
	a.t.Helper()
	page, err := os.ReadFile("../docs/auditors.md")
	if err != nil {
		a.t.Fatal(err)
	}
	asked := 0
	parts := strings.Split(string(page), "There must be none")
	for i, part := range parts[1:] {
		_, rest, _ := strings.Cut(part, "```sql\n")
		sql, _, _ := strings.Cut(rest, "```")
		question := parts[i][strings.LastIndex(parts[i], "\n\n"):]
		list := a.rows(`SELECT q::text FROM (` + strings.TrimRight(sql, ";\n ") + `) q`)
		asked++
		for _, answer := range list {
			a.t.Errorf("%s: %s", strings.TrimSpace(question), answer)
		}
	}
	if asked < 5 {
		a.t.Errorf("only %d questions were found", asked)
	}
}

// The oracle notices what is not true.
func TestTheOracleNoticesLies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	a.reingested(1, "first")
	a.reingested(2, "second")
	if got := a.untrue(); len(got) != 0 {
		t.Fatalf("false sentences: %q", got)
	}
	for _, tc := range []struct{ kind, lie, truth string }{
		{"read-without-event", `UPDATE storage_records SET last_fixity_at = now()`, `UPDATE storage_records SET last_fixity_at = NULL`},
		{"copy-missing", `UPDATE storage_records SET key = key || '0'`, `UPDATE storage_records SET key = left(key, -1)`},
		{"copy-altered", `UPDATE checksums SET digest = reverse(digest)`, `UPDATE checksums SET digest = reverse(digest)`},
		{"object-unaccounted", `UPDATE storage_records SET key = key || '0'`, `UPDATE storage_records SET key = left(key, -1)`},
		{"copy-without-origin", `UPDATE storage_records SET url = url || '0'`, `UPDATE storage_records SET url = left(url, -1)`},
		{"address-unexplained", `UPDATE storage_records SET url = url || '0'`, `UPDATE storage_records SET url = left(url, -1)`},
		{"success-without-copies", `UPDATE generic_files SET storage_option = 'Standard'; UPDATE storage_records SET generic_file_id = 1 WHERE generic_file_id = 2`, ``},
	} {
		a.exec(tc.lie)
		if got := a.untrue(); !slices.Contains(got, tc.kind) {
			t.Errorf("%s was not noticed: %q", tc.kind, got)
		}
		if tc.truth != "" {
			a.exec(tc.truth)
		}
	}
}
