package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// server is a running PostgreSQL: the process whose children its sessions are.
type server struct{ pid int }

func findServer(ctx context.Context, db *pgxpool.Pool) (server, error) {
	var session int
	if err := db.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&session); err != nil {
		return server{}, fmt.Errorf("find the server: %w", err)
	}
	s, err := readStat(session)
	return server{s.parent}, err
}

// cpu is how many seconds of CPU the server has had, with its sessions, those that ended and all
// that it runs in the background.
func (s server) cpu() (sum float64, err error) {
	own, err := readStat(s.pid)
	if err != nil {
		return 0, err
	}
	sum = own.self + own.ended
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		p, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && p.parent != s.pid:
			continue // it has just ended, or is someone else's
		case err != nil:
			return 0, err
		}
		sum += p.self
	}
	return sum, nil
}

// stat is what Linux says of a process.
type stat struct {
	parent      int
	self, ended float64 // seconds of CPU: its own, and of children that ended
}

const ticks = 100 // a second, wherever Linux runs

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("read the CPU time of process %d: %q", pid, text)
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return s, fmt.Errorf("read the parent of process %d: %w", pid, err)
	}
	var at [4]float64
	for i := range at {
		if at[i], err = strconv.ParseFloat(fields[11+i], 64); err != nil {
			return s, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
	}
	s.self, s.ended = (at[0]+at[1])/ticks, (at[2]+at[3])/ticks
	return s, nil
}

// machineCPU is how many seconds all cores together have worked. What a virtual machine's host
// gave to others counts as work: nobody here could have it.
func machineCPU() (sum float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of the machine: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(line)[1:] {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of the machine: %w", err)
		}
		if idle := i == 3 || i == 4; !idle && i < 8 { // guests are in the first two
			sum += v / ticks
		}
	}
	return sum, nil
}
