package rig_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/farol-preservation/farol/bench/rig"
)

func TestMemoryOfAProcess(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	status := filepath.Join(proc, "7", "status")
	if err := os.Mkdir(filepath.Dir(status), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]float64{"Name:\tlists\nVmHWM:\t  9999 kB\nVmRSS:\t   2048 kB\nThreads:\t9\n": 2, "Name:\tlists\n": 0} {
		if err := os.WriteFile(status, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := rig.Memory(proc, 7, "VmRSS"); got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v MiB, %v", text, got, err)
		}
	}
}
