package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// statement is a file of claim/sql.
type statement struct {
	head    string   // its comment
	lines   []string // of the statement itself, without indentation
	indexes []string // of the large tables that it may use; the first one it has to
}

// none is what a head says of a statement that reads no large table.
const none = "none"

// statements are all, by name.
func statements(t testing.TB) map[string]statement {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("sql", "*.sql"))
	others, othersErr := filepath.Glob(filepath.Join("*", "sql", "*.sql"))
	if errors.Join(err, othersErr) != nil || len(files) == 0 || len(others) < 2 {
		t.Fatalf("there are no statements: %v, %v", err, othersErr)
	}
	files = append(files, others...)
	named := regexp.MustCompile(`(?m)^-- Index: (none|[a-z_, ]+$)`)
	texts := map[string]string{}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		texts[name] = string(text)
	}
	texts["peek_ingest"] = claim.PeekOf(texts["claim_ingest"])
	for name, text := range maps.Clone(texts) {
		if of, ingests := strings.CutSuffix(name, "_ingest"); ingests {
			texts[of+"_requests"] = claim.OfRequests(text)
		}
	}
	all := map[string]statement{}
	for name, text := range texts {
		var s statement
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "--") {
				s.head += line
			} else {
				s.lines = append(s.lines, strings.TrimSpace(line))
			}
		}
		if !strings.HasPrefix(s.head, "-- "+name+": ") {
			t.Errorf("%s does not begin with what it does: %q", name, s.head)
		}
		if index := named.FindStringSubmatch(s.head); index == nil {
			t.Errorf("%s does not name the indexes that it relies on", name)
		} else {
			s.indexes = strings.Split(index[1], ", ")
		}
		all[name] = s
	}
	return all
}

// A statement runs as it can be read: it is whole, and it is one.
func TestStatementsAreWhole(t *testing.T) {
	t.Parallel()
	for name, s := range statements(t) {
		body := strings.Join(s.lines, "\n")
		for _, part := range []string{"/*", ";", "%s", "%[", "--"} {
			if strings.Contains(body, part) {
				t.Errorf("%s has %q in it", name, part)
			}
		}
	}
}

// Variants of a statement differ only in what they must.
func TestVariantsDiffer(t *testing.T) {
	t.Parallel()
	const requestOfScope, ingestOfScope = "WHERE w.action = ANY (without.steps)", "WHERE w.stage = ANY (without.steps)"
	claims := difference{
		less: []string{"AND w.stage = stage.stage AND w.size_band = cursor.band", ingestOfScope},
		more: []string{"AND w.stage = 'Requested' AND w.size_band = cursor.band", requestOfScope},
	}
	const item = "WHERE w.status = 'Pending' AND w.retry AND w.stage = %s AND w.action = $3 AND w.size_band = cursor.band AND w.run_at <= now()"
	for _, c := range []struct {
		one, other string
		from, to   string // the lines that are compared; "": all
		want       difference
	}{
		{"claim_ingest", "claim_requests", "", "", claims},
		{"peek_ingest", "peek_requests", "", "", claims},
		{"peek_ingest", "claim_ingest", "SELECT c.stage, s.lease, s.topic,", "LIMIT $10", difference{more: []string{"FOR UPDATE SKIP LOCKED"}}},
		{"behind_cursor_ingest", "behind_cursor_requests", "", "", difference{
			less: []string{"AND w.stage = cursor.stage AND w.size_band = cursor.band", ingestOfScope},
			more: []string{"AND w.stage = 'Requested' AND w.size_band = cursor.band", requestOfScope},
		}},
		{"overdue_ingest", "overdue_requests", "", "", difference{
			less: slices.Repeat([]string{fmt.Sprintf(item, "cursor.stage")}, 2),
			more: slices.Repeat([]string{fmt.Sprintf(item, "'Requested'")}, 2),
		}},
		{"lapsed", "held_by_dead", "", "", difference{
			less: []string{"AND w.lease_expires_at >= now() - $2::interval AND w.lease_expires_at < now()"},
			more: []string{"AND w.worker = ANY ($2::text[])"},
		}},
	} {
		all := statements(t)
		one, other := part(t, all[c.one].lines, c.from, c.to), part(t, all[c.other].lines, c.from, c.to)
		if got := compare(one, other); !slices.Equal(got.less, c.want.less) || !slices.Equal(got.more, c.want.more) {
			t.Errorf("%s and %s differ in\n- %s\n+ %s", c.one, c.other, strings.Join(got.less, "\n- "), strings.Join(got.more, "\n+ "))
		}
	}
}

// part is what of lines is between two of them, both included.
func part(t *testing.T, lines []string, from, to string) []string {
	t.Helper()
	if from == "" {
		return lines
	}
	first := slices.Index(lines, from)
	last := slices.Index(lines[max(first, 0):], to)
	if first < 0 || last < 0 {
		t.Fatalf("there is no part from %q to %q", from, to)
	}
	return lines[first : first+last+1]
}

// difference is the lines that only one of two texts has, in their order.
type difference struct{ less, more []string }

// compare finds the longest common sequence of lines, and what is not in it.
func compare(one, other []string) (d difference) {
	longest := make([][]int, len(one)+1) // of what is left from a pair of lines on
	for i := range longest {
		longest[i] = make([]int, len(other)+1)
	}
	for i := len(one) - 1; i >= 0; i-- {
		for j := len(other) - 1; j >= 0; j-- {
			if one[i] == other[j] {
				longest[i][j] = 1 + longest[i+1][j+1]
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(one) && j < len(other) {
		switch {
		case one[i] == other[j]:
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			d.less, i = append(d.less, one[i]), i+1
		default:
			d.more, j = append(d.more, other[j]), j+1
		}
	}
	d.less, d.more = append(d.less, one[i:]...), append(d.more, other[j:]...)
	return d
}

// Each statement goes through the large tables by the indexes that its head names.
func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	q := &queue{t, testenv.Database(t)}
	q.fill()
	q.exec(`ANALYZE`)
	conn := must.Get(q.db.Acquire(context.Background()))(t)
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(lane.Settings)
	for name, s := range statements(t) {
		exec(fmt.Sprintf("PREPARE %s AS %s", name, strings.Join(s.lines, "\n")))
		var parameters int
		must.Do(t, conn.QueryRow(context.Background(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = $1`, name).Scan(&parameters))
		arguments := ""
		if parameters > 0 {
			arguments = "(" + strings.Join(slices.Repeat([]string{"NULL"}, parameters), ", ") + ")"
		}
		var plans []struct{ Plan plan }
		var logged []byte
		if err := conn.QueryRow(context.Background(), fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %s%s", name, arguments)).Scan(&logged); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal(logged, &plans); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.checkIndexes(t, name, plans[0].Plan)
	}
}

// checkIndexes compares the way of a plan through the large tables with what the
// statement's head names.
func (s statement) checkIndexes(t testing.TB, name string, root plan) {
	t.Helper()
	used := map[string]bool{}
	for _, n := range root.all() {
		large := n.Relation == "work_items" || n.Relation == "work_item_attempts"
		switch {
		case n.Node == "Index Scan" || n.Node == "Index Only Scan":
			used[n.Index] = used[n.Index] || large
			if large && !slices.Contains(s.indexes, n.Index) {
				t.Errorf("%s goes through %s by %s", name, n.Relation, n.Index)
			}
		case strings.Contains(n.Node, "Sort"):
			for _, below := range n.all() {
				if below.Relation == "work_items" {
					t.Errorf("%s sorts work items", name)
				}
			}
		case large && strings.HasSuffix(n.Node, "Scan") && n.Node != "Tid Scan":
			t.Errorf("%s reads %s by a %s", name, n.Relation, n.Node)
		}
	}
	if index := s.indexes[0]; index != none && !used[index] {
		t.Errorf("%s does not go by %s, but by %v", name, index, used)
	}
}
