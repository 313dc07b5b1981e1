package lease

import (
	"encoding/json"
	"os"
	program "os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

var docBlock = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// The page for who writes a worker works as it stands: its calls, one after the
// other, its workers, and its answers are such as the API gives.
func TestWorkersPageWorks(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/workers.md"))(t)
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
				testenv.Exec(t, l.db, `ALTER TABLE work_items ALTER COLUMN id RESTART WITH 7`)
				l.put("test.edu", 10)
			}
			if strings.Contains(text, `"id": 8`) { // three that someone has claimed by then
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
			c := program.CommandContext(t.Context(), "sh", "-ec", "exec ../../"+text)
			c.Env = append(os.Environ(), "FAROL_URL="+l.url, "FAROL_TOKEN="+exampleToken, "TMPDIR="+t.TempDir())
			must.Do(t, c.Start())
			testenv.Eventually(t, "it is scanned", func() bool { return l.value(`SELECT stage FROM work_items WHERE id = $1`, id) == "Reingest Check" })
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

// The page explains each code that a problem may have, and of no other.
func TestWorkersPageHasTheCodes(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/workers.md"))(t)
	_, table, _ := strings.Cut(string(page), "| code | status |")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for _, row := range strings.Split(table, "\n")[2:] {
		codes, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(codes, -1) {
			told = append(told, m[1])
		}
	}
	var spec struct {
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Code struct{ Enum []string }
					}
				}
			}
		}
	}
	must.Do(t, json.Unmarshal(openAPI, &spec))
	if diff := cmp.Diff(slices.Sorted(slices.Values(spec.Components.Schemas.Problem.Properties.Code.Enum)), slices.Sorted(slices.Values(told))); diff != "" {
		t.Errorf("codes in the document (-) and on the page (+):\n%s", diff)
	}
}
