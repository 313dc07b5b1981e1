package table

import (
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machine that does everything once in a second, but for what a test is about.
func plain(fast ...string) limits {
	l := limits{}
	for _, name := range limitNames() {
		l[name] = 1
		if slices.Contains(fast, name) {
			l[name] = 1e9
		}
	}
	return l
}

func TestWorkloadNeedsTheSlowestResourceForLongest(t *testing.T) {
	t.Parallel()
	small := workload{bags: 10, files: 3, size: 1000}
	large := workload{bags: 1, files: 1, size: 1e9}
	for name, tc := range map[string]struct {
		w      workload
		stored int
		l      limits
		want   need
	}{
		"two copies of each stored file": {small, 50, plain(commits, identifyText), need{"gateway", 100}},
		"a commit for each transition":   {small, 50, plain(put, identifyText), need{"commits", 90}},
		"the format of each file":        {small, 50, plain(put, commits), need{"formats", 30}},
		"large copies in parts":          {large, 1, plain(disk), need{"gateway", 2000}},
		"four digests on two cores":      {large, 1, plain(disk, part), need{"digests", 2000}},
		"large copies on the disk":       {large, 1, plain(part, md5Rate, sha1Rate), need{"disk", 2000}},
	} {
		if got := tc.w.least(tc.stored, tc.l, 2); got.of != tc.want.of || math.Abs(got.seconds-tc.want.seconds) > 0.01 {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestFigureHasThreeDigits(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]float64{
		"0.0123": 0.01234, "0.150": 0.15, "1.23": 1.234, "12.3": 12.34, "1234": 1234, "0": 0, "": math.NaN(), "9127099": 9127099,
	} {
		if got := figure(x); got != want {
			t.Errorf("figure(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestWorkloadsAreChosenByName(t *testing.T) {
	t.Parallel()
	a, err := parse([]string{"-only", "S,transitions", "-against", "HEAD~1"}, io.Discard)
	if err != nil || !a.transitions || len(a.list) != 1 || a.list[0].name != "S" || a.against != "HEAD~1" {
		t.Errorf("S,transitions chooses %+v, %v", a, err)
	}
	if a, err = parse(nil, io.Discard); err != nil || !a.transitions || len(a.list) != len(workloads()) || a.against != "" {
		t.Errorf("nothing chooses %+v, %v", a, err)
	}
	if _, err = parse([]string{"-only", "W9"}, io.Discard); err == nil {
		t.Error("a workload was chosen that there is not")
	}
	if _, err = parse([]string{"-fast"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("an unknown flag came to %v", err)
	}
}

// Each row has all columns, a run is appended to those before it, and a file of another
// form is left alone.
func TestHistoryGrows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.csv")
	m := machine{commit: "abc", cores: 2, memory: 8}
	r := result{name: "W1", wall: 5, rate: math.NaN(), least: need{"gateway", 2}, used: usage{cpu: map[string]float64{"worker": 3, "postgres": 1}}}
	r.Transitions, r.Statements, r.Stored, r.Requests = 10, 80, 20, 90
	rows := m.rows(plain(), []result{r})
	for range 2 {
		if err := remember(path, rows); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 1+2*(len(limitNames())+1) {
		t.Errorf("two runs make %d lines", len(lines))
	}
	names, last := strings.Split(lines[0], ","), strings.Split(lines[len(lines)-1], ",")
	for name, want := range map[string]string{
		"commit": "abc", "workload": "W1", "wall_s": "5.00", "cpu_s": "4.00", "statements_per_transition": "8.00", "s3_requests_per_file": "4.50",
		"per_second": "", "least_of": "gateway", "wall_to_least": "2.50",
	} {
		if i := slices.Index(names, name); i < 0 || len(last) != len(names) || last[i] != want {
			t.Errorf("%s is not %q in %q", name, want, last)
		}
	}
	if err := os.WriteFile(path, []byte("date,other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := remember(path, rows); err == nil {
		t.Error("rows were appended below other columns")
	}
}

// Only what descends from farol dev counts, each process under what it is.
func TestProcessorTimeIsThatOfFarol(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add := func(number, parent, times, args string) {
		t.Helper()
		write(number+"/stat", number+" (a b) c) S "+parent+" 0 0 0 0 0 0 0 0 0 "+times+" 0 0")
		write(number+"/cmdline", strings.ReplaceAll(args, " ", "\x00"))
		write(number+"/status", "VmPeak: 9999 kB\nVmHWM:\t  2048 kB\n")
	}
	add("10", "1", "100 0 500 0", "farol-dev up") // its children that ended are not counted twice
	add("11", "10", "100 100 0 0", "farol work --max-size 1GiB")
	add("12", "11", "50 0 0 0", "farol internal identify")
	add("13", "10", "0 0 0 0", "farol-dev internal guard")
	add("14", "13", "100 0 100 100", "/usr/lib/postgresql/15/bin/postgres -D data")
	add("15", "14", "100 0 0 0", "postgres: farol farol")
	add("16", "10", "300 0 0 0", "farol-dev internal s3")
	add("20", "1", "999 0 0 0", "farol work --max-size 1GiB")
	write("stat", "cpu  100 10 100 5000 700 10 10 10 40 0\ncpu0 1 1 1 1")
	u := used(proc, 10)
	for name, want := range map[string]float64{"worker": 2, "identify": 0.5, "postgres": 4, "gateway": 3, "other": 1} {
		if math.Abs(u.cpu[name]-want) > 0.001 {
			t.Errorf("%s had %v seconds, want %v", name, u.cpu[name], want)
		}
	}
	if u.peak["worker"] != 2 || math.Abs(u.busy-2.4) > 0.001 || math.Abs(u.all()-10.5) > 0.001 {
		t.Errorf("the peak is %v MiB, the machine was busy for %v s, Farol for %v s", u.peak["worker"], u.busy, u.all())
	}
}

// The queue also measures farol-intake, which is another workload.
func TestTransitionsAreThoseOfTheQueueAlone(t *testing.T) {
	t.Parallel()
	r, err := readQueue([]byte(`{"results": [
		{"workload": "steady", "system": "farol-carried", "runs": [
			{"hops": 100, "seconds": 2, "commits": 10, "wal_bytes": 1000}, {"hops": 300, "seconds": 2, "commits": 20, "wal_bytes": 2000},
			{"hops": 200, "seconds": 2, "commits": 30, "wal_bytes": 3000}]},
		{"workload": "steady", "system": "farol", "runs": [{"hops": 9000, "seconds": 1, "commits": 9000, "wal_bytes": 9}]}]}`))
	if err != nil || r.rate != 100 || r.Transitions != 600 || r.Commits != 60 || r.WAL != 6000 {
		t.Errorf("the queue came to %+v, %v", r, err)
	}
	r.least = need{"selects", 0.5}
	rows := machine{}.rows(plain(), []result{r})
	if last := rows[len(rows)-1]; len(last) != len(header()) || last[column("per_second")] != "100" || last[column("wall_s")] != "" || last[column("statements_per_transition")] != "" {
		t.Errorf("its row is %q", last)
	}
	if r, err = readQueue([]byte(`{"results": []}`)); err == nil {
		t.Errorf("no run came to %+v", r)
	}
}

// The other commit is measured between two runs of this tree, and the figures are means.
func TestCommitsAreMeasuredInTurn(t *testing.T) {
	t.Parallel()
	var order []string
	walls := []float64{1, 10, 20, 3}
	measure := func(s side) (result, error) {
		n := float64(len(order) + 1)
		r := result{name: "W1", wall: walls[len(order)], rate: math.NaN(), least: need{"disk", 1}, counts: counts{Stored: 5, Requests: 10}}
		r.used = usage{cpu: map[string]float64{"worker": n}, peak: map[string]float64{"worker": 9 - n}}
		order = append(order, s.of)
		return r, nil
	}
	r, err := inTurn([]side{{of: "new"}, {of: "old"}}, measure)
	if err != nil || !slices.Equal(order, []string{"new", "old", "old", "new"}) {
		t.Fatalf("measured %v, %v", order, err)
	}
	if r.wall != 2 || r.cpu() != 2.5 || r.Stored != 10 || r.used.peak["worker"] != 8 || r.before.wall != 15 || r.before.of != "old" {
		t.Errorf("they came to %+v and %+v", r, r.before)
	}
	if rows := (machine{commit: "abc"}).rows(plain(), []result{r}); len(rows) != len(limitNames())+1 || rows[len(rows)-1][column("wall_s")] != "2.00" {
		t.Errorf("the history gets %q", rows)
	}
	order = nil
	if r, err = inTurn([]side{{of: "new"}}, measure); err != nil || len(order) != 1 || r.before != nil {
		t.Errorf("alone: %v, %+v, %v", order, r, err)
	}
	failure := errors.New("no disk")
	if _, err = inTurn([]side{{}, {}}, func(side) (result, error) { return r, failure }); !errors.Is(err, failure) {
		t.Errorf("a failed turn came to %v", err)
	}
}

// A loss is named from a tenth on, in time or in processor time; more transitions a second are none.
func TestWhatGotSlowerIsNamed(t *testing.T) {
	t.Parallel()
	run := func(name string, wall, cpu, rate float64) result {
		r := result{name: name, wall: wall, rate: rate, least: need{"disk", 1}}
		if cpu > 0 {
			r.used.cpu = map[string]float64{"worker": cpu}
		}
		return r
	}
	pair := func(now, before result) result {
		before.of, now.before = "abc of 2026-11-30", &before
		return now
	}
	nan := math.NaN()
	results := []result{
		pair(run("W1", 1.1, 2, nan), run("W1", 1, 2, nan)),
		pair(run("W2", 1.09, 3, nan), run("W2", 1, 2, nan)),
		pair(run("W3", 1, 1, nan), run("W3", 2, 2, nan)),
		pair(run(transitionsName, 1, 0, 80), run(transitionsName, 1, 0, 100)),
	}
	for want, results := range map[string][]result{
		"Slower by a tenth or more: W1 (time × 1.10), W2 (CPU × 1.50), transitions (time × 1.25).\n": results,
		"Slower by a tenth or more: nothing.\n":                                                      results[2:3], "": {run("W1", 9, 9, nan)},
	} {
		var out strings.Builder
		compared(&out, results)
		if !strings.HasSuffix(out.String(), want) || (want == "") != (out.Len() == 0) {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
		if want != "" && !strings.Contains(out.String(), "\nnext to abc of 2026-11-30\t") {
			t.Errorf("the commit is not named in %q", out.String())
		}
	}
}

// Goals are ratios to a limit of the same run, for what an archive does most.
func TestGoalsAreRatios(t *testing.T) {
	t.Parallel()
	var list []result
	for _, w := range workloads() {
		list = append(list, result{name: w.name, wall: 2, least: need{"disk", 1}, goal: w.goal, used: usage{cpu: map[string]float64{"worker": 7}}})
	}
	var out strings.Builder
	if err := report(&out, machine{}, plain(), list); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, w := range workloads() {
		row := w.name + " 2.00 1.00 disk 2.00 1.30 7.00 "
		if slices.Contains([]string{"S", "W4"}, w.name) {
			row = w.name + " 2.00 1.00 disk 2.00 7.00 "
		}
		if !strings.Contains(text, row) {
			t.Errorf("there is no %q in\n%s", row, out.String())
		}
	}
}
