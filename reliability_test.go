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
// the last 300 commits. Outside of a checkout, as in an archive of a release, nobody can
// tell; of a shallow clone it is what the clone knows.
func TestReliabilityIsMeasured(t *testing.T) {
	t.Parallel()
	const most = 300
	page, err := os.ReadFile("RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Experiments\n")
	found := regexp.MustCompile("at commit `([^`]*)`").FindStringSubmatch(table)
	if found == nil || !regexp.MustCompile("^[0-9a-f]{7,40}$").MatchString(found[1]) {
		t.Fatalf("RELIABILITY.md names no commit of its table, or one that is not clean: %q. Run make chaos ARGS='--all --markdown' at a commit, and paste what it prints.", found)
	}
	if _, err := os.Stat(".git"); err != nil {
		t.Log("this is no checkout: the age of the table is not known")
		return
	}
	since := found[1] + ".."
	if git(t, "rev-parse", "--is-shallow-repository") == "true" && exec.CommandContext(t.Context(), "git", "cat-file", "-e", found[1]+"^{commit}").Run() != nil {
		since = "" // it is older than all that the clone has
	}
	n, err := strconv.Atoi(git(t, "rev-list", "--count", since+"HEAD"))
	if err != nil {
		t.Fatal(err)
	}
	if n > most {
		t.Errorf("the table of RELIABILITY.md is of commit %s, %d commits back; at most %d are allowed. Run make chaos ARGS='--all --markdown', and replace the table.", found[1], n, most)
	}
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
