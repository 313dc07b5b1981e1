package table

import (
	"cmp"
	"slices"
	"strings"
	"syscall"

	"github.com/farol-preservation/farol/bench/rig"
)

// A workload is bags that arrive at the same time. Those of W1 to W3 were measured with the
// system that Farol replaces.
type workload struct {
	name   string
	bags   int
	files  int     // of each bag
	size   int64   // of each file, bytes
	rounds int     // one after another; the median of their times counts
	goal   float64 // at most so many times the least that a resource needs; 0: none
}

// wallGoal is how many times as long as the busiest resource needs a workload may take: seconds
// would be those of one machine.
const wallGoal = 1.3

func workloads() []workload {
	return []workload{
		{name: "W1", bags: 30, files: 20, size: 64 << 10, rounds: 1, goal: wallGoal},
		{name: "S", bags: 1, files: 20, size: 64 << 10, rounds: 9},
		{name: "W2", bags: 1, files: 3000, size: 1 << 10, rounds: 1, goal: wallGoal},
		{name: "W3", bags: 3, files: 1, size: 512 << 20, rounds: 1, goal: wallGoal},
		{name: "W4", bags: 2000, files: 3, size: 4 << 10, rounds: 1},
		{name: "W5", bags: 1, files: 30_000, size: 4 << 10, rounds: 1, goal: wallGoal},
	}
}

// transitionsName is the workload that has no bags: transitions a second, by 8 workers that
// claim 100 items at a time.
const transitionsName = "transitions"

// stages are how many an ingest goes through.
const stages = 9

// need is what a resource has to do for a workload at the least, in seconds.
type need struct {
	of      string
	seconds float64
}

// least says which resource of the machine a round of a workload needs for longest, however
// it is done: two copies of each of so many files are put, each byte has its four digests,
// each file its format, and each transition is a commit. The digests have all cores.
func (w workload) least(stored int, l limits, cores int) need {
	bytes := float64(w.bags) * float64(w.files) * float64(w.size)
	copies := 2 * float64(stored) / l[put]
	if w.size >= partSize {
		copies = 2 * bytes / 1e6 / l[part]
	}
	identified := l[identifyNoise]
	if w.size < 32<<10 {
		identified = l[identifyText]
	}
	digests := 1/l[md5Rate] + 1/l[sha1Rate] + 1/l[sha256Rate] + 1/l[sha512Rate]
	return slices.MaxFunc([]need{
		{"gateway", copies},
		{"digests", bytes / 1e6 * digests / float64(cores)},
		{"formats", float64(w.bags*w.files) / identified},
		{"commits", float64(w.bags*stages) / l[commits]},
		{"disk", 2 * bytes / 1e6 / l[disk]},
	}, func(a, b need) int { return cmp.Compare(a.seconds, b.seconds) })
}

// usage is what processes have had so far, by kind.
type usage struct {
	cpu  map[string]float64 // seconds of user and system time, with that of children that ended
	peak map[string]float64 // largest resident size of one process, MiB
	busy float64            // seconds that the machine's cores were busy, for whomever
}

// kind names what a process of farol dev is. Others are Redis, nsqd, mirror and scheduler.
func kind(args []string) string {
	line := strings.Join(args, " ")
	switch {
	case strings.Contains(line, "internal identify"):
		return "identify"
	case len(args) > 1 && args[1] == "work":
		return "worker"
	case strings.Contains(line, "internal s3"):
		return "gateway"
	case strings.HasPrefix(line, "postgres:"), strings.Contains(line, "bin/postgres"):
		return "postgres"
	default:
		return "other"
	}
}

// used adds up what a process and all that descend from it have had.
func used(proc string, root int) usage {
	u := usage{cpu: map[string]float64{}, peak: map[string]float64{}, busy: rig.Busy(proc)}
	list := rig.Processes(proc)
	for number, p := range list {
		for up := number; up > 1; up = list[up].Parent {
			if up != root {
				continue
			}
			name := kind(p.Args)
			u.cpu[name] += p.Own
			if name != "other" { // the children of those count themselves
				u.cpu[name] += p.Ended
			}
			peak, _ := rig.Memory(proc, number, "VmHWM") // it may have ended
			u.peak[name] = max(u.peak[name], peak)
			break
		}
	}
	return u
}

// since is the processor time between two moments. The peaks are those of the whole life.
func (u usage) since(b usage) usage {
	d := usage{cpu: map[string]float64{}, peak: u.peak, busy: u.busy - b.busy}
	for name := range u.cpu {
		d.cpu[name] = u.cpu[name] - b.cpu[name]
	}
	return d
}

func (u usage) all() (seconds float64) {
	for _, s := range u.cpu {
		seconds += s
	}
	return seconds
}

// ownCPU is the processor time of this program, with that of children that have ended.
func ownCPU() float64 { return rig.CPU(syscall.RUSAGE_SELF) + rig.CPU(syscall.RUSAGE_CHILDREN) }
