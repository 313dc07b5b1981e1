package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant that no longer fits the code kills nothing. That the tests kill each is for
// make mutants to say.
func TestMutantsFitTheCode(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		broken, err := m.applied(rootOfAll)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if whole, err := os.ReadFile(filepath.Join(rootOfAll, m.file)); err != nil || broken == string(whole) {
			t.Errorf("%s changes nothing, %v", m.name, err)
		}
		for _, name := range strings.Split(m.tests, "|") {
			if !defined(t, m.pkg, name) {
				t.Errorf("%s: there is no %s in %s", m.name, name, m.pkg)
			}
		}
	}
}

func defined(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(rootOfAll, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "func "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}
