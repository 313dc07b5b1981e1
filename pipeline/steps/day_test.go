package steps

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/requests"
)

// untrue asks the oracle, which shares no code with us, for false sentences on record.
func (a *archive) untrue() (kinds []string) {
	a.T.Helper()
	client := a.S3.Client(a.T)
	buckets := map[string]string{}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		buckets[name] = a.Deps.Targets[name].Name()
	}
	found := must.Get(oracle.Records(context.Background(), a.DB, client, buckets, []string{a.In.RestoreBucket}))(a.T)
	for _, v := range found {
		a.T.Log(v.Kind, ": ", v.Detail)
		kinds = append(kinds, v.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// day is a day of mixed work: deposits, versions, restorations, fixity checks, repairs,
// deletions, and what people change.
func (a *archive) day() {
	a.T.Helper()
	a.BothReadable()
	va, or := a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]
	a.Stored(map[string]string{"a": "a", "b": strings.Repeat("b", 100_000), "repaired": "repaired", "good again": "good again", "lost": "lost", "deleted bad": "x", "fine": "fine"})
	a.Deposit("bad.tar", a.Bag(bagtest.Spec{Name: "other"}))
	a.Reingested(1, "first")
	a.Reingested(2, "second")

	// Copies go bad; fixity sees some, and a repair and a deposit make them good.
	a.Spoil(va, "repaired")
	kept := a.Content(va, a.CopyKey("good again"))
	a.Spoil(va, "good again")
	a.Spoil(or, "deleted bad")
	a.Spoil(va, "map")
	a.MakeDue("%/data/%")
	a.Allow(1000)
	a.Exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.check()
	a.Overwrite(va, a.CopyKey("good again"), kept)
	a.MakeDue("%/good again")
	a.check()
	a.Reingested(3, "second")
	a.repair()

	// What a restoration finds.
	must.Do(a.T, va.Delete(context.Background(), a.CopyKey("b")))
	for _, identifier := range []string{"test.edu/bag", "test.edu/atlas", "test.edu/bag/data/fine"} {
		if item := a.Restored(identifier); item.Status != "Success" {
			a.T.Errorf("%s: %s: %s", identifier, item.Status, item.Note)
		}
	}

	// Deletions, of a file one of whose copies was lost too, and of a whole object.
	must.Do(a.T, or.Delete(context.Background(), a.CopyKey("lost")))
	a.Doomed("test.edu/bag/data/lost", "test.edu/bag/data/deleted bad", "test.edu/atlas")
	a.Work()
	lost := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE status = 'Suspended' AND action = 'Delete'`)
	must.Get(requests.In(a.Deps.Registry).AcceptMissing(context.Background(), lost, ""))(a.T)
	must.Get(a.Deps.Registry.Requeue(context.Background(), lost, ""))(a.T)
	a.Work()
	a.Reingested(1, "first") // it comes back
	id := a.Deposit("atlas.tar", a.AtlasOf(4, "called off"))
	must.Get(a.Deps.Registry.Cancel(context.Background(), id, "Sent by mistake."))(a.T)
}

// After a day of mixed work every sentence on record is true, by an oracle that reads
// it, and by the questions that auditors are told to ask. So it is when the items are
// archived.
func TestADayEndsTruthfully(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Keeps()
	a.day()
	if got := a.untrue(); len(got) != 0 {
		t.Errorf("false sentences: %q", got)
	}
	a.round()
	for _, id := range a.Rows(`SELECT id::text FROM work_items WHERE status = 'Success' AND action = 'Ingest'`) {
		if number, err := strconv.ParseInt(id, 10, 64); err != nil || len(a.KeptLines(number)) < 3 {
			t.Errorf("of item %s is kept: %q, %v", id, a.KeptLines(number), err)
		}
	}
	a.auditorsFindNothing()
	if n, err := a.Engine().Archive(context.Background(), 0); err != nil || n == 0 {
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
	a.T.Helper()
	page := must.Get(os.ReadFile("../../docs/auditors.md"))(a.T)
	asked := 0
	parts := strings.Split(string(page), "There must be none")
	for i, part := range parts[1:] {
		_, rest, _ := strings.Cut(part, "```sql\n")
		sql, _, _ := strings.Cut(rest, "```")
		question := parts[i][strings.LastIndex(parts[i], "\n\n"):]
		list := a.Rows(`SELECT q::text FROM (` + strings.TrimRight(sql, ";\n ") + `) q`)
		asked++
		for _, answer := range list {
			a.T.Errorf("%s: %s", strings.TrimSpace(question), answer)
		}
	}
	if asked < 5 {
		a.T.Errorf("only %d questions were found", asked)
	}
}

// What the oracle collects for its judgement is all that there is.
func TestOracleCollectsTheWorld(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Stored(map[string]string{"a.txt": "hello", "b.txt": "bye"})
	from := oracle.Sources{
		DB: a.DB, S3: a.S3.Client(t), Staging: a.Deps.Staging.Name(), Receiving: []string{a.In.ReceivingBucket}, Targets: map[string][]oracle.Target{},
	}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		from.Targets["Standard"] = append(from.Targets["Standard"], oracle.Target{Name: name, Bucket: a.Deps.Targets[name].Name()})
	}
	w := must.Get(oracle.Collect(t.Context(), from))(t)
	files := pipelinetest.Value[int](a.Archive, `SELECT count(*) FROM generic_files`)
	if len(w.Items) != 1 || len(w.Attempts) < 9 || len(w.Topics) != 9 || len(w.Events) < 2*files || len(w.Files) != files || len(w.Buckets) != 2 {
		t.Errorf("%d items, %d attempts, %d topics, %d events, %d files and %d buckets", len(w.Items), len(w.Attempts), len(w.Topics), len(w.Events), len(w.Files), len(w.Buckets))
	}
	for bucket, objects := range w.Buckets {
		if len(objects) != files {
			t.Errorf("%d objects in %s, want %d", len(objects), bucket, files)
		}
	}
}

// The oracle notices what is not true.
func TestTheOracleNoticesLies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Reingested(1, "first")
	a.Reingested(2, "second")
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
		a.Exec(tc.lie)
		if got := a.untrue(); !slices.Contains(got, tc.kind) {
			t.Errorf("%s was not noticed: %q", tc.kind, got)
		}
		if tc.truth != "" {
			a.Exec(tc.truth)
		}
	}
}
