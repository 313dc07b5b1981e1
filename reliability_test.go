package farol_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The table of RELIABILITY.md is of a program that is like this one: it was measured within
// the last 300 commits. Outside of a checkout, as in an archive of a release, nobody can tell.
func TestReliabilityIsMeasured(t *testing.T) {
	t.Parallel()
	const most = 300
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("this is no checkout of the repository, so the age of RELIABILITY.md's table is unknown")
	}
	page, err := os.ReadFile("RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Experiments\n")
	found := regexp.MustCompile("at commit `([^`]*)`").FindStringSubmatch(table)
	if found == nil || !regexp.MustCompile("^[0-9a-f]{7,40}$").MatchString(found[1]) {
		t.Fatalf("RELIABILITY.md names no commit of its table, or one that is not clean: %q. Run make chaos ARGS='--all --markdown' at a commit, and paste what it prints.", found)
	}
	out, err := exec.CommandContext(t.Context(), "git", "rev-list", "--count", found[1]+"..HEAD").CombinedOutput()
	if err != nil {
		t.Fatalf("cannot count the commits since %s, which the table of RELIABILITY.md is of: %v: %s\nIn a shallow clone, get its history first: git fetch --unshallow.", found[1], err, out)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || n > most {
		t.Errorf("the table of RELIABILITY.md is of commit %s, %d commits back (%v); at most %d are allowed. Run make chaos ARGS='--all --markdown', and replace the table.", found[1], n, err, most)
	}
}
