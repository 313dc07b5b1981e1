package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// processes are those that were started in a directory.
func processes(t *testing.T, dir string) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == dir { // others end at any time
			found = append(found, link)
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
