package claim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// process is this start of a program, as others learn of it.
type process struct {
	identity

	host     string // boot and process namespace: who shares them sees whether it lives
	started  int64  // the kernel's start time of the process, in its ticks
	cgroup   string // control group of the memory controller
	oomKills int64  // in the control group so far
	pools    json.RawMessage
	beat     float64 // seconds between heartbeats
	givenUp  []givenUp
}

// givenUp is a claim that a process stopped working on, since it could not renew
// its lease. It lives to tell why, once it can.
type givenUp struct {
	item, token int64
	inHand      string
	code        string
	lease       time.Duration
	told        time.Time // for the first time; zero: not yet
}

// Why a lease was not renewed, of a worker that lives.
const (
	codeLost        = "lease-lost"  // it stood still
	codeUnreachable = "unreachable" // the database was, from there
	codeClaimLost   = "claim-lost"  // it never heard that it has the item
	codeClockSet    = "clock-set"   // the database's clock was set forward, and the claim ended before its time
)

// kernel is where Linux tells of processes and control groups. Elsewhere the
// files are not there, and all that is learnt of a silent worker is its silence.
type kernel struct{ proc, cgroup string }

func linux() kernel { return kernel{proc: "/proc", cgroup: "/sys/fs/cgroup"} }

// host names what the process numbers of this process are valid in; "" if it
// cannot be known.
func (k kernel) host() string {
	boot, err := os.ReadFile(filepath.Join(k.proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink(filepath.Join(k.proc, "self/ns/pid"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// startTime is when a process started, in ticks since boot. A process that is
// not there, or that has ended and only waits for its parent to notice, is
// fs.ErrNotExist.
func (k kernel) startTime(pid int) (int64, error) {
	stat, err := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(pid), "stat")) //nolint:gosec // a number cannot lead elsewhere
	if err != nil {
		return 0, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses, with anything in it.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, start = 0, 19 // fields 3 and 22 of proc(5)
	if !ok || len(fields) <= start {
		return 0, fmt.Errorf("look at process %d: %q is not what proc(5) says", pid, stat)
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, fmt.Errorf("look at process %d: it has ended: %w", pid, fs.ErrNotExist)
	}
	n, err := strconv.ParseInt(fields[start], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return n, nil
}

// group is the control group whose memory limit this process is under, as a path
// below the root of control groups; "" if there is none.
func (k kernel) group() string {
	file, err := os.Open(filepath.Join(k.proc, "self/cgroup"))
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

// oomKills counts the processes of a control group that the kernel has killed
// for want of memory. A group that is gone with its last process is asked for at
// the nearest one above it; the root says nothing about anyone.
func (k kernel) oomKills(group string) int64 {
	for ; group != "" && group != "." && group != "/" && group != "memory"; group = filepath.Dir(group) {
		for _, name := range []string{"memory.events", "memory.oom_control"} { // versions 2 and 1
			text, err := os.ReadFile(filepath.Join(k.cgroup, group, name))
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

// death is what is known of a worker that ended without a word.
type death struct {
	ending string // as in worker_processes
	detail string // what it said last, of a panic
}

// causeOf finds out what a process of this host died of. ok is false while it
// lives, or if that cannot be known.
func (k kernel) causeOf(p process) (d death, ok bool) {
	started, err := k.startTime(p.pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && started == p.started {
		return death{}, false
	}
	switch said := lastWords(p.worker); {
	case said != "":
		return death{ending: "panic", detail: said}, true
	case k.oomKills(p.cgroup) > p.oomKills:
		return death{ending: "oom"}, true
	default:
		return death{ending: "killed"}, true
	}
}

// recorder is the flight recorder of a process: a directory that outlives it, in
// which it notes the files in hand as it takes them up, and Go writes the panic
// that ends it. Its files are read by another worker of the same host, after
// this one has died.
type recorder struct {
	dir  string
	file *os.File
}

const (
	slotSize      = 1024 // bytes for one item's note
	recorderSlots = 64
	handsFile     = "hands"
	crashFile     = "crash"
)

// newRecorder makes the recorder of this process, to which Go then writes its
// last words. A process that cannot have one works without.
func newRecorder(worker string) (*recorder, error) {
	r, err := makeRecorder(worker)
	if err != nil {
		return nil, err
	}
	crash, err := os.OpenFile(filepath.Join(r.dir, crashFile), os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(debug.SetCrashOutput(crash, debug.CrashOptions{}), crash.Close())
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("make a flight recorder: %w", err)
	}
	return r, nil
}

func makeRecorder(worker string) (*recorder, error) {
	r := &recorder{dir: recorderOf(worker)}
	err := os.Mkdir(r.dir, 0o700)
	if err == nil {
		r.file, err = os.OpenFile(filepath.Join(r.dir, handsFile), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, crashFile), nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a flight recorder: %w", err), os.RemoveAll(r.dir))
	}
	for slot := range recorderSlots { // no slot begins in a hole of the file
		r.note(slot, 0, "")
	}
	return r, nil
}

// note writes the file in hand of an item into its slot. One write is all it
// takes, and what was written survives the process, if not the machine.
func (r *recorder) note(slot int, item int64, name string) {
	if r == nil {
		return
	}
	line := fmt.Sprintf("%d %q", item, name)
	if len(line) > slotSize-1 {
		end := name[max(0, len(name)-slotSize/8):] // the end tells more; a byte takes four at most
		for cut := 0; cut < utf8.UTFMax-1 && end != "" && !utf8.RuneStart(end[0]); cut++ {
			end = end[1:] // of a character whose beginning is cut off
		}
		line = fmt.Sprintf("%d %q", item, end)
	}
	note := make([]byte, slotSize)
	for i := range note {
		note[i] = ' '
	}
	copy(note, line)
	note[slotSize-1] = '\n'
	r.file.WriteAt(note, int64(slot)*slotSize) //nolint:errcheck // it is for the case that all else failed
}

func (r *recorder) close() {
	if r == nil {
		return
	}
	debug.SetCrashOutput(nil, debug.CrashOptions{}) //nolint:errcheck // nothing is to be done about it
	r.file.Close()                                  //nolint:errcheck // what it holds is of no more use
	os.RemoveAll(r.dir)                             //nolint:errcheck // it is in the temporary directory
}

// recorderOf is where a worker of this host has its recorder.
func recorderOf(worker string) string {
	return filepath.Join(os.TempDir(), "farol-worker-"+filepath.Base(worker))
}

// handsOf reads which files a dead worker had in hand, by item.
func handsOf(worker string) map[int64]string {
	hands := map[int64]string{}
	for line := range strings.Lines(readRecord(worker, handsFile)) {
		id, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		item, idErr := strconv.ParseInt(id, 10, 64)
		name, nameErr := strconv.Unquote(quoted)
		if idErr == nil && nameErr == nil && name != "" {
			hands[item] = readable(name)
		}
	}
	return hands
}

// lastWords are the first lines of the panic that ended a worker; "" if none did.
func lastWords(worker string) string {
	said, _, _ := strings.Cut(readRecord(worker, crashFile), "\n\n") // what follows are the goroutines
	return strings.TrimSpace(said)
}

// readRecord returns the beginning of a file of a worker's recorder, of 64 KiB
// at most; "" if there is none.
func readRecord(worker, name string) string {
	file, err := os.Open(filepath.Join(recorderOf(worker), name))
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return ""
	}
	return readable(string(content))
}

// discardRecord removes what a worker left behind, once it is in the ledger.
func discardRecord(worker string) {
	os.RemoveAll(recorderOf(worker)) //nolint:errcheck // it is in the temporary directory
}
