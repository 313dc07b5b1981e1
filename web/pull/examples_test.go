package pull

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// messageExamples are the programs that docs/pull.md shows, by how they are run.
func messageExamples() map[string][]string {
	return map[string][]string{"messages.sh": {"sh", "../../examples/messages.sh"}, "messages.py": {"python3", "../../examples/messages.py"}}
}

// run starts an example on the queue q as the receiver r, with a script as its command.
func (s *server) run(name, script string, settings ...string) *testenv.Program {
	s.t.Helper()
	args := append(messageExamples()[name], "q", "r", "sh", "-c", script)
	return testenv.Start(s.t, args, append([]string{"FAROL_URL=" + s.url}, settings...)...)
}

// Each message comes to the command as it was posted, byte by byte, and what it
// prints is the result.
func TestExampleClients(t *testing.T) {
	t.Parallel()
	for name := range messageExamples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, testenv.Database(t))
			var odd strings.Builder // all control characters but U+0000
			for r := rune(1); r < 0x20; r++ {
				fmt.Fprintf(&odd, "%c%d", r, r)
			}
			messages := []string{
				"plain", "", `{"id":7,"message":"a \"b\" \\u0041 \\\\n \\0101 %s"}`, odd.String(), "ü 😀 \u2028 \u2029 \x7f", strings.Repeat("long ", 10_000), "two\nlines\n\n",
			}
			s.post("q", 1, messages...)
			dir := t.TempDir()
			e := s.run(name, fmt.Sprintf(`cat > %s/$MESSAGE_ID && echo 'read "it"' $MESSAGE_ID`, dir))
			testenv.Eventually(t, "all are answered", func() bool {
				return value[int](t, s, `SELECT count(*)::int FROM deliveries WHERE status = 'finished' AND result ~ '^read "it" \d+ *$'`) == len(messages)
			})
			e.Stop()
			for i, want := range messages {
				got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i+1)))
				if err != nil || string(got) != want {
					t.Errorf("message %d is %.100q, %v; want %.100q", i+1, got, err, want)
				}
			}
		})
	}
}

// A message whose command fails is given again; one that is in progress when the client
// is asked to stop is answered first, and one that waits ends at once.
func TestExampleClientsRetryAndStopWell(t *testing.T) {
	t.Parallel()
	for name := range messageExamples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, testenv.Database(t))
			idle := s.run(name, `exit 0`)
			testenv.Eventually(t, "it waits", func() bool { return s.api.Waiting() == 1 })
			idle.Stop()
			testenv.Eventually(t, "nobody waits", func() bool { return s.api.Waiting() == 0 })
			dir := t.TempDir()
			s.post("q", 1, "a")
			busy := s.run(name, fmt.Sprintf(`[ -e %[1]s/tried ] || { touch %[1]s/tried; exit 3; }
				touch %[1]s/begun; while [ ! -e %[1]s/go ]; do sleep 0.05; done; echo done`, dir), "FAROL_FAIL_TIMEOUT=0.2")
			testenv.Eventually(t, "it works", func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
			must.Do(t, busy.Process.Signal(os.Interrupt))
			must.Do(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			if err := <-busy.Ended; err != nil {
				t.Errorf("it ended with %v, want 0", err)
			}
			s.wants("the row", value[string](t, s, `SELECT concat_ws(' ', status, fail_count, trim(result)) FROM deliveries`), "finished 1 done")
		})
	}
}

func TestShellClientIsShort(t *testing.T) {
	t.Parallel()
	if n := len(testenv.Lines(t, "../../examples/messages.sh")); n > 60 {
		t.Errorf("examples/messages.sh has %d lines, more than a page", n)
	}
}
