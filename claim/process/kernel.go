// Package process finds out what became of the workers of a host: whether they live, what
// they died of, and which files they were processing.
package process

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Kernel reads what Linux reports of processes and control groups below two
// directories. On other systems the files do not exist, and of a silent worker only its
// silence is known.
type Kernel struct{ Proc, CGroup string }

// Linux is the kernel of this host.
func Linux() Kernel { return Kernel{Proc: "/proc", CGroup: "/sys/fs/cgroup"} }

// Start is one start of a program, as its kernel knows it.
type Start struct {
	Host     string // boot and process namespace, in which PID is valid; "" if unknown
	PID      int
	Ticks    int64  // the kernel's start time of the process
	Group    string // control group of the memory controller; "" if there is none
	OOMKills int64  // in the control group so far
}

// Self is this start of this program.
func (k Kernel) Self() Start {
	s := Start{Host: k.host(), PID: os.Getpid(), Group: k.group()}
	var err error
	if s.Ticks, err = k.startTime(s.PID); err != nil {
		s.Host = "" // nobody could find out whether this process lives
	}
	return s
}

// host names what the process numbers of this process are valid in; "" if it
// cannot be known.
func (k Kernel) host() string {
	boot, err := os.ReadFile(filepath.Join(k.Proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink(filepath.Join(k.Proc, "self/ns/pid"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// startTime is when a process started, in ticks since boot. A process that is
// not there, or that has ended and only waits for its parent to notice, is
// fs.ErrNotExist.
func (k Kernel) startTime(pid int) (int64, error) {
	stat, err := os.ReadFile(filepath.Join(k.Proc, strconv.Itoa(pid), "stat")) //nolint:gosec // a number cannot lead elsewhere
	if err != nil {
		return 0, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses, with anything in it.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, start = 0, 19 // fields 3 and 22 of proc(5)
	if !ok || len(fields) <= start {
		return 0, fmt.Errorf("inspect process %d: %q is not in the format of proc(5)", pid, stat)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, fmt.Errorf("inspect process %d: it has ended: %w", pid, fs.ErrNotExist)
	}
	n, err := strconv.ParseInt(fields[start], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	return n, nil
}

// group is the control group whose memory limit this process is under, as a path
// below the root of control groups; "" if there is none.
func (k Kernel) group() string {
	file, err := os.Open(filepath.Join(k.Proc, "self/cgroup"))
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it was only read
	unified := ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), ":", 3) // cgroups(7): hierarchy, controllers, path
		switch {
		case len(fields) != 3:
		case fields[1] == "memory": // version 1
			return filepath.Join("memory", fields[2])
		case fields[0] == "0":
			unified = fields[2]
		}
	}
	return unified
}

// OOMKills counts the processes of a control group that the kernel has killed
// because memory ran out. A group that is gone with its last process is looked up at
// the nearest one above it; the root says nothing about anyone.
func (k Kernel) OOMKills(group string) int64 {
	for ; group != "" && group != "." && group != "/" && group != "memory"; group = filepath.Dir(group) {
		for _, name := range []string{"memory.events", "memory.oom_control"} { // versions 2 and 1
			text, err := os.ReadFile(filepath.Join(k.CGroup, group, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
					kills, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
					return kills
				}
			}
		}
	}
	return 0
}

// What a worker died of, as in worker_processes.
const (
	Panic   = "panic"
	OOM     = "oom"
	Killed  = "killed"
	Stopped = "stopped" // it was asked to stop, and killed before it had ended
)

// Death is what is known of a worker that ended without signing off.
type Death struct {
	Cause   string // [Panic], [OOM], [Killed] or [Stopped]
	Message string // the first lines of the panic
}

// CauseOf finds out what a worker of this host died of. ok is false while it lives, or
// if the cause cannot be known.
func (k Kernel) CauseOf(worker string, s Start) (d Death, ok bool) {
	ticks, err := k.startTime(s.PID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && ticks == s.Ticks {
		return Death{}, false
	}
	switch message := panicOf(worker); {
	case message != "":
		return Death{Cause: Panic, Message: message}, true
	case k.OOMKills(s.Group) > s.OOMKills:
		return Death{Cause: OOM}, true
	default:
		return Death{Cause: Killed}, true
	}
}
