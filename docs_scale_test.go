package farol_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// table returns the rows of numbers of the table of a document whose heading has these first
// cells. Cells that are no numbers, such as names, are left out.
func table(t *testing.T, text, heading string) (rows [][]float64) {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n| "+heading+" |")
	if !found {
		t.Fatalf("there is no table %q", heading)
	}
	_, rest, _ = strings.Cut(rest, "|\n|-")
	for i, line := range strings.Split(rest, "\n") {
		if i == 0 {
			continue // of the dashes
		}
		if !strings.HasPrefix(line, "| ") {
			break
		}
		var row []float64
		for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			if v, err := strconv.ParseFloat(strings.TrimSpace(cell), 64); err == nil {
				row = append(row, v)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

var (
	makeCall   = regexp.MustCompile("(?m)(?:`|^    )make ([a-z-]+)")
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):.*##`)
)

func TestMakeTargetsInDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		exist[m[1]] = true
	}
	checked := 0
	for name, text := range documents(t) {
		for _, m := range makeCall.FindAllStringSubmatch(text, -1) {
			checked++
			if !exist[m[1]] {
				t.Errorf("%s has `make %s`, which is no target of the Makefile", name, m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d calls of make were found", checked)
	}
}

// A person who measures the costs again changes the first tables, and sees here what follows from them.
func TestArithmeticOfScaleIsRight(t *testing.T) {
	t.Parallel()
	text := documents(t)["docs/scale.md"]
	const day, transitions = 86_400, 9
	check := func(row []float64, given int, want ...float64) {
		t.Helper()
		if len(row) != given+len(want) {
			t.Fatalf("the row %v has %d columns", row, len(row))
		}
		for i, w := range want {
			if got := row[given+i]; math.Abs(got-w) > 0.05*w {
				t.Errorf("row %v: column %d is %v, computed %.3g", row[:given], given+i+1, got, w)
			}
		}
	}
	costs, checks := table(t, text, "costs | a bag"), table(t, text, "checks | a file")
	if len(costs) != 3 || len(checks) != 2 {
		t.Fatalf("the costs are %v and %v", costs, checks)
	}
	of := func(cost []float64, mb, files float64) float64 {
		return cost[0] + cost[1]*files + cost[2]*mb*1e6/(1<<30)
	}
	plans := table(t, text, "TB a day | MB a bag")
	for _, row := range plans {
		mb, files := row[1], row[2]
		bags := row[0] * 1e6 / mb / day
		check(row, 3, bags, transitions*bags, files*bags, bags*of(costs[0], mb, files)/1000, bags*of(costs[1], mb, files)/1000, bags*of(costs[2], mb, files))
	}
	custody := table(t, text, "TB a day | MB a file")
	for _, row := range custody {
		const interval = 90 // days
		stored := row[0] * 365 * row[2]
		files := stored / interval * 1e6 / row[1] / day
		seconds := func(cost []float64) float64 { return files * (cost[0] + cost[1]*row[1]*1e6/(1<<30)) / 1000 }
		check(row, 3, stored, stored/interval, files, seconds(checks[0]), seconds(checks[1]))
	}
	if len(plans) < 8 || len(custody) < 4 {
		t.Errorf("the tables have %d and %d rows", len(plans), len(custody))
	}
}

// docs/scale.md has an administrator make the simulation's durations of the ledger.
func TestDurationsAreThoseOfTheLedger(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	_, err := db.Exec(t.Context(), `
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Example University', 'a.edu', 'r', 's');
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
			SELECT 1, 'Ingest', 'Receive', n || '.tar', 'r', repeat('e', 32), size, now()
			FROM unnest(ARRAY[0, 1000, 1023, 1024, 5000]) WITH ORDINALITY AS bag (size, n);
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, ended_at, outcome)
			SELECT id, token, a.stage, 1, 'n', 1, 'w', '2026-01-01', '2026-01-01'::timestamptz + make_interval(secs => seconds), ended::attempt_outcome
			FROM work_items w JOIN (VALUES
				('1.tar', 1, 'Receive', 3.0, 'done'), ('2.tar', 1, 'Receive', 2.0, 'done'), ('3.tar', 1, 'Receive', 4.0, 'done'),
				('3.tar', 2, 'Store', 1.5, 'transient'), ('3.tar', 3, 'Store', 0.5, 'done'),
				('4.tar', 1, 'Validate', 7.0, 'done'), ('4.tar', 2, 'Receive', 6.0, 'done'), ('5.tar', 1, 'Receive', 8.0, 'done')
			) AS a (name, token, stage, seconds, ended) USING (name)`)
	if err != nil {
		t.Fatal(err)
	}
	sql, err := os.ReadFile("bench/scale/durations.sql")
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	err = db.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		_, err := c.Conn().PgConn().CopyTo(t.Context(), &lines, "COPY ("+string(sql)+") TO STDOUT (FORMAT csv, HEADER)")
		return err
	})
	const want = `stage,size,bags,p0,p10,p25,p50,p75,p90,p99,p100
Receive,1,1,3.0000,3.0000,3.0000,3.0000,3.0000,3.0000,3.0000,3.0000
Receive,256,2,2.0000,2.2000,2.5000,3.0000,3.5000,3.8000,3.9800,4.0000
Store,256,1,0.5000,0.5000,0.5000,0.5000,0.5000,0.5000,0.5000,0.5000
Receive,1024,1,6.0000,6.0000,6.0000,6.0000,6.0000,6.0000,6.0000,6.0000
Validate,1024,1,7.0000,7.0000,7.0000,7.0000,7.0000,7.0000,7.0000,7.0000
Receive,4096,1,8.0000,8.0000,8.0000,8.0000,8.0000,8.0000,8.0000,8.0000
`
	if err != nil || lines.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, lines.String(), want)
	}
}
