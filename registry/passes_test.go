package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// history adds items that have ended, each with an attempt that failed and nine that did not.
func (a *archive) history(items int) {
	a.t.Helper()
	a.scene(fmt.Sprintf(`INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, size_band, bag_date, object_identifier,
			created_at, updated_at)
		SELECT 1, 'Ingest', 'Cleanup', 'Success', false, 'ended' || n || '.tar', 'b', 'e', 1 + n %% 10 * 20000000, (n %% 10 > 3)::int, now(), 'test.edu/ended' || n,
			now() - n * interval '4 seconds' - interval '20 minutes', now() - n * interval '4 seconds' - interval '9 minutes'
		FROM generate_series(1, %d) n;
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, ended_at, outcome)
		SELECT w.id, s.ordinal * 2 + d, s.stage, 1, 'n', 1, 'w', w.created_at + s.ordinal * interval '1 minute' + (d - 1) * interval '20 seconds',
			w.created_at + s.ordinal * interval '1 minute' + d * interval '20 seconds' - (2 - d) * interval '5 seconds', CASE d WHEN 2 THEN 'done' ELSE 'transient' END
		FROM work_items w JOIN stage_settings s ON s.action = 'Ingest' CROSS JOIN generate_series(1, 2) d
		WHERE w.status = 'Success' AND (d = 2 OR s.stage = 'Store')`, items))
}

// What an attempt waited for is the end of the one before it, unless that failed.
func TestRecentPasses(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.history(1200)
	a.scene(`UPDATE work_items SET updated_at = now() - interval '8 days' WHERE name = 'ended10.tar'`)
	a.worker("w", `[{"name": "all", "slots": 3, "max_size": 1000}]`)
	r := must.Get(a.Recent(context.Background()))(t)
	byStage := map[registry.Stage]int{}
	bands := map[int16]int{}
	for _, p := range r.Passes {
		byStage[p.Stage]++
		bands[p.SizeBand]++
		wait, took := p.Claimed.Sub(p.Ready).Seconds(), p.Ended.Sub(p.Claimed).Seconds()
		want := map[registry.Stage]float64{"Receive": 80, "Store": 0}[p.Stage]
		if p.Stage != "Receive" && p.Stage != "Store" {
			want = 40
		}
		if wait != want || took != 20 || !p.Succeeded {
			t.Fatalf("%+v waited %v and took %v", p, wait, took)
		}
	}
	if bands[0] != 9*479 || bands[1] != 9*500 || byStage["Store"] != 979 {
		t.Errorf("passes by band %v and stage %v, want those of the last 500 items of each band", bands, byStage)
	}
	if len(r.Pools) != 1 || r.Pools[0].Slots != 3 || r.Pools[0].MaxSize != 1000 || len(r.Bands) != 14*4 || len(r.Stages) != 14 {
		t.Errorf("pools %+v, %d bands, %d stages", r.Pools, len(r.Bands), len(r.Stages))
	}
}

// However much has ended and waits, a bounded number of rows is read.
func TestRecentReadsOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.history(15_000)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT 1, 'Ingest', 'Receive', n || '.tar', 'b', 'e', 1, now() FROM generate_series(1, 15000) n`)
	last := value[int64](a, `SELECT max(id) FROM work_items`)
	for _, known := range []bool{false, true} { // to the planner
		if known {
			a.exec(`VACUUM ANALYZE work_items`)
			a.exec(`VACUUM ANALYZE work_item_attempts`)
		}
		for _, tc := range []struct {
			sql  string
			args []any
			most float64
		}{
			{registry.RecentSQL, []any{10_000, 500, 500}, 10_000 + 2*1_000*11 + 1_000},
			{registry.StandingSQL, []any{pgx.NamedArgs{"ids": []int64{last - 5000, last}, "all": true, "institution": 0}}, 50},
			{registry.FrontsSQL, []any{10_000}, 10_100},
		} {
			var plan string
			must.Do(t, a.Look(context.Background(), func(tx pgx.Tx) error {
				return tx.QueryRow(context.Background(), `EXPLAIN (ANALYZE, FORMAT JSON) `+tc.sql, tc.args...).Scan(&plan)
			}))
			var nodes []struct {
				Plan node
				Time float64 `json:"Execution Time"`
			}
			must.Do(t, json.Unmarshal([]byte(plan), &nodes))
			t.Logf("%v rows in %v ms", nodes[0].Plan.read(), nodes[0].Time)
			if read := nodes[0].Plan.read(); read > tc.most {
				t.Errorf("%v rows of items and attempts are read, want %v at most\n%s", read, tc.most, plan)
			}
		}
	}
}

// What is before an item is what workers claim before it, and an item of others stands nowhere.
func TestStandings(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	other := a.institution("other.edu")
	for n, in := range []int64{a.in.ID, a.in.ID, other.ID, a.in.ID} {
		a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) VALUES ($1, 'Ingest', 'Receive', $2, 'b', 'e', 1, now())`,
			in, fmt.Sprintf("%d.tar", n))
	}
	a.exec(`UPDATE work_items SET priority = -5 WHERE name = '3.tar'`)
	ids := []int64{1, 2, 3, 4, 99}
	place := func(s registry.Scope) string {
		list := must.Get(a.Standings(context.Background(), s, ids))(t)
		recent := must.Get(a.Recent(context.Background()))(t)
		var text []string
		for _, v := range list {
			ahead := int64(-1)
			for _, f := range recent.Fronts {
				if f.Compare(v.Place) == 0 && f.Action == v.Action && f.Stage == v.Stage && f.SizeBand == v.SizeBand {
					ahead = f.Ahead
				}
			}
			text = append(text, fmt.Sprintf("%d:%d %v %v %v", v.ID, ahead, v.Paused, v.Held, v.Snoozed))
		}
		return strings.Join(text, ", ")
	}
	for scope, want := range map[registry.Scope]string{
		registry.Everything(): "1:1 false false false, 2:3 false false false, 3:2 false false false, 4:0 false false false",
		registry.Only(other):  "3:2 false false false",
		{}:                    "",
	} {
		if got := place(scope); got != want {
			t.Errorf("%+v: %s, want %s", scope, got, want)
		}
	}
	a.exec(`SELECT pause_stage('Receive', 'a test')`)
	a.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = 1`)
	a.exec(`UPDATE work_items SET run_at = now() + interval '1 hour' WHERE id = 2`)
	if got, want := place(registry.Only(a.in)), "1:-1 true false false, 2:-1 true false false, 4:0 true false false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// However long the queue is, few of its places are read, and of these it is known exactly what is
// before them in their own partition.
func TestFronts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.scene(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, priority, virtual_start, run_at, object_identifier)
		SELECT 1, x.action, x.stage, x.action || n || '.tar', 'b', 'e', 1, now(), n % 3, n * 7919 % 1000, now() - n % 5 * interval '1 hour' + (n % 10 = 0)::int * interval '2 days', 'test.edu/' || n
		FROM generate_series(1, 12000) n, (VALUES ('Ingest', 'Store'), ('Restore Object', 'Requested'), ('Delete', 'Requested')) x (action, stage)
		WHERE x.action = 'Ingest' OR n < 2000`)
	recent := must.Get(a.Recent(context.Background()))(t)
	found := map[string]int{}
	for n, f := range recent.Fronts {
		of := fmt.Sprintf("%s at %s", f.Action, f.Stage)
		found[of]++
		if n%7 == 0 {
			before := value[int64](a, `SELECT count(*) FROM work_items w WHERE w.action = $1 AND w.stage = $2 AND w.size_band = $3 AND w.run_at <= now()
				AND (w.priority, w.virtual_start, w.run_at, w.id) < (SELECT priority, virtual_start, run_at, id FROM work_items i WHERE i.id = $4)`, f.Action, f.Stage, f.SizeBand, f.ID)
			if before != f.Ahead {
				t.Errorf("%+v, want %d ahead", f, before)
			}
		}
	}
	t.Log(found)
	most := func(of string, least, most int) {
		if n := found[of]; n < least || n > most {
			t.Errorf("%d places of %s, want %d to %d", n, of, least, most)
		}
		delete(found, of)
	}
	most("Ingest at Store", 200, 500)
	most("Restore Object at Requested", 200, 400)
	most("Delete at Requested", 200, 400)
	if len(found) > 0 {
		t.Errorf("%v as well", found)
	}
}
