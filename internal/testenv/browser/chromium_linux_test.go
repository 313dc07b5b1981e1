package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/testenv"
)

// processes are those that name a directory in their command line.
func processes(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir) { // others end at any time
			found = append(found, string(line))
		}
	}
	return found
}

// Chromium is many processes. None is left when it was stopped, nor when nobody stops it: the
// pipe ends with the process that has started it.
func TestChromiumLeavesNoProcess(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*chromium){
		"stopped":  (*chromium).stop,
		"left":     func(c *chromium) { c.to.Close() },
		"unwanted": func(c *chromium) { c.cmd.Process.Kill(); c.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := testenv.OwnDir(t, "chromium-")
			c, err := start(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.stop)
			if _, _, err := c.attach(&Tab{t: t}); err != nil {
				t.Fatal(err)
			}
			if n := len(processes(t, dir)); n < 3 {
				t.Errorf("it has %d processes, so this test sees nothing", n)
			}
			end(c)
			testenv.Eventually(t, "all processes to end", func() bool { return len(processes(t, dir)) == 0 })
		})
	}
}
