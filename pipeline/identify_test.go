package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/virus"
)

// rows are the rows of a query, each as a line.
func (a *archive) rows(sql string) []string {
	a.t.Helper()
	rows, _ := a.db.Query(context.Background(), sql)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

const formatsOnRecord = `SELECT concat_ws(' | ', replace(identifier, 'test.edu/formats/', ''), file_format, format_puid, format_name, format_method,
	format_identified_by, substring(format_signature_version FROM 'DROID_SignatureFile_V'), format_reason,
	CASE WHEN format_identified_at BETWEEN created_at - interval '2 minutes' AND created_at THEN 'now' END)
	FROM generic_files WHERE identifier LIKE '%/data/%' ORDER BY identifier COLLATE "C"`

// What the identifier says of a file is on record, and in an event, and why it says
// nothing. PUIDs are those of PRONOM.
func TestFormatsAreOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.Version = "1.2.3"
	a.deposit("formats.tar", a.bag(bagtest.Spec{Name: "formats", Files: []bagtest.File{
		{Path: "data/a.txt", Content: "hello"},
		{Path: "data/b.dat", Content: "%PDF-1.4\nhello\n%%EOF\n"},
		{Path: "data/c.xml"},
		{Path: "data/d.tiff", Content: "\x00\x01\x02\x03\xff\xfe\x80"},
	}}))
	a.work()
	want := []string{
		"data/a.txt | text/plain | x-fmt/111 | Plain Text File | signature | siegfried | DROID_SignatureFile_V |  | now",
		"data/b.dat | application/pdf | fmt/18 | Acrobat PDF 1.4 - Portable Document Format | signature | siegfried | DROID_SignatureFile_V |  | now",
		"data/c.xml | text/xml |  |  | extension | ext map | empty | now",
	}
	got := a.rows(formatsOnRecord)
	if len(got) != 4 {
		t.Fatalf("on record: %q", got)
	}
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Errorf("on record (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got[3], "data/d.tiff | image/tiff | ") || !strings.Contains(got[3], "unknown") && !strings.Contains(got[3], "siegfried") {
		t.Errorf("what no signature knows is on record as %s", got[3])
	}
	events := a.rows(`SELECT concat_ws(' | ', event_type, outcome, outcome_information, object) FROM premis_events WHERE event_type = 'validation'`)
	if diff := cmp.Diff([]string{"validation | Success | Bag is valid | Farol 1.2.3"}, events); diff != "" {
		t.Errorf("validation (-want +got):\n%s", diff)
	}
	if by := value[string](a, `SELECT outcome_detail FROM premis_events WHERE event_type = 'validation'`); !strings.HasSuffix(by, "aptrust-v2.3.json, BagIt 1.0") {
		t.Errorf("it was judged by %q", by)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
		WHERE e.event_type = 'format identification' AND e.date_time = f.format_identified_at AND e.outcome_detail = format_outcome(f.format_puid,
			f.file_format, f.format_name, f.format_method, f.format_signature_version, f.format_reason)`); n != 6 {
		t.Errorf("%d events say what their files do, want 6", n)
	}
}

// A file that crashes the identifier goes on record as that, and the bag goes on.
func TestCrashedIdentificationIsOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.Formats = badIdentifier(t)
	a.deposit("formats.tar", a.bag(bagtest.Spec{Name: "formats", Files: []bagtest.File{{Path: "data/a.tiff", Content: "hello"}}}))
	a.work()
	got := a.rows(formatsOnRecord)
	if len(got) != 1 || !strings.HasPrefix(got[0], "data/a.tiff | image/tiff |  |  | extension | ext map | DROID_SignatureFile_V | crashed: ") ||
		!strings.Contains(got[0], "exit status 3") {
		t.Errorf("on record: %q", got)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'format identification' AND outcome = 'Failure'
		AND outcome_detail LIKE 'PUID unknown, %, crashed, %'`); n != 3 {
		t.Errorf("%d failed identifications, want 3", n)
	}
}

func (a *archive) scanned(addr string, o virus.Options) {
	a.t.Helper()
	var err error
	if a.deps.Viruses, err = virus.New("tcp://"+addr, o); err != nil {
		a.t.Fatal(err)
	}
}

// Each file is looked at whole. What the scanner does not look at is on record as
// that, and not as clean.
func TestVirusChecksAreOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.scanned(testenv.Clamd(t), virus.Options{MaxSize: 5 << 20})
	a.deposit("clean.tar", a.bag(bagtest.Spec{Name: "clean", Files: []bagtest.File{
		{Path: "data/empty"},
		{Path: "data/small", Content: "small"},
		{Path: "data/streamed", Size: 700 << 10},
		{Path: "data/unscanned", Size: devstack.ClamdFileMax + 1},
		{Path: "data/unstreamed", Size: devstack.ClamdStreamMax + 1},
		{Path: "data/unsent", Size: 5<<20 + 1},
	}}))
	a.work()
	want := []string{
		"data/empty | Success | No virus found | Whole content scanned",
		"data/small | Success | No virus found | Whole content scanned",
		"data/streamed | Success | No virus found | Whole content scanned",
		"data/unscanned | Failure | Not checked | the scanner reports Heuristics.Limits.Exceeded.MaxFileSize",
		"data/unsent | Failure | Not checked | the file has 5242881 bytes, and the scanner is given no more than 5242880",
		"data/unstreamed | Failure | Not checked | the file has 2097153 bytes, and the scanner's own limit (StreamMaxLength) is less",
	}
	got := a.rows(`SELECT concat_ws(' | ', replace(f.identifier, 'test.edu/clean/', ''), e.outcome, e.outcome_detail, e.outcome_information)
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
	tar := a.bag(bagtest.Spec{Name: "infected", Files: files})
	id := a.deposit("infected.tar", tar)
	a.work()
	item := a.item(id)
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
	if n := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Format Identification'`); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	if got := a.content(a.receiving, "infected.tar"); string(got) != string(tar) {
		t.Error("the bag in receiving is not what it was")
	}
	for name, target := range a.deps.Targets {
		if keys := a.keys(target); len(keys) > 0 {
			t.Errorf("%s has %q", name, keys)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM intellectual_objects`); n != 0 {
		t.Errorf("%d objects on record", n)
	}

	// A person who finds that it is none requeues it once the scanner knows.
	a.deps.Viruses = nil
	a.exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("after a requeue: %+v", item)
	}
}

// Of many infected files the note names some, and how many there are besides.
func TestInfectedFilesAreCounted(t *testing.T) {
	t.Parallel()
	var files []*file
	list := map[int]identified{}
	for i := range 35 {
		files = append(files, &file{index: i, path: fmt.Sprintf("data/%02d", i)})
		list[i] = identified{Scanner: "ClamAV 1.4.3/27812", Infection: "Eicar"}
	}
	err := infected(files, list)
	if err == nil || !strings.Contains(err.Error(), "data/29 ") || strings.Contains(err.Error(), "data/30 ") || !strings.Contains(err.Error(), "5 more files are infected") {
		t.Errorf("infected = %v", err)
	}
	if err := infected(files, nil); err != nil {
		t.Errorf("infected = %v without a virus", err)
	}
}

// A scanner that goes away costs no attempt, and no bag passes unchecked meanwhile.
func TestScannerThatGoesAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	proxy := testenv.NewProxy(t, testenv.Clamd(t))
	proxy.Cut()
	a.scanned(proxy.Addr(), virus.Options{Idle: time.Second, Answer: 10 * time.Second})
	a.exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '100 milliseconds'`)
	id := a.deposit("sample.tar", a.sample())
	stop := a.start()
	defer stop()
	testenv.Eventually(t, "an attempt to be held", func() bool {
		return value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Format Identification' AND outcome = 'held' AND service = 'virus-scanner' AND error_code = 'virus-scanner-unavailable'`) >= 1
	})
	if item := a.item(id); item.Stage != "Format Identification" || item.Attempt > 1 {
		t.Errorf("the item went on to %s, attempt %d", item.Stage, item.Attempt)
	}
	proxy.Resume()
	a.atRest()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'virus check'`); n != sampleFiles {
		t.Errorf("%d virus checks, want %d", n, sampleFiles)
	}
}

// What other signatures found out about a part of the files is not mixed with what
// these find.
func TestOtherSignaturesBeginAnew(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	for _, stage := range []string{"Receive", "Validate", "Reingest Check", "Copy To Staging"} {
		a.one(engine, stage)
	}
	w := a.hold(engine, "Format Identification")
	old := identified{By: "siegfried", MIME: "image/png", PUID: "fmt/11", Version: "siegfried 0.1", At: 1}
	results := map[int]string{}
	for i := range 3 {
		results[i] = old.pack()
	}
	ctx := t.Context()
	if err := a.deps.Progress.Done(ctx, progress.Claim{Item: id, Token: w.item.Token}, w.passOf(), results); err != nil {
		t.Fatal(err)
	}
	s, ok := Ingest(a.deps)[4].run.(*identify)
	if !ok {
		t.Fatal("the fifth stage does not identify formats")
	}
	if err := s.Run(ctx, w); err == nil || !strings.Contains(err.Error(), "signatures for formats have changed") {
		t.Fatalf("Run = %v", err)
	}
	if err := s.Run(ctx, w); err != nil {
		t.Fatalf("the next attempt: %v", err)
	}
	list, err := readList(ctx, w, a.deps, formatsName, s.inventoryID(t, w), nil, func(f identified) int { return f.Index })
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range list {
		if f.PUID == old.PUID || f.Version == old.Version {
			t.Errorf("file %d is still %+v", i, f)
		}
	}
}

func (s *identify) inventoryID(t *testing.T, w *work) string {
	t.Helper()
	_, _, id, err := w.toStore(t.Context(), s.Deps)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Redis gets back what it was given, and has little to keep.
func TestResultsInRedisAreSmall(t *testing.T) {
	t.Parallel()
	s := &identify{Deps{Formats: goodIdentifier(t)}}
	version, err := s.Formats.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	word := identified{
		Index: 7, By: "siegfried", MIME: "application/vnd.openxmlformats-officedocument.wordprocessingml.document", PUID: "fmt/412",
		Name: "Microsoft Word for Windows", Method: "container", Version: version, At: time.Now().Unix(), Scanner: "ClamAV 1.4.3/27812",
	}
	for name, f := range map[string]identified{
		"identified": word,
		"empty":      {Index: 1, By: "ext map", MIME: "text/plain", Method: "extension", Reason: "empty", At: 5},
		"crashed":    {Index: 2, By: "ext map", MIME: "text/plain", Method: "extension", Reason: "crashed: signal: killed", At: 5, Version: version},
		"infected":   {Index: 3, By: "siegfried", MIME: "text/plain", At: 5, Version: version, Scanner: "ClamAV 1.4.3", Infection: "Eicar"},
		"unchecked":  {Index: 4, By: "siegfried", MIME: "text/plain", At: 5, Version: version, Scanner: "ClamAV 1.4.3", Unchecked: "too large"},
	} {
		list, err := s.unpack(t.Context(), nil, map[int]string{f.Index: f.pack()})
		if diff := cmp.Diff(map[int]identified{f.Index: f}, list); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if n := len(word.pack()); n > 160 {
		t.Errorf("%d bytes for a file: %q", n, word.pack())
	}
	word.Reason, word.Unchecked = strings.Repeat("é", 1000), strings.Repeat("x", 1000)
	if n := len(word.pack()); n > 400 {
		t.Errorf("%d bytes for a file", n)
	}
}
