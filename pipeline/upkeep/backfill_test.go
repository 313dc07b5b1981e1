package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/formats"
	"github.com/farol-preservation/farol/storage"
)

func (a *archive) backfill() *Backfill {
	return &Backfill{Registry: a.Deps.Registry, Targets: a.Deps.Targets, Formats: a.Deps.Formats, Files: 4}
}

// filled runs a backfill to its end, and returns what it came to and why it left
// files by their paths.
func (a *archive) filled(b *Backfill, f formats.Filter) (Backfilled, map[string]string) {
	a.T.Helper()
	left := map[string]string{}
	count := must.Get(formats.In(a.Deps.Registry).Count(context.Background(), f))(a.T)
	sum := must.Get(b.Run(context.Background(), f, count, func(int64) {}, func(l Left) {
		_, path, _ := strings.Cut(l.Identifier, "/data/")
		left[path] = l.Reason
	}))(a.T)
	return sum, left
}

// objects are the preserved objects, as they change by nothing that is done here.
func (a *archive) objects() map[string]string {
	all := a.Everything()
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.Contains(name, "/") })
	return all
}

const knownFormats = `SELECT concat_ws(' | ', identifier, file_format, format_puid, format_name, format_method, format_identified_by,
	format_signature_version, format_reason, format_identified_at IS NOT NULL) FROM generic_files ORDER BY identifier`

const unknowFormats = `UPDATE generic_files SET file_format = 'application/binary', format_puid = '', format_name = '', format_method = '',
	format_identified_by = '', format_signature_version = '', format_reason = '', format_identified_at = NULL, updated_at = now() WHERE `

const formatEvents = `SELECT count(*) FROM premis_events WHERE event_type = 'format identification'`

// What is missing is found, as at the ingest, from the bytes of a copy, and once. No
// object is touched.
func TestMissingFormatsAreFilledIn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deposit("old.tar", a.Bag(bagtest.Spec{Name: "old", Files: []bagtest.File{
		{Path: "data/a.txt", Content: "hello"},
		{Path: "data/b.dat", Content: "%PDF-1.4\nhello\n%%EOF\n"},
		{Path: "data/empty.xml"},
		{Path: "data/large.pdf", Content: "%PDF-1.4\n" + strings.Repeat("x", 600_000) + "\n%%EOF\n"},
		{Path: "data/gone", Content: "gone"},
	}}))
	a.Work()
	a.Exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/gone'`)
	want, objects := a.Rows(knownFormats), a.objects()
	before := pipelinetest.Value[int](a, formatEvents)
	a.Exec(unknowFormats + `identifier LIKE '%/data/%' AND state = 'A'`)

	sum, left := a.filled(a.backfill(), formats.Filter{})
	if diff := cmp.Diff(Backfilled{Identified: 4, Changed: 4}, sum); diff != "" || len(left) > 0 {
		t.Errorf("came to (-want +got):\n%s%v", diff, left)
	}
	if diff := cmp.Diff(want, a.Rows(knownFormats)); diff != "" {
		t.Errorf("on record (-as the ingest +as now):\n%s", diff)
	}
	if n := pipelinetest.Value[int](a, formatEvents); n != before+4 {
		t.Errorf("%d more events, want 4", n-before)
	}
	if diff := cmp.Diff(objects, a.objects()); diff != "" {
		t.Errorf("objects changed:\n%s", diff)
	}
	if sum, _ := a.filled(a.backfill(), formats.Filter{}); sum != (Backfilled{}) {
		t.Errorf("there is still something missing: %+v", sum)
	}
}

// The same signatures give each file one event, however often.
func TestOldSignaturesAreReplaced(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deposit("old.tar", a.Bag(bagtest.Spec{Name: "old", Files: []bagtest.File{
		{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}, {Path: "data/new.txt", Content: "new"}, {Path: "data/empty"},
	}}))
	a.Work()
	before := pipelinetest.Value[int](a, formatEvents)
	a.Exec(`UPDATE generic_files SET format_signature_version = 'siegfried 1.0.0, DROID_SignatureFile_V99.xml', format_puid = 'fmt/1'
		WHERE identifier NOT LIKE '%/new.txt' AND size > 0`)
	sum, _ := a.filled(a.backfill(), formats.Filter{OlderThan: 100})
	if sum != (Backfilled{Identified: 4, Changed: 4}) { // the payload's two, and two tag files
		t.Errorf("came to %+v", sum)
	}
	if n := pipelinetest.Value[int](a, formatEvents); n != before+4 {
		t.Errorf("%d more events, want 4", n-before)
	}
	if sum, _ := a.filled(a.backfill(), formats.Filter{OlderThan: 100}); sum != (Backfilled{}) {
		t.Errorf("again: %+v", sum)
	}
	for range 2 { // with the signatures that they have
		if sum, _ := a.filled(a.backfill(), formats.Filter{OlderThan: 100_000}); sum != (Backfilled{Identified: 5}) {
			t.Errorf("all of them: %+v", sum)
		}
	}
	if n := pipelinetest.Value[int](a, formatEvents); n != before+5 {
		t.Errorf("%d more events, want 5", n-before)
	}
}

// What cannot be read is left and named, and the next copy is tried first.
func TestFilesThatCannotBeReadAreLeft(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	a.Deposit("cold.tar", a.Bag(bagtest.Spec{Name: "cold", StorageOption: "Glacier-VA", Files: []bagtest.File{{Path: "data/cold.txt", Content: "cold"}}}))
	files := []bagtest.File{
		{Path: "data/readable.txt", Content: "a"}, {Path: "data/lost.txt", Content: "b"}, {Path: "data/other.txt", Content: "c"}, {Path: "data/elsewhere.txt", Content: "d"},
	}
	a.Deposit("warm.tar", a.Bag(bagtest.Spec{Name: "warm", Files: files}))
	a.Work()
	first := a.Deps.Targets["Standard-VA"]
	uuid := func(name string) string {
		return pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/' || $1`, name)
	}
	must.Do(t, first.Delete(ctx, uuid("lost.txt")))
	must.Get(first.Put(ctx, uuid("other.txt"), strings.NewReader("x"), storage.Upload{Size: 1}))(t)
	a.Exec(`UPDATE storage_records s SET bucket = 'elsewhere' FROM generic_files f WHERE f.id = s.generic_file_id AND f.identifier LIKE '%/elsewhere.txt'`)
	a.Exec(unknowFormats + `identifier LIKE '%/data/%'`)
	known := a.Rows(knownFormats)

	sum, left := a.filled(a.backfill(), formats.Filter{})
	if sum != (Backfilled{Identified: 1, Changed: 1, Archived: 1, Left: 3}) {
		t.Errorf("came to %+v", sum)
	}
	for path, why := range map[string][]string{
		"lost.txt":  {"Standard-VA: the copy is missing", "Standard-OR: it has to be restored"},
		"other.txt": {"Standard-VA: the copy is not the one on record"}, "elsewhere.txt": {"Standard-VA: the copy is in a bucket that is not configured here: elsewhere"},
	} {
		for _, part := range why {
			if !strings.Contains(left[path], part) {
				t.Errorf("%s is left for %q, want %q", path, left[path], part)
			}
		}
	}
	if why, ok := left["cold.txt"]; ok {
		t.Errorf("a file in Glacier alone is left for %q: it is to be skipped", why)
	}
	for i, now := range a.Rows(knownFormats) {
		if (now != known[i]) != strings.Contains(now, "/readable.txt") {
			t.Errorf("was %s\nnow %s", known[i], now)
		}
	}
	if asked := a.Rows(`SELECT split_part(f.identifier, '/', 4) || ' ' || c.target FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
		JOIN generic_files f ON f.id = s.generic_file_id WHERE c.requested ORDER BY 1`); !slices.Equal(asked, []string{"lost.txt Standard-VA", "other.txt Standard-VA"}) {
		t.Errorf("to be checked: %q, want what seemed missing or altered", asked)
	}
	// Restored, it can be read.
	a.Exec(`UPDATE storage_records SET target = 'Standard-VA', bucket = '` + first.Name() + `' WHERE target = 'Glacier-VA'`)
	must.Get(first.Put(ctx, uuid("cold.txt"), strings.NewReader("cold"), storage.Upload{Size: 4}))(t)
	if sum, left := a.filled(a.backfill(), formats.Filter{Object: "test.edu/cold"}); sum.Identified != 1 || len(left) > 0 {
		t.Errorf("the restored file: %+v, %v", sum, left)
	}
}

// An identifier that breaks on a file knows less than the one before it.
func TestBrokenIdentifierForgetsNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deposit("old.tar", a.Bag(bagtest.Spec{Name: "old", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}}))
	a.Work()
	a.Exec(unknowFormats + `identifier LIKE '%/b.txt'`)
	known := a.Rows(knownFormats)
	b := a.backfill()
	b.Formats = pipelinetest.BadIdentifier(t)
	sum, left := a.filled(b, formats.Filter{OlderThan: 100_000, Object: "test.edu/old"})
	if sum.Identified != 1 || !strings.Contains(left["a.txt"], "crashed; the recorded format is kept") {
		t.Errorf("came to %+v, %v", sum, left)
	}
	now := a.Rows(knownFormats)
	if !strings.Contains(strings.Join(now, "\n"), "b.txt | text/plain |  |  | extension") || now[1] != known[1] {
		t.Errorf("on record: %q", now)
	}
	if sum, _ := a.filled(a.backfill(), formats.Filter{}); sum != (Backfilled{}) {
		t.Errorf("what it crashed on is still missing: %+v", sum)
	}
}

// Two at once, one of which is stopped and started again, and an ingest beside them:
// each file has what its content is, and one event for it.
func TestBackfillsAndIngestsAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 250
	version := func(begin, end string) []byte {
		var files []bagtest.File
		for i := range n {
			files = append(files, bagtest.File{Path: fmt.Sprintf("data/%03d.txt", i), Content: begin + fmt.Sprint(i) + end})
		}
		return a.Bag(bagtest.Spec{Name: "busy", Files: files})
	}
	a.Deposit("busy.tar", version("first ", ""))
	a.Work()
	before := pipelinetest.Value[int](a, formatEvents)
	a.Exec(unknowFormats + `true`)
	f := formats.Filter{}
	count, err := formats.In(a.Deps.Registry).Count(context.Background(), f)
	if err != nil || count.Files != n+2 {
		t.Fatalf("CountFormats = %+v, %v", count, err)
	}
	a.Deposit("busy.tar", version("%PDF-1.4\n", "\n%%EOF\n"))
	stop := a.Start()
	var both sync.WaitGroup
	for stops := range 2 {
		both.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, err := a.backfill().Run(ctx, f, count, func(int64) {
				if stops == 1 {
					cancel()
				}
			}, func(Left) {})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	both.Wait()
	a.AtRest()
	stop()
	a.filled(a.backfill(), f)
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE format_puid = ''`); n != 0 {
		t.Errorf("%d files are still without a format", n)
	}
	if got := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE format_puid = 'fmt/18' AND identifier LIKE '%/data/%'`); got != n {
		t.Errorf("%d files have the format of their newer content, want %d", got, n)
	}
	// The second ingest has an event for each file, and each backfill at most one.
	events := pipelinetest.Value[int](a, formatEvents) - before
	if events < n+1 || events > 2*(n+2) {
		t.Errorf("%d more events", events)
	}
	if twice := pipelinetest.Value[int](a, `SELECT count(*) FROM (SELECT FROM premis_events WHERE event_type = 'format identification'
		GROUP BY generic_file_id HAVING count(*) > 3) x`); twice != 0 {
		t.Errorf("%d files have more events than there were identifications", twice)
	}
}

// Storage that does not answer is not taken for that of each file.
func TestBackfillGivesUpOnDeadStorage(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var files []bagtest.File
	for i := range 60 {
		files = append(files, bagtest.File{Path: fmt.Sprintf("data/%d.txt", i), Content: fmt.Sprint(i)})
	}
	a.Deposit("many.tar", a.Bag(bagtest.Spec{Name: "many", Files: files}))
	a.Work()
	a.Exec(unknowFormats + `true`)
	b := a.backfill()
	dead := must.Get(a.Client.Bucket(storage.Target{
		Bucket: a.Deps.Targets["Standard-VA"].Name(), Endpoint: "http://127.0.0.1:1", AccessKeyID: "k", SecretAccessKey: "s", PathStyle: true,
	}))(t)
	b.Targets = map[string]*storage.Bucket{"Standard-VA": dead}
	b.Files = 60
	count := formats.Count{At: time.Now().Add(time.Hour)}
	sum, err := b.Run(context.Background(), formats.Filter{}, count, func(int64) {}, func(Left) {})
	if !errors.Is(err, errInARow) || sum.Identified != 0 || sum.Left != mostUnreadable {
		t.Errorf("Run = %+v, %v", sum, err)
	}
}

// The copy that a restore would prefer is read first, in whatever order they are on
// record.
func TestPreferredCopyIsReadFirst(t *testing.T) {
	t.Parallel()
	b := newArchive(t).backfill()
	f := formats.File{Targets: []string{"Glacier-OH", "Standard-OR", "Standard-VA", "Wasabi-TX"}}
	if diff := cmp.Diff([]int{2, 3, 1, 0}, b.copies(f)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
