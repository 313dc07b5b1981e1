package ingest

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
)

// A cost is the most that a workload may cost the database.
type cost struct {
	bags  int   // deposited at the same time
	turns int   // how often, each after the end of the one before
	files int   // of each bag
	size  int64 // of each file

	statements, commits, empty float64 // for each transition
	registry                   float64 // bytes of tables and indexes for each stored file; 0: too few to tell
}

// costs are the bounds, a little above what was counted beside other load, where less goes together:
// lower them when the work gets cheaper. The goals are 12 commits for a small bag, 0.5 claims that find nothing
// for a transition, and 3,000 bytes of registry for a file; docs/benchmarks.md has times as well.
// The requests to S3 have bounds of their own, in TestRequestsOfABag.
func costs() []cost {
	return []cost{
		{bags: 200, turns: 1, files: 3, size: 4 << 10, statements: 4.3, commits: 1.33, empty: 0.2}, // 12 commits for a bag
		{bags: 30, turns: 1, files: 3, size: 4 << 10, statements: 4.3, commits: 1.33, empty: 0.2},
		{bags: 15, turns: 1, files: 20, size: 16 << 10, statements: 4.5, commits: 1.4, empty: 0.3, registry: 3_800},
		{bags: 1, turns: 5, files: 3, size: 4 << 10, statements: 5, commits: 1.7, empty: 0.4},
		{bags: 1, turns: 5, files: 20, size: 16 << 10, statements: 5, commits: 1.7, empty: 0.4},
		{bags: 1, turns: 1, files: 400, size: 1 << 10, statements: 6.7, commits: 1.8, empty: 0.5, registry: 2_600},
	}
}

// What may be written to the log of PostgreSQL for each transition, and in addition for each
// file that is stored: its rows, index entries and events.
const (
	walOfTransition = 7_500
	walOfFile       = 5_000
)

// What a process may do in a second in addition, which no item needs: the slower the
// machine, the more there is of it.
const (
	upkeepStatements = 2
	upkeepCommits    = 0.5
	upkeepEmpty      = 0.5
	upkeepWAL        = 1000
)

// Two workers as those of farol dev, one of them idle since it takes larger bags,
// ask little of the database. Only what the server counts is compared, never a time.
func TestCostsOfIngests(t *testing.T) {
	t.Parallel()
	looks, a := countedArchive(t)
	for _, size := range [][2]int64{{0, 1 << 30}, {1 << 30, 0}} {
		steps := a.Steps(a.Deps)
		pool := pipeline.Pool{Name: "only", MinSize: size[0], MaxSize: size[1], Slots: 8}
		for _, s := range steps {
			pool.Stages = append(pool.Stages, s.Name())
		}
		a.Run(a.Deps, steps, pipeline.RunnerOptions{Pools: []pipeline.Pool{pool}}, func(o *claim.Options) {
			log := o.Log
			*o = claim.DefaultOptions()
			o.Log = log
		})
	}
	deposit(t, a, looks, "first", cost{bags: 1, files: 3, size: 100}) // connects, and has statements planned
	for _, c := range costs() {
		t.Run(fmt.Sprintf("%d at once of %d files", c.bags, c.files), func(t *testing.T) {
			size := registrySize(t, looks)
			before := counted(t, looks)
			began := time.Now()
			for turn := range c.turns {
				deposit(t, a, looks, fmt.Sprintf("c%d-%d-%d", c.bags, c.files, turn), c)
			}
			took := time.Since(began)
			spent := counted(t, looks).since(before)
			size = registrySize(t, looks) - size
			if bags := int64(c.bags * c.turns); spent.transitions != 9*bags || spent.files < bags*int64(c.files) {
				t.Fatalf("%d bags of %d files made %d transitions and %d files", bags, c.files, spent.transitions, spent.files)
			}
			c.check(t, spent, size, took)
		})
	}
}

// check compares what was spent with the bounds.
func (c cost) check(t *testing.T, spent counts, registry int64, took time.Duration) {
	t.Helper()
	n, seconds := float64(spent.transitions), 2*(1+took.Seconds()) // of two processes
	for _, one := range []struct {
		what  string
		spent int64
		most  float64 // for each transition
		other float64 // for files and upkeep
	}{
		{"statements", spent.statements, c.statements, upkeepStatements * seconds},
		{"commits that wrote", spent.commits, c.commits, upkeepCommits * seconds},
		{"claims that found nothing", spent.claims - spent.claimed, c.empty, upkeepEmpty * seconds},
		{"bytes of WAL", spent.wal, walOfTransition, walOfFile*float64(spent.files) + upkeepWAL*seconds},
	} {
		t.Logf("%s: %d for %.0f transitions and %d files, %.2f for each transition; %.2f and %.0f in all are allowed",
			one.what, one.spent, n, spent.files, float64(one.spent)/n, one.most, one.other)
		if float64(one.spent) > one.most*n+one.other {
			t.Errorf("%s: %d for %.0f transitions, want %.2f for each and %.0f in all at most", one.what, one.spent, n, one.most, one.other)
		}
	}
	perFile := float64(registry) / float64(spent.files)
	t.Logf("%.0f bytes of registry for each of %d files; %.0f are allowed", perFile, spent.files, c.registry)
	if c.registry > 0 && perFile > c.registry {
		t.Errorf("%.0f bytes of registry for each file, want %.0f at most", perFile, c.registry)
	}
}

// countedArchive is an archive on a server of its own, whose statements are those of its
// workers alone: the test connects as another role.
func countedArchive(t *testing.T) (looks *pgxpool.Pool, a *archive) {
	t.Helper()
	server := testenv.NewCountingServer(t)
	server.Exec(`CREATE ROLE counted SUPERUSER LOGIN PASSWORD 'counted'`)
	connect := func(who *url.Userinfo) *pgxpool.Pool {
		u := must.Get(url.Parse(server.URL))(t)
		if who != nil {
			u.User = who
		}
		db := must.Get(pgxpool.New(t.Context(), u.String()))(t)
		t.Cleanup(db.Close)
		return db
	}
	return connect(nil), newArchiveIn(t, connect(url.UserPassword("counted", "counted")))
}

// deposit has bags ingested, and returns when all are on record.
func deposit(t *testing.T, a *archive, looks *pgxpool.Pool, name string, c cost) {
	t.Helper()
	var keys []string
	for i := range c.bags {
		spec := bagtest.Spec{Name: fmt.Sprintf("%s-%d", name, i), TagManifests: []string{"md5", "sha256"}}
		for f := range c.files {
			spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%d.bin", f), Size: c.size, Seed: uint64(i)})
		}
		keys = append(keys, spec.Name+".tar")
		a.PutRaw(spec.Name+".tar", a.Bag(spec))
	}
	a.Taken(keys...)
	value := func(sql string) (n int) {
		must.Do(t, looks.QueryRow(context.Background(), sql).Scan(&n))
		return n
	}
	testenv.Finally(t, "all bags to be on record", func() bool { return value(`SELECT count(*) FROM work_items WHERE status <> 'Success'`) == 0 },
		func() int { return value(`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NOT NULL`) })
}

// counts are what the server has counted so far.
type counts struct{ statements, claims, claimed, transitions, commits, wal, files int64 }

// countedSQL asks for them. A claim that found something began at its own time, unless the
// stage before ended at that: then the item was handed on without a claim.
const countedSQL = `
SELECT (SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = 'counted') AS statements,
	(SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query LIKE '-- claim\_%') AS claims,
	(SELECT count(DISTINCT (worker, claimed_at)) FROM work_item_attempts a
		WHERE NOT EXISTS (SELECT FROM work_item_attempts b WHERE b.work_item_id = a.work_item_id AND b.ended_at = a.claimed_at)) AS claimed,
	(SELECT count(*) FROM work_item_attempts WHERE outcome = 'done') AS transitions,
	pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS commits,
	(pg_current_wal_insert_lsn() - '0/0')::bigint AS wal,
	(SELECT count(*) FROM generic_files) AS files`

func counted(t *testing.T, looks *pgxpool.Pool) counts {
	t.Helper()
	rows, _ := looks.Query(t.Context(), countedSQL)
	c := must.Get(pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (c counts, err error) {
		return c, row.Scan(&c.statements, &c.claims, &c.claimed, &c.transitions, &c.commits, &c.wal, &c.files)
	}))(t)
	if c.claims == 0 && c.claimed > 0 {
		t.Fatalf("%d claims were counted, and %d that found something: is the text of the claim another?", c.claims, c.claimed)
	}
	return c
}

// registrySize is how many bytes the tables take that are not of the queue, with their
// indexes. PostgreSQL extends a table by more pages the more sessions wait for one, so a
// busy machine makes tables of empty pages; vacuum returns those at the end.
func registrySize(t *testing.T, looks *pgxpool.Pool) (size int64) {
	t.Helper()
	must.Get(looks.Exec(t.Context(), `VACUUM`))(t)
	must.Do(t, looks.QueryRow(t.Context(), `
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
	AND relname !~ '^(work_|worker_|topic_|attempt_|uploads_|objects_in_work)'`).Scan(&size))
	return size
}

func (c counts) since(b counts) counts {
	return counts{
		c.statements - b.statements, c.claims - b.claims, c.claimed - b.claimed, c.transitions - b.transitions,
		c.commits - b.commits, c.wal - b.wal, c.files - b.files,
	}
}
