package browse_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// counted is an item as the figures of the queue count it.
type counted struct {
	InstitutionID int64
	Action        registry.Action
	Stage         registry.Stage
	Band          int16
	Status        registry.Status
	Code          string
	Review        bool
	Size          int64
	Updated       time.Time
	ID            int64
	Live          bool // not in the archive
}

func (a *archive) counted() []counted {
	return rows[counted](a, `SELECT institution_id, action::text, stage::text, size_band AS band, status::text, error_code AS code, needs_admin_review AS review, size,
		updated_at AS updated, id, EXISTS (SELECT FROM work_items l WHERE l.id = w.id) AS live FROM all_work_items w`)
}

// What each scope has of the queue, of its history and of what is parked is what a count of
// all items says; a scope that was forgotten has nothing.
func TestQueueOfAScope(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	testenv.Scene(t, a.db, `
		UPDATE work_items SET updated_at = now() - h(id, 30, 60) * interval '1 hour';
		UPDATE work_items_archive SET updated_at = now() - h(id, 30, 60) * interval '1 hour'; ANALYZE`)
	items := a.counted()
	q, err := browse.TakeQueue(t.Context(), a.Registry)
	if err != nil || time.Since(q.At()).Abs() > time.Minute {
		t.Fatal(q.At(), err)
	}
	for _, scope := range []registry.Scope{registry.Everything(), registry.Only(a.ins[0]), registry.Only(a.ins[1]), {}} {
		own := slices.DeleteFunc(slices.Clone(items), func(c counted) bool { return !scope.Has(c.InstitutionID) })
		var want, got [3]int64
		for _, c := range own {
			switch c.Status {
			case "Pending":
				want[0]++
			case "Started":
				want[1]++
			case "Failed", "Suspended":
				want[2]++
			default: // it has ended
			}
		}
		for _, c := range q.Of(scope) {
			got[0], got[1], got[2] = got[0]+c.Due+c.Delayed+c.Waiting, got[1]+c.Running, got[2]+c.Parked
			if !scope.Has(c.InstitutionID) || scope.Has(a.ins[0].ID) == (c.Institution != "test.edu") && !scope.All() {
				t.Errorf("%+v has %+v", scope, c)
			}
		}
		if got != want {
			t.Errorf("%+v: %v wait, run and are parked, want %v", scope, got, want)
		}
		testHistory(t, a, scope, own)
		testGroups(t, a, scope, own)
	}
}

func testHistory(t *testing.T, a *archive, scope registry.Scope, own []counted) {
	t.Helper()
	const hours = 24
	present := time.Now().UTC().Truncate(time.Hour)
	since := present.Add(-(hours - 1) * time.Hour)
	want := map[record.Ended]int64{}
	for _, c := range own {
		if c.Status != "Pending" && c.Status != "Started" && !c.Updated.Before(since) {
			want[record.Ended{Hour: c.Updated.UTC().Truncate(time.Hour), Action: c.Action, Status: c.Status}]++
		}
	}
	list, err := browse.In(a.Registry, scope).History(t.Context(), hours)
	if err != nil || list == nil {
		t.Errorf("%+v: %v, %v", scope, list, err)
	}
	got := map[record.Ended]int64{}
	for _, e := range list {
		got[record.Ended{Hour: e.Hour.UTC(), Action: e.Action, Status: e.Status}] = e.Items
	}
	if diff := cmp.Diff(want, got); diff != "" && present.Equal(time.Now().UTC().Truncate(time.Hour)) { // or else another hour has begun
		t.Errorf("%+v: history (-want +got):\n%s", scope, diff)
	}
}

func testGroups(t *testing.T, a *archive, scope registry.Scope, own []counted) {
	t.Helper()
	type key struct {
		code   string
		stage  registry.Stage
		action registry.Action
	}
	names := map[int64]string{}
	for _, i := range a.ins {
		names[i.ID] = i.Identifier
	}
	since := time.Now().UTC().Truncate(time.Hour).Add(-23 * time.Hour)
	want := map[key]record.Group{}
	parked := slices.DeleteFunc(slices.Clone(own), func(c counted) bool { return !c.Live || !c.Review && c.Status != "Failed" && c.Status != "Suspended" })
	for _, c := range parked {
		k := key{c.Code, c.Stage, c.Action}
		g, known := want[k]
		if !known {
			g = record.Group{ErrorCode: c.Code, Stage: c.Stage, Action: c.Action, First: c.Updated, Last: c.Updated}
		}
		i := slices.IndexFunc(g.Institutions, func(p record.GroupPart) bool { return p.Institution == names[c.InstitutionID] })
		if i < 0 {
			i, g.Institutions = len(g.Institutions), append(g.Institutions, record.GroupPart{Institution: names[c.InstitutionID]})
		}
		g.Institutions[i].Items++
		if hour := c.Updated.UTC().Truncate(time.Hour); !hour.Before(since) {
			i := slices.IndexFunc(g.Hours, func(h record.GroupHour) bool { return h.Hour.Equal(hour) })
			if i < 0 {
				i, g.Hours = len(g.Hours), append(g.Hours, record.GroupHour{Hour: hour})
			}
			g.Hours[i].Items++
		}
		g.Items, g.Bytes, g.Example = g.Items+1, g.Bytes+c.Size, max(g.Example, c.ID)
		if c.Updated.Before(g.First) {
			g.First = c.Updated
		}
		if c.Updated.After(g.Last) {
			g.Last = c.Updated
		}
		want[k] = g
	}
	list, complete, err := browse.In(a.Registry, scope).Groups(t.Context())
	if err != nil || !complete || list == nil {
		t.Errorf("%+v: %v, %v, %v", scope, list, complete, err)
	}
	got := map[key]record.Group{}
	for i, g := range list {
		got[key{g.ErrorCode, g.Stage, g.Action}] = g
		if i > 0 && g.Items > list[i-1].Items || !slices.IsSortedFunc(g.Institutions, func(a, b record.GroupPart) int { return int(b.Items - a.Items) }) {
			t.Errorf("%+v: the largest is not first: %+v", scope, list)
		}
	}
	for _, g := range want {
		slices.SortFunc(g.Institutions, func(a, b record.GroupPart) int { // of the same size, by identifier
			return 2*int(b.Items-a.Items) + strings.Compare(a.Institution, b.Institution)
		})
		slices.SortFunc(g.Hours, func(a, b record.GroupHour) int { return a.Hour.Compare(b.Hour) })
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" && time.Now().UTC().Truncate(time.Hour).Add(-23*time.Hour).Equal(since) { // or else another hour has begun
		t.Errorf("%+v: groups (-want +got):\n%s", scope, diff)
	}
}

// However many items are parked, no more than so many are read.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	testenv.Scene(t, a.db, `
		CREATE TEMPORARY TABLE parked (LIKE work_items INCLUDING DEFAULTS);
		INSERT INTO parked (id, institution_id, size, bag_date, retry, stage, status, name, etag, bucket, action, object_identifier)
		SELECT 20000 + n, 1, 1, now(), false, 'Store', 'Suspended', 'bag' || n || '.tar', 'e', 'b', 'Ingest', 'test.edu/bag' || n FROM generate_series(1, 12000) n;
		UPDATE parked SET error_code = 'newest' WHERE id = 32000;
		INSERT INTO work_items OVERRIDING SYSTEM VALUE SELECT * FROM parked; ANALYZE`)
	for _, tc := range []struct {
		scope    registry.Scope
		complete bool
	}{{registry.Everything(), false}, {registry.Only(a.ins[0]), false}, {registry.Only(a.ins[1]), true}} {
		list, complete, err := browse.In(a.Registry, tc.scope).Groups(t.Context())
		var items int64
		newest := false
		for _, g := range list {
			items += g.Items
			newest = newest || g.ErrorCode == "newest" && g.Items == 1
		}
		if newest == complete {
			t.Errorf("%+v: the newest item is counted: %v", tc.scope, newest)
		}
		if err != nil || complete != tc.complete || !complete && items != browse.MostGrouped || complete && items >= browse.MostGrouped {
			t.Errorf("%+v: %d items, %v, %v", tc.scope, items, complete, err)
		}
	}
}

// The history reads a few pages of the archive, and the groups an index of what is parked.
func TestFiguresHaveTheirIndex(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	testenv.Scene(t, a.db, `
		CREATE TEMPORARY TABLE archived (LIKE work_items INCLUDING DEFAULTS);
		INSERT INTO archived (id, institution_id, size, bag_date, retry, stage, status, name, etag, bucket, action, object_identifier, updated_at)
		SELECT 20000 + n, 1 + h(n, 1, 2), 1, now(), false, 'Cleanup', 'Success', 'bag' || n || '.tar', 'e', 'b', 'Ingest', 'test.edu/bag' || n, now() - (40000 - n) * interval '1 minute'
		FROM generate_series(1, 40000) n;
		INSERT INTO work_items_archive SELECT * FROM archived; ANALYZE`)
	for sql, indexes := range map[string]string{
		strings.ReplaceAll(browse.EndedSQL+`true GROUP BY 1, 2, 3`, `@since`, `now() - interval '1 day'`): "work_items_archive_updated work_items_ended work_items_review",
		strings.NewReplacer(`%s`, `true`, `@n`, `10`).Replace(browse.GroupsSQL):                           "work_items_review",
	} {
		plan := a.explained(sql)
		for index := range strings.FieldsSeq(indexes) {
			if !strings.Contains(plan, index) {
				t.Errorf("it does not use %s:\n%s", index, plan)
			}
		}
		if found := large.FindString(plan); found != "" {
			t.Errorf("%s\n%s", found, plan)
		}
	}
}

// explained is how a statement is planned that is sent as lists are.
func (a *archive) explained(sql string) string {
	a.t.Helper()
	tx := must.Get(a.db.Begin(ctx))(a.t)
	defer tx.Rollback(ctx) //nolint:errcheck // it only reads
	_, err := tx.Exec(ctx, browse.SettingsSQL, "0", "on", "off")
	r, queryErr := tx.Query(ctx, `EXPLAIN `+sql)
	var lines []string
	for queryErr == nil && r.Next() {
		var line string
		queryErr = r.Scan(&line)
		lines = append(lines, line)
	}
	must.Do(a.t, errors.Join(err, queryErr, r.Err()))
	return strings.Join(lines, "\n")
}
