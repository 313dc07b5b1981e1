package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Procfs is where Linux shows its processes.
const Procfs = "/proc"

// A Process is a process as /proc shows it.
type Process struct {
	Parent     int
	Own, Ended float64 // seconds of processor time, and that of children that have ended
	Args       []string
}

// Processes reads all processes of the machine, by number. One that ends in between is
// left out.
func Processes(proc string) map[int]Process {
	stats, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat")) // the pattern is well-formed
	list := map[int]Process{}
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
		parent, _ := strconv.Atoi(fields[1])
		list[number] = Process{parent, seconds(fields[11:13]), seconds(fields[13:15]), strings.Split(string(line), "\x00")}
	}
	return list
}

// seconds adds up ticks: a second has a hundred of them wherever Linux runs.
func seconds(ticks []string) (sum float64) {
	for _, t := range ticks {
		n, _ := strconv.ParseFloat(t, 64)
		sum += n / 100
	}
	return sum
}

// Memory is what a process has, in MiB: VmRSS, its resident size now, or VmHWM, the largest so far.
func Memory(proc string, pid int, which string) (mib float64, err error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err == nil {
		_, rest, _ := strings.Cut(string(text), "\n"+which+":")
		_, err = fmt.Sscanf(strings.TrimSpace(rest), "%f kB", &mib)
	}
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return mib / 1024, nil
}

// Busy is how many seconds the cores have worked since the machine started, with the time that
// the host of a virtual machine gave to others.
func Busy(proc string) float64 {
	text, _ := os.ReadFile(filepath.Join(proc, "stat"))
	first, _, _ := strings.Cut(string(text), "\n")
	const idle, guest = 4, 9 // idle and waiting; guests are in user time already
	fields := strings.Fields(first)
	fields = fields[:min(guest, len(fields))]
	if len(fields) <= idle+1 {
		return math.NaN()
	}
	return seconds(slices.Concat(fields[1:idle], fields[idle+2:]))
}

// CPU is the processor time of this program, or of its children that have ended: who is
// [syscall.RUSAGE_SELF] or [syscall.RUSAGE_CHILDREN].
func CPU(who int) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return math.NaN()
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// A Postmaster is a running PostgreSQL: the number of the process whose children its sessions are.
type Postmaster int

// FindPostmaster finds the PostgreSQL of a database on this machine.
func FindPostmaster(ctx context.Context, db *pgxpool.Pool) (Postmaster, error) {
	var session int
	if err := db.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&session); err != nil {
		return 0, fmt.Errorf("find the server: %w", err)
	}
	p, found := Processes(Procfs)[session]
	if !found {
		return 0, fmt.Errorf("find the server: its session %d has ended", session)
	}
	return Postmaster(p.Parent), nil
}

// Alone gives the server, with all that it runs, the first core of the machine, and this program and
// the children that it starts from now on the others.
func (p Postmaster) Alone(ctx context.Context) error {
	last := runtime.NumCPU() - 1
	if last == 0 {
		return errors.New("this machine has one core")
	}
	cores := map[int]string{int(p): "0", os.Getpid(): "1-" + strconv.Itoa(last)}
	for pid, child := range Processes(Procfs) {
		if child.Parent == int(p) {
			cores[pid] = "0"
		}
	}
	for pid, list := range cores {
		out, err := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", list, strconv.Itoa(pid)).CombinedOutput()
		if _, lives := Processes(Procfs)[pid]; err != nil && lives {
			return fmt.Errorf("give process %d the cores %s: %w: %s", pid, list, err, out)
		}
	}
	return nil
}

// CPU is how many seconds of processor time the server has had, with its sessions, those that
// ended and all that it runs in the background.
func (p Postmaster) CPU() (sum float64) {
	list := Processes(Procfs)
	for _, child := range list {
		if child.Parent == int(p) {
			sum += child.Own
		}
	}
	return sum + list[int(p)].Own + list[int(p)].Ended
}
