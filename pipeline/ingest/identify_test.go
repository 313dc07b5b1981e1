package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/virus"
)

const formatsOnRecord = `SELECT concat_ws(' | ', replace(identifier, 'test.edu/formats/', ''), file_format, format_puid, format_name, format_method,
	format_identified_by, substring(format_signature_version FROM 'DROID_SignatureFile_V'), format_reason,
	CASE WHEN format_identified_at BETWEEN created_at - interval '2 minutes' AND created_at THEN 'now' END)
	FROM generic_files WHERE identifier LIKE '%/data/%' ORDER BY identifier COLLATE "C"`

// What the identifier says of a file is on record, and in an event, and why it says
// nothing. PUIDs are those of PRONOM.
func TestFormatsAreOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.Version = "1.2.3"
	a.Deposit("formats.tar", a.Bag(bagtest.Spec{Name: "formats", Files: []bagtest.File{
		{Path: "data/a.txt", Content: "hello"},
		{Path: "data/b.dat", Content: "%PDF-1.4\nhello\n%%EOF\n"},
		{Path: "data/c.xml"},
		{Path: "data/d.tiff", Content: "\x00\x01\x02\x03\xff\xfe\x80"},
	}}))
	a.Work()
	want := []string{
		"data/a.txt | text/plain | x-fmt/111 | Plain Text File | signature | siegfried | DROID_SignatureFile_V |  | now",
		"data/b.dat | application/pdf | fmt/18 | Acrobat PDF 1.4 - Portable Document Format | signature | siegfried | DROID_SignatureFile_V |  | now",
		"data/c.xml | text/xml |  |  | extension | ext map | empty | now",
	}
	got := a.Rows(formatsOnRecord)
	if len(got) != 4 {
		t.Fatalf("on record: %q", got)
	}
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Errorf("on record (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got[3], "data/d.tiff | image/tiff | ") || !strings.Contains(got[3], "unknown") && !strings.Contains(got[3], "siegfried") {
		t.Errorf("what no signature knows is on record as %s", got[3])
	}
	events := a.Rows(`SELECT concat_ws(' | ', event_type, outcome, outcome_information, object) FROM premis_events WHERE event_type = 'validation'`)
	if diff := cmp.Diff([]string{"validation | Success | Bag is valid | Farol 1.2.3"}, events); diff != "" {
		t.Errorf("validation (-want +got):\n%s", diff)
	}
	if by := pipelinetest.Value[string](a, `SELECT outcome_detail FROM premis_events WHERE event_type = 'validation'`); !strings.HasSuffix(by, "aptrust-v2.3.json, BagIt 1.0") {
		t.Errorf("it was judged by %q", by)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
		WHERE e.event_type = 'format identification' AND e.date_time = f.format_identified_at AND e.outcome_detail = format_outcome(f.format_puid,
			f.file_format, f.format_name, f.format_method, f.format_signature_version, f.format_reason)`); n != 6 {
		t.Errorf("%d events say what their files do, want 6", n)
	}
}

// A file that crashes the identifier goes on record as that, and the bag goes on.
func TestCrashedIdentificationIsOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.Formats = pipelinetest.BadIdentifier(t)
	a.Deposit("formats.tar", a.Bag(bagtest.Spec{Name: "formats", Files: []bagtest.File{{Path: "data/a.tiff", Content: "hello"}}}))
	a.Work()
	got := a.Rows(formatsOnRecord)
	if len(got) != 1 || !strings.HasPrefix(got[0], "data/a.tiff | image/tiff |  |  | extension | ext map | DROID_SignatureFile_V | crashed: ") ||
		!strings.Contains(got[0], "exit status 3") {
		t.Errorf("on record: %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'format identification' AND outcome = 'Failure'
		AND outcome_detail LIKE 'PUID unknown, %, crashed, %'`); n != 3 {
		t.Errorf("%d failed identifications, want 3", n)
	}
}

func (a *archive) scanned(addr string, o virus.Options) {
	a.T.Helper()
	var err error
	if a.Deps.Viruses, err = virus.New("tcp://"+addr, o); err != nil {
		a.T.Fatal(err)
	}
}

// Each file is looked at whole. What the scanner does not look at is on record as
// that, and not as clean.
func TestVirusChecksAreOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.scanned(testenv.Clamd(t), virus.Options{MaxSize: 5 << 20})
	a.Deposit("clean.tar", a.Bag(bagtest.Spec{Name: "clean", Files: []bagtest.File{
		{Path: "data/empty"},
		{Path: "data/small", Content: "small"},
		{Path: "data/streamed", Size: 700 << 10},
		{Path: "data/unscanned", Size: devstack.ClamdFileMax + 1},
		{Path: "data/unstreamed", Size: devstack.ClamdStreamMax + 1},
		{Path: "data/unsent", Size: 5<<20 + 1},
	}}))
	a.Work()
	want := []string{
		"data/empty | Success | No virus found | Whole content scanned",
		"data/small | Success | No virus found | Whole content scanned",
		"data/streamed | Success | No virus found | Whole content scanned",
		"data/unscanned | Failure | Not checked | the scanner reports Heuristics.Limits.Exceeded.MaxFileSize",
		"data/unsent | Failure | Not checked | the file has 5242881 bytes, and the limit for the scanner is 5242880",
		"data/unstreamed | Failure | Not checked | the file has 2097153 bytes, and the scanner's own limit (StreamMaxLength) is less",
	}
	got := a.Rows(`SELECT concat_ws(' | ', replace(f.identifier, 'test.edu/clean/', ''), e.outcome, e.outcome_detail, e.outcome_information)
		FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
		WHERE e.event_type = 'virus check' AND f.identifier LIKE '%/data/%' AND e.object LIKE 'ClamAV 1.%' ORDER BY f.identifier COLLATE "C"`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("virus checks (-want +got):\n%s", diff)
	}
}

// A bag with a virus in it waits for a person, who reads which files it is. Nothing
// of it is stored, and nothing is deleted.
func TestInfectedBagWaitsForAPerson(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.scanned(testenv.Clamd(t), virus.Options{})
	files := []bagtest.File{
		{Path: "data/clean.txt", Content: "clean"},
		{Path: "data/small.txt", Content: "before " + devstack.Virus + " after"},
		{Path: "data/large.bin", Content: strings.Repeat("x", 600_000) + devstack.Virus},
	}
	tar := a.Bag(bagtest.Spec{Name: "infected", Files: files})
	id := a.Deposit("infected.tar", tar)
	a.Work()
	item := a.Item(id)
	if item.Status != "Failed" || item.Stage != "Format Identification" || !item.NeedsAdminReview || item.ErrorCode != "infected" {
		t.Errorf("item = %+v", item)
	}
	for _, part := range []string{"data/small.txt", "data/large.bin", devstack.VirusName} {
		if !strings.Contains(item.Note, part) {
			t.Errorf("the note %q does not name %s", item.Note, part)
		}
	}
	if strings.Contains(item.Note, "data/clean.txt") {
		t.Errorf("the note %q names a clean file", item.Note)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Format Identification'`); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	if got := a.Content(a.Receiving, "infected.tar"); string(got) != string(tar) {
		t.Error("the bag in receiving is not what it was")
	}
	for name, target := range a.Deps.Targets {
		if keys := a.Keys(target); len(keys) > 0 {
			t.Errorf("%s has %q", name, keys)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM intellectual_objects`); n != 0 {
		t.Errorf("%d objects on record", n)
	}

	// A person who finds that it is none requeues it once the scanner knows.
	a.Deps.Viruses = nil
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("after a requeue: %+v", item)
	}
}

// Of many infected files the note names some, and how many there are, too.
func TestInfectedFilesAreCounted(t *testing.T) {
	t.Parallel()
	var files []*lists.File
	var list []lists.Format
	for i := range 35 {
		files = append(files, &lists.File{Index: i, Content: copies.Content{Path: fmt.Sprintf("data/%02d", i)}})
		list = append(list, lists.Format{Scanner: "ClamAV 1.4.3/27812", Infection: "Eicar"})
	}
	err := infected(files, slices.Values(list))
	if err == nil || !strings.Contains(err.Error(), "data/29 ") || strings.Contains(err.Error(), "data/30 ") || !strings.Contains(err.Error(), "5 more files are infected") {
		t.Errorf("infected = %v", err)
	}
	if err := infected(files, slices.Values([]lists.Format{{Scanner: "ClamAV 1.4.3/27812"}})); err != nil {
		t.Errorf("infected = %v without a virus", err)
	}
}

// A scanner that goes away costs no attempt, and no bag passes unchecked in the meantime.
func TestScannerThatGoesAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	proxy := testenv.NewProxy(t, testenv.Clamd(t))
	proxy.Cut()
	a.scanned(proxy.Addr(), virus.Options{Idle: time.Second, Answer: 10 * time.Second})
	a.Exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '100 milliseconds'`)
	id := a.Deposit("sample.tar", a.Sample())
	stop := a.Start()
	defer stop()
	testenv.Eventually(t, "an attempt to be held", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Format Identification' AND outcome = 'held' AND service = 'virus-scanner' AND error_code = 'virus-scanner-unavailable'`) >= 1
	})
	if item := a.Item(id); item.Stage != "Format Identification" || item.Attempt > 1 {
		t.Errorf("the item went on to %s, attempt %d", item.Stage, item.Attempt)
	}
	proxy.Resume()
	a.AtRest()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'virus check'`); n != pipelinetest.SampleFiles {
		t.Errorf("%d virus checks, want %d", n, pipelinetest.SampleFiles)
	}
}

// What other signatures found out about a part of the files is not mixed with what
// these find.
func TestOtherSignaturesBeginAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	for _, stage := range []string{"Receive", "Validate", "Reingest Check", "Copy To Staging"} {
		a.One(engine, registry.Stage(stage))
	}
	w := a.second(engine, "Format Identification")
	old := lists.Format{By: "siegfried", MIME: "image/png", PUID: "fmt/11", Version: "siegfried 0.1", At: 1}
	results := map[int]string{}
	for i := range 3 {
		results[i] = old.Pack()
	}
	ctx := t.Context()
	must.Do(t, a.Deps.Progress.Done(ctx, progress.Claim{Item: id, Token: w.Item.Token}, w.Pass(), results))
	s := a.Stage("Format Identification")
	if err := s.Run(ctx, w); err == nil || !strings.Contains(err.Error(), "format signatures changed") {
		t.Fatalf("Run = %v", err)
	}
	if err := s.Run(ctx, w); err != nil {
		t.Fatalf("the next attempt: %v", err)
	}
	a.Leave(id)(w.List)
	list := must.Get(lists.Read(ctx, a.area(w), lists.FormatsName, inventoryID(t, a.entered(w)), nil, func(f lists.Format) int { return f.Index }))(t)
	for i, f := range list {
		if f.PUID == old.PUID || f.Version == old.Version {
			t.Errorf("file %d is still %+v", i, f)
		}
	}
}

func inventoryID(t *testing.T, w *work) string {
	t.Helper()
	_, _, id, err := w.toStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Redis gets back what it was given, and has little to keep.
func TestResultsInRedisAreSmall(t *testing.T) {
	t.Parallel()
	s := &identify{Formats: pipelinetest.GoodIdentifier(t)}
	version := must.Get(s.Formats.Version(t.Context()))(t)
	word := lists.Format{
		Index: 7, By: "siegfried", MIME: "application/vnd.openxmlformats-officedocument.wordprocessingml.document", PUID: "fmt/412",
		Name: "Microsoft Word for Windows", Method: "container", Version: version, At: time.Now().Unix(), Scanner: "ClamAV 1.4.3/27812",
	}
	for name, f := range map[string]lists.Format{
		"identified": word,
		"empty":      {Index: 1, By: "ext map", MIME: "text/plain", Method: "extension", Reason: "empty", At: 5},
		"crashed":    {Index: 2, By: "ext map", MIME: "text/plain", Method: "extension", Reason: "crashed: signal: killed", At: 5, Version: version},
		"infected":   {Index: 3, By: "siegfried", MIME: "text/plain", At: 5, Version: version, Scanner: "ClamAV 1.4.3", Infection: "Eicar"},
		"unchecked":  {Index: 4, By: "siegfried", MIME: "text/plain", At: 5, Version: version, Scanner: "ClamAV 1.4.3", Unchecked: "too large"},
	} {
		list := must.Get(s.unpack(t.Context(), nil, []*lists.File{{Index: f.Index}}, map[int]string{f.Index: f.Pack()}))(t)
		if diff := cmp.Diff([]lists.Format{f}, slices.Collect(list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if n := len(word.Pack()); n > 160 {
		t.Errorf("%d bytes for a file: %q", n, word.Pack())
	}
	word.Reason, word.Unchecked = strings.Repeat("é", 1000), strings.Repeat("x", 1000)
	if n := len(word.Pack()); n > 400 {
		t.Errorf("%d bytes for a file", n)
	}
}
