package bag_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A tar is refused for what the documentation calls an error of the tar, and never
// for a warning, or for what is no fault of a bag.
func TestRefusesForFaultsOfTheTarAlone(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(filepath.Join("..", "docs", "validation-codes.md")))(t)
	_, rest, _ := strings.Cut(string(page), "## The tar\n")
	tar, _, _ := strings.Cut(rest, "\n## ")
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([^|]*) \\|")
	errors := 0
	for _, m := range row.FindAllStringSubmatch(tar, -1) {
		if !strings.Contains(m[2], "warning") {
			errors++
			if !finding.Refuses(m[1]) {
				t.Errorf("%s is an error of the tar, and is not refused for", m[1])
			}
		}
	}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		if strings.HasSuffix(m[2], "; a warning.") && finding.Refuses(m[1]) {
			t.Errorf("%s is a warning, and is refused for", m[1])
		}
	}
	if errors < 5 {
		t.Errorf("%d errors of the tar in the documentation", errors)
	}
	for _, code := range []string{"", "infected", "storage-denied", "transient", "panic", "by-hand", "bag-gone", "invalid-bag"} {
		if finding.Refuses(code) {
			t.Errorf("%q is no fault that a tar is refused for", code)
		}
	}
}
