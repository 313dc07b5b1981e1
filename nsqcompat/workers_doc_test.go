package nsqcompat

import (
	"encoding/json"
	"os"
	program "os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var docBlock = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// The page for who writes a worker works as it stands: its calls, one after the
// other, its workers, and its answers are such as the API gives.
func TestWorkersPageWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	l := newLeases(t, tokened)
	calls, workers, answers := 0, 0, 0
	for _, block := range docBlock.FindAllStringSubmatch(string(page), -1) {
		switch text := block[2]; {
		case block[1] == "json":
			answers++
			schema := "Claimed"
			if strings.Contains(text, "urn:farol:problem") {
				schema = "Problem"
			}
			l.spec.fits(t, specURL+"#/components/schemas/"+schema, []byte(text))
		case strings.HasPrefix(text, "curl"):
			if calls++; calls == 1 {
				exec(t, l.db, `ALTER TABLE work_items ALTER COLUMN id RESTART WITH 7`)
				l.put("test.edu", 10)
			}
			if strings.Contains(text, `"id": 8`) { // three that somebody has claimed by then
				for range 3 {
					l.put("test.edu", 10)
					l.call("POST", "/v1/claim", scans, "Authorization", "Bearer "+exampleToken)
				}
			}
			c := program.CommandContext(t.Context(), "sh", "-ec", text)
			c.Env = append(os.Environ(), "FAROL_URL="+l.url, "FAROL_TOKEN="+exampleToken)
			out, err := c.CombinedOutput()
			if err != nil || !json.Valid([]byte(strings.SplitN(string(out), "\n", 2)[0])) || strings.Contains(string(out), "problem") {
				t.Errorf("%s: %v: %s", text, err, out)
			}
		case strings.HasPrefix(text, "examples/"):
			workers++
			id := l.put("test.edu", 10)
			c := program.CommandContext(t.Context(), "sh", "-ec", "exec ../"+text)
			c.Env = append(os.Environ(), "FAROL_URL="+l.url, "FAROL_TOKEN="+exampleToken, "TMPDIR="+t.TempDir())
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is scanned", func() bool { return l.value(`SELECT stage FROM work_items WHERE id = $1`, id) == "Reingest Check" })
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	if calls < 4 || workers != 2 || answers != 2 {
		t.Errorf("%d calls, %d workers and %d answers were found", calls, workers, answers)
	}
}
