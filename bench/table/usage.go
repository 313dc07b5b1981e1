package table

import (
	"strings"
	"syscall"

	"github.com/farol-preservation/farol/bench/rig"
)

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
