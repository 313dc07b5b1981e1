// Package reference compares the pages of docs that are made from the program with what the
// program says now: a test hands in a page, and gets it written with -update.
package reference

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated pages of docs") //nolint:gochecknoglobals // as package testing has it

// Fresh fails a test if the page at a path is not as it should be.
func Fresh(t testing.TB, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page to read
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err == nil && string(page) == want {
		return
	}
	lines, wanted := strings.Split(string(page), "\n"), strings.Split(want, "\n")
	for i, line := range lines {
		if i >= len(wanted) || line != wanted[i] {
			t.Errorf("%s:%d: %s", path, i+1, line)
			break
		}
	}
	t.Errorf("%s is not what the program says: run this test with -update, %v", path, err)
}
