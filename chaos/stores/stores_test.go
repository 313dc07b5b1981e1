package stores

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run replaces its table in the page, and nothing else of it: people write the rest. A page
// that has lost the marks is not overwritten.
func TestTableIsReplacedBetweenItsMarks(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "stores.md")
	if err := os.WriteFile(page, []byte("# Head\n"+tableBegins+"old\n"+tableEnds+"tail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := outcome{Act: "deposit", Right: 1, Want: 3}
	bad.wrong("refused", "an  example\nof it")
	bad.wrong("refused", "another")
	r := report{Results: []result{{Does: "A store", Acts: []outcome{bad, {Act: "check", Right: 4, Want: 4, Wrong: []wrong{{What: "events", Count: 1}}}}}}}
	for range 2 {
		if err := r.write(page); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if !strings.HasPrefix(got, "# Head\n"+tableBegins) || !strings.HasSuffix(got, tableEnds+"tail\n") || strings.Contains(got, "old") ||
		strings.Count(got, "| A store |  | 1/3 | 4/4 ! | – |") != 1 || strings.Count(got, "- A store: deposit: 2 refused; check: 1 events.\n") != 1 {
		t.Errorf("the page is:\n%s", got)
	}
	if example := bad.Wrong[0].Example; example != "an example of it" {
		t.Errorf("the example is %q", example)
	}

	const without = "# Head\n" + tableEnds + tableBegins
	if err := os.WriteFile(page, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.write(page); err == nil {
		t.Error("a page without a place for the table is accepted")
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != without {
		t.Errorf("it was overwritten: %v", err)
	}
}

// A row is right only if every act is, and something was done at all.
func TestRowsAreRightOnlyIfAllIs(t *testing.T) {
	t.Parallel()
	right := outcome{Right: 2, Want: 2}
	for _, c := range []struct {
		r    result
		good bool
	}{
		{result{Acts: []outcome{right, right}}, true},
		{result{}, false},
		{result{Acts: []outcome{right, {Right: 1, Want: 2}}}, false},
		{result{Acts: []outcome{{Right: 2, Want: 2, Wrong: []wrong{{What: "events"}}}}}, false},
		{result{Acts: []outcome{right}, Error: "it did not start"}, false},
	} {
		if c.r.good() != c.good {
			t.Errorf("%+v is right: %t", c.r, c.r.good())
		}
	}
}
