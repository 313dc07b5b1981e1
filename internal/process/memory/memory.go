// Package memory fits a process into the memory of its control group.
package memory

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// What a worker's memory is for, in addition to its heap and the lists of bags in that.
const (
	childMemory = 112 << 20 // of a child with its signatures, at work; a bomb in a file ends the child, not the worker
	outsideHeap = 32 << 20  // the program itself, stacks of threads, and what the kernel counts to the group
	besideLists = 64 << 20  // of the heap: buffers of uploads, small bags, claims; and a part of the lists' own for garbage
)

// Fit has the process fit into what its control group may use, less what
// so many children use, unless the environment says otherwise. Up to that, garbage is
// collected as [Collect] has it. It returns how much there is for lists of files.
func Fit(percent, children int) int64 {
	heap := heapOf(Limit("/proc", "/sys/fs/cgroup"), children)
	if os.Getenv("GOMEMLIMIT") == "" && os.Getenv("GOGC") == "" {
		Collect(percent)
		debug.SetMemoryLimit(heap)
	}
	return ListsWithin(heap)
}

// ForLists is how much [Fit] leaves for lists of files where a process may use so much.
func ForLists(limit int64, children int) int64 { return ListsWithin(heapOf(limit, children)) }

// heapOf is the heap of a process: what GOMEMLIMIT says, or what its control group allows.
func heapOf(limit int64, children int) int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		return HeapWithin(limit, children)
	}
	if heap := debug.SetMemoryLimit(-1); heap < math.MaxInt64 {
		return heap
	}
	return limit
}

const (
	mostGarbage  = 96 << 20
	wantedHeap   = 192 << 20 // with garbage: what the lists of the largest bags leave of it is for garbage
	leastPercent = 25        // of what lives, since each collection looks at all of that
)

// Collect has garbage collected when there is so much of it, in percent of what lives, or
// 96 MiB, or the heap has 192 MiB: what is cheap while little lives would let a process with
// the lists of a large bag grow to several times what it needs.
func Collect(percent int) {
	debug.SetGCPercent(percent)
	after(func() {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		live := int(max(sample[0].Value.Uint64(), 1)) //nolint:gosec // no machine has so much
		bounded := min(mostGarbage, wantedHeap-live) * 100 / live
		debug.SetGCPercent(min(percent, max(bounded, leastPercent)))
	})
}

// after calls f after each collection of garbage: a finalizer runs then, and sets the next.
func after(f func()) {
	type mark struct{ _ *byte }
	var again func(*mark)
	again = func(m *mark) {
		f()
		runtime.SetFinalizer(m, again)
	}
	runtime.SetFinalizer(new(mark), again)
}

// HeapWithin is the heap of a process that has a limit for itself and its children.
func HeapWithin(limit int64, children int) int64 {
	return max(limit-outsideHeap-int64(children)*childMemory, 64<<20)
}

// ListsWithin is what of a heap there is for lists of files.
func ListsWithin(heap int64) int64 { return max((heap-besideLists)*3/4, 16<<20) }

// Limit returns what this process may use: the least limit of its control group and
// those above it, of either version, or the memory of the machine.
func Limit(proc, groups string) int64 {
	least := int64(math.MaxInt64)
	if info, err := os.ReadFile(filepath.Join(proc, "meminfo")); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kib); err == nil {
			least = kib << 10
		}
	}
	lines, _ := os.ReadFile(filepath.Join(proc, "self", "cgroup")) // without it, the machine counts
	for line := range strings.Lines(string(lines)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := groups, "memory.max"
		switch parts[1] {
		case "":
		case "memory":
			root, file = filepath.Join(groups, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			text, err := os.ReadFile(filepath.Join(root, path, file))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n > 0 {
				least = min(least, n)
			}
			if path == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 512 << 20 // it is unknown
	}
	return least
}
