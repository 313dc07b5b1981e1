package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// usage is what processes have had so far, by kind.
type usage struct {
	cpu  map[string]float64 // seconds of user and system time, with that of children that ended
	peak map[string]float64 // largest resident size of one process, MiB
	busy float64            // seconds that the machine's cores were busy, for whomever
}

// procfs is where Linux shows its processes.
const procfs = "/proc"

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

// process is a process as /proc shows it.
type process struct {
	parent     int
	own, ended float64 // processor time, and that of children that have ended
	args       []string
}

// processes reads all processes of the machine, by number. One that ends in between
// is left out.
func processes(proc string) map[int]process {
	stats, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat")) // the pattern is well-formed
	list := map[int]process{}
	for _, path := range stats {
		dir := filepath.Dir(path)
		stat, err := os.ReadFile(path)
		line, lineErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		number, numberErr := strconv.Atoi(filepath.Base(dir))
		if err != nil || lineErr != nil || numberErr != nil {
			continue
		}
		// The name, which may have spaces, is in brackets.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		seconds := func(first int) (sum float64) {
			for _, f := range fields[first : first+2] {
				ticks, _ := strconv.ParseFloat(f, 64)
				sum += ticks / 100
			}
			return sum
		}
		parent, _ := strconv.Atoi(fields[1])
		list[number] = process{parent: parent, own: seconds(11), ended: seconds(13), args: strings.Split(string(line), "\x00")}
	}
	return list
}

// used adds up what a process and all that descend from it have had.
func used(proc string, root int) usage {
	u := usage{cpu: map[string]float64{}, peak: map[string]float64{}, busy: busy(proc)}
	list := processes(proc)
	for number, p := range list {
		for up := number; up > 1; up = list[up].parent {
			if up != root {
				continue
			}
			name := kind(p.args)
			u.cpu[name] += p.own
			if name != "other" { // the children of those count themselves
				u.cpu[name] += p.ended
			}
			u.peak[name] = max(u.peak[name], peak(filepath.Join(proc, strconv.Itoa(number), "status")))
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

// peak is the largest resident size of a process so far, in MiB.
func peak(status string) float64 {
	text, _ := os.ReadFile(status) // it may have ended
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib float64
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}

// busy is how long the cores have been busy since the machine started, with the time that
// the host gave to others.
func busy(proc string) (seconds float64) {
	text, _ := os.ReadFile(filepath.Join(proc, "stat"))
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	const idle, wait, guest = 4, 5, 9 // guests are in user time already
	for i, f := range fields {
		if i == 0 || i >= guest || slices.Contains([]int{idle, wait}, i) {
			continue
		}
		ticks, _ := strconv.ParseFloat(f, 64)
		seconds += ticks / 100
	}
	return seconds
}

// ownCPU is the processor time of this program, with that of children that have ended.
func ownCPU() float64 { return cpuOf(syscall.RUSAGE_SELF) + cpuOf(syscall.RUSAGE_CHILDREN) }

func cpuOf(who int) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return math.NaN()
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
