package format

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// headroom is for the stacks of threads, and for the heap's growth in steps of
// 64 MiB.
const headroom = 64 << 20

// limitProcess lets the process use so many bytes more than it has now.
//
// The garbage collector gets its limit first. The limit on the address space, which also
// holds for what the collector does not see, ends the process if that does not
// help; it counts from what is mapped already, of which Go's runtime reserves
// far more than it uses. Files are limited too: Siegfried unpacks large
// members of archives into temporary ones.
func limitProcess(memory int64) error {
	var pages int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(string(statm), &pages); err != nil {
		return fmt.Errorf("read /proc/self/statm: %w", err)
	}
	debug.SetMemoryLimit(memory)
	mapped := pages * int64(os.Getpagesize())
	space := uint64(math.MaxInt64)
	if memory < math.MaxInt64-mapped-headroom {
		space = uint64(mapped + memory + headroom)
	}
	return errors.Join(
		lower(unix.RLIMIT_AS, space),
		lower(unix.RLIMIT_FSIZE, uint64(memory)),
		lower(unix.RLIMIT_CORE, 0),
	)
}

// lower sets a limit, unless a stricter one is in force.
func lower(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("read limit %d: %w", resource, err)
	}
	value = min(value, now.Max, now.Cur)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
		return fmt.Errorf("set limit %d to %d: %w", resource, value, err)
	}
	return nil
}
