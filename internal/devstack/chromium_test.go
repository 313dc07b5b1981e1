package devstack_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/devstack"
)

// Chromium is many processes. None is left when its stack has stopped, nor when nobody
// stops it.
func TestBrowserLeavesNoProcess(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Chromium}, Ephemeral: true}
	s := start(t, o)
	if version := body(t, "http://"+s.DevToolsAddr+"/json/version"); !strings.Contains(version, "Chrome") {
		t.Errorf("at its address: %s", version)
	}
	if n := len(processesIn(t, o.Dir)); n < 4 {
		t.Errorf("it has %d processes, so this test sees nothing", n)
	}
	stop(t, s)
	if left := processesIn(t, o.Dir); len(left) > 0 {
		t.Errorf("after its stop: %v", left)
	}

	s = start(t, o)
	for pid, command := range processesIn(t, o.Dir) {
		if strings.Contains(command, "internal guard") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-s.Died()
	awaitEmpty(t, o.Dir)
}
