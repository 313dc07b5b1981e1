package table

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// machine is where and of what a run was.
type machine struct {
	commit string // with a + behind it if the tree had changes
	cores  int
	memory float64 // GiB
	date   time.Time
}

func thisMachine(ctx context.Context) (machine, error) {
	m := machine{cores: runtime.NumCPU(), date: time.Now().UTC()}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return "", fmt.Errorf("ask git for the commit: %w", err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return m, err
	}
	// The history itself changes with each run.
	changed, err := git("status", "--porcelain", "--", ":/", ":(exclude,top)bench/"+historyFile)
	if err != nil {
		return m, err
	}
	m.commit = commit
	if changed != "" {
		m.commit += "+"
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, fmt.Errorf("find the size of the memory: %w", err)
	}
	var kib float64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %f", &kib); err != nil {
		return m, fmt.Errorf("find the size of the memory: %w", err)
	}
	m.memory = kib / (1 << 20)
	return m, nil
}

// historyFile is in the directory bench, from which the program is run.
const historyFile = "history.csv"

// header names the columns of the history. Figures that a workload does not have are empty.
// Neighbours is the processor time of all that is not Farol: a run with much of it is slower
// than it need be.
func header() []string {
	return []string{
		"date", "commit", "cores", "memory_gib", "workload", "wall_s", "cpu_s", "worker_cpu_s", "identify_cpu_s", "postgres_cpu_s",
		"gateway_cpu_s", "other_cpu_s", "worker_peak_mib", "s3_requests_per_file", "statements_per_transition",
		"commits_per_transition", "empty_claims_per_transition", "wal_bytes_per_transition", "per_second", "least_s", "least_of",
		"wall_to_least", "neighbours_cpu_s",
	}
}

// rows are the lines of a run: one for each limit and for each workload.
func (m machine) rows(l limits, results []result) (list [][]string) {
	about := func(name string) []string {
		return []string{m.date.Format("2006-01-02T15:04Z"), m.commit, strconv.Itoa(m.cores), figure(m.memory), name}
	}
	for _, name := range limitNames() {
		row := append(about(name), make([]string, len(header())-5)...)
		row[column("per_second")] = figure(l[name])
		list = append(list, row)
	}
	for _, r := range results {
		row := about(r.name)
		for _, f := range []float64{
			r.wall, r.cpu(), r.used.cpu["worker"], r.used.cpu["identify"], r.used.cpu["postgres"], r.used.cpu["gateway"], r.used.cpu["other"],
			r.used.peak["worker"], r.perFile(), r.per(r.Statements), r.per(r.Commits), r.per(r.Claims - r.Claimed), r.per(r.WAL), r.rate, r.least.seconds,
		} {
			row = append(row, figure(f))
		}
		row = append(row, r.least.of, figure(r.ratio()), figure(r.neighbours))
		if r.name == transitionsName { // no bag was ingested
			for _, name := range []string{
				"wall_s", "worker_cpu_s", "identify_cpu_s", "postgres_cpu_s", "gateway_cpu_s", "other_cpu_s", "worker_peak_mib",
				"statements_per_transition", "empty_claims_per_transition",
			} {
				row[column(name)] = ""
			}
		}
		list = append(list, row)
		for _, name := range moverNames() {
			if seconds, measured := r.moved[name]; measured {
				row := append(about(r.name+" by "+name), make([]string, len(header())-5)...)
				row[column("wall_s")] = figure(seconds)
				list = append(list, row)
			}
		}
	}
	return list
}

func column(name string) int { return slices.Index(header(), name) }

// figure has three digits that count; what was not measured is empty.
func figure(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	if x == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	return strconv.FormatFloat(x, 'f', max(0, digits), 64)
}

// remember appends the rows to the history. A file with other columns is left alone.
func remember(path string, rows [][]string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the history: %w", err)
	}
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	if len(old) == 0 {
		rows = append([][]string{header()}, rows...)
	} else if first, _, _ := strings.Cut(string(old), "\n"); first != strings.Join(header(), ",") {
		return fmt.Errorf("append to the history: %s has other columns than this program", path)
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // it is part of the tree
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}
