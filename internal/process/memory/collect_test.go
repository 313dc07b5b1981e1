package memory

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// What little lives may have several times as much garbage; what much lives may not. The
// collector is the process's, so the test is one of its own.
func TestGarbageIsBounded(t *testing.T) {
	t.Parallel()
	const variable = "FAROL_TEST_LIVE_MIB"
	if live, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		Collect(400)
		fmt.Println("MiB of garbage:", garbageBeside(live))
		return
	}
	for _, tc := range []struct{ live, least, most int }{
		{live: 8, least: 30, most: 40}, // four times what lives, and some of the runtime's own
		{live: 90, least: 90, most: 100},
		{live: 140, least: 45, most: 55},   // up to 192 in all
		{live: 640, least: 155, most: 165}, // a quarter
	} {
		t.Run(strconv.Itoa(tc.live), func(t *testing.T) {
			t.Parallel()
			test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGarbageIsBounded$", "-test.v")
			test.Env = append(os.Environ(), variable+"="+strconv.Itoa(tc.live), "GOGC=")
			out, err := test.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var garbage int
			_, says, _ := strings.Cut(string(out), "MiB of garbage: ")
			if _, err := fmt.Sscan(says, &garbage); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if garbage < tc.least || garbage > tc.most {
				t.Errorf("%d MiB of garbage, want %d to %d", garbage, tc.least, tc.most)
			}
		})
	}
}

// garbageBeside says at how much garbage the collector begins while so many MiB live, in MiB.
func garbageBeside(live int) int {
	debug.SetMemoryLimit(4 << 30) // as on a large machine
	var keep [][]byte
	for range live {
		keep = append(keep, make([]byte, 1<<20))
	}
	var m runtime.MemStats
	for range 20 { // finalizers run some time after a collection
		runtime.GC()
		runtime.Gosched()
	}
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(keep)
	return int(m.NextGC>>20) - live
}
