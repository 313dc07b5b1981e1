package console_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console"
)

// FuzzTexts: what a page shows of a text of others has no character that is not seen or turns
// the line around, and a name that is cut keeps its ends and fits.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"plain", "a\u202eb", "\x00\x1b[31m", "\xff\xfe", strings.Repeat("ä", 500), "a\u00a0b", "\U000e0041", "line\nline", "", "<script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := console.Text(s)
		for _, r := range out {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Zs, r) && r != ' ' || r == utf8.RuneError) {
				t.Fatalf("%q is shown with %U", s, r)
			}
		}
		visible := utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' || r == utf8.RuneError }) < 0
		if visible && out != s {
			t.Fatalf("%q is shown as %q", s, out)
		}
		short, whole := console.Cut(s)
		if whole != out {
			t.Fatalf("the whole of %q is %q", s, whole)
		}
		if n := utf8.RuneCountInString(short); n > 65 {
			t.Fatalf("%d characters are shown of %q", n, s)
		}
		if head, tail, cut := strings.Cut(short, "…"); cut && utf8.RuneCountInString(whole) > 64 && (!strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail)) {
			t.Fatalf("%q is no part of %q", short, whole)
		}
	})
}

func TestFiguresOfPages(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 12345: "12,345"} {
		if got := console.Number(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// A timeline names the time between attempts by what the attempt before came to.
func TestTimelineNamesWhatWasWaitedFor(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	attempt := func(stage registry.Stage, from, to int, outcome string) record.Attempt {
		a := record.Attempt{Stage: stage, Attempt: 1, ClaimedAt: at(from), Worker: "w1"}
		if outcome != "" {
			end := at(to)
			a.EndedAt, a.Outcome = &end, &outcome
		}
		return a
	}
	item := record.WorkItem{Action: registry.Ingest, Status: registry.Started, Stage: "Store", CreatedAt: began, UpdatedAt: at(100)}
	h := record.ItemHistory{Attempts: []record.Attempt{
		attempt("Receive", 10, 12, "done"), attempt("Validate", 12, 20, "killed"), attempt("Validate", 30, 31, "transient"), attempt("Validate", 40, 50, "held"),
		attempt("Validate", 60, 70, "done"), attempt("Store", 70, 0, ""),
	}, Changes: []record.Change{{At: at(45), Actor: "ann@test.edu", StageWas: "Validate", StageThen: "Validate", StatusWas: "Started", StatusThen: "Pending"}}}
	lanes, _ := console.TimelineOf(item, h, nil, at(100), false)
	var seen []string
	for _, l := range lanes {
		seen = append(seen, l.Kind+": "+l.What+" "+l.Outcome)
	}
	want := []string{
		"gap: waited for a worker ", "attempt: Receive done", "attempt: Validate killed", "gap: backoff before a retry ", "attempt: Validate transient",
		"gap: backoff before a retry ", "attempt: Validate held", "change: Started at Validate became Pending at Validate ", "gap: waited for a service that failed ",
		"attempt: Validate done", "attempt: Store ",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the timeline is\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	last := lanes[len(lanes)-1]
	if !last.Open || last.X != 700 || last.W != 300 || last.Took() != 30*time.Second {
		t.Errorf("what runs is from %d, %d wide, open %v, %v", last.X, last.W, last.Open, last.Took())
	}
	for _, l := range lanes {
		if l.X < 0 || l.W < 1 || l.X+l.W > 1000 {
			t.Errorf("a bar is outside: %+v", l)
		}
	}
	waits := int64(9)
	item.Status, item.WaitsFor = registry.Pending, &waits
	h = record.ItemHistory{Attempts: h.Attempts[:1]}
	lanes, _ = console.TimelineOf(item, h, nil, at(100), false)
	if last := lanes[len(lanes)-1]; last.What != "waits for item 9" || !last.Open {
		t.Errorf("what it waits for now: %+v", last)
	}
}

// Of an item that was tried very often the newest attempts are shown.
func TestLongTimelineIsCut(t *testing.T) {
	t.Parallel()
	began, outcome := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "snoozed"
	var h record.ItemHistory
	for n := range 1000 {
		end := began.Add(time.Duration(n)*time.Minute + 30*time.Second)
		h.Attempts = append(h.Attempts, record.Attempt{Stage: "Glacier Restore", Attempt: n, ClaimedAt: began.Add(time.Duration(n) * time.Minute), EndedAt: &end, Outcome: &outcome})
	}
	item := record.WorkItem{Status: registry.Success, CreatedAt: began, UpdatedAt: began.Add(1000 * time.Minute)}
	lanes, earlier := console.TimelineOf(item, h, nil, began, false)
	if earlier != 800 || len(lanes) != 399 || lanes[0].Attempt != 800 { // 200 attempts, and the time between
		t.Errorf("%d are left out, %d are shown from %d", earlier, len(lanes), lanes[0].Attempt)
	}
	if lanes, earlier = console.TimelineOf(item, h, nil, began, true); earlier != 0 || len(lanes) != 1999 {
		t.Errorf("of all %d are left out, %d are shown", earlier, len(lanes))
	}
}
