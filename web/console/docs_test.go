package console_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/console"
)

// The document about the console names every page of the list of pages, and no page that there
// is not.
func TestDocumentNamesThePages(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../docs/console.md"))(t)
	_, table, _ := strings.Cut(string(text), "## Pages")
	table, _, _ = strings.Cut(table, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 2 {
			continue
		}
		for _, m := range regexp.MustCompile("`(/[a-z0-9/]*)`").FindAllStringSubmatch(cells[1], -1) {
			named[strings.ReplaceAll(m[1], "7", "{id}")] = true
		}
	}
	there := map[string]bool{}
	for _, sheet := range console.Sheets() {
		path := strings.TrimSuffix(sheet.Path, "{$}")
		there[path] = true
		if sheet.Nav != "" && !named[path] {
			t.Errorf("docs/console.md does not name %s", path)
		}
	}
	for path := range named {
		if !there[path] {
			t.Errorf("docs/console.md names %s, which is no page", path)
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d pages are named", len(named))
	}
}
