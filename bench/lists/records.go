package lists

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// work is something that the registry does all its life, and what it cost.
type work struct {
	what  string
	n     int             // that were done
	took  time.Duration   // by all
	calls []time.Duration // each
	wal   float64         // bytes for each that was done
}

// records measures what grows with the registry: the queue, recordings, the choice of copies for
// fixity checks and their results, the doctor's passes, vacuum, and the tables themselves.
func (m *measurement) records(ctx context.Context) error {
	db, err := dial.Connect(ctx, m.Stack.DatabaseURL, "lists-records")
	if err != nil {
		return err
	}
	defer db.Close()
	var list []work
	for _, do := range []func(context.Context, *pgxpool.Pool) ([]work, error){m.claims, m.recordings, m.checks, m.passes, m.vacuums} {
		done, err := do(ctx, db)
		if err != nil {
			return err
		}
		list = append(list, done...)
	}
	w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "What the registry does with %d files\n\tdone\ta second\tp50 ms of a call\tp99\tWAL bytes each\t\n", m.config.sizes.Files)
	for _, l := range list {
		slices.Sort(l.calls)
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%.0f\t\n", l.what, l.n, float64(l.n)/l.took.Seconds(), ms(percentile(l.calls, 0.5)), ms(percentile(l.calls, 0.99)), l.wal)
	}
	if err := flushed(w); err != nil {
		return err
	}
	return m.tables(ctx)
}

// timed measures calls of do until it has done nothing more, or for a round.
func (m *measurement) timed(ctx context.Context, what string, do func() (int, error)) (v work, err error) {
	v.what = what
	s, err := m.speed(ctx, func() (int, error) {
		for began := time.Now(); v.took < m.config.round(); v.took = time.Since(began) {
			call := time.Now()
			n, err := do()
			if err != nil {
				return 0, fmt.Errorf("%s: %w", what, err)
			}
			v.calls = append(v.calls, time.Since(call))
			v.n += n
			if n == 0 {
				v.took = time.Since(began)
				break
			}
		}
		return v.n, nil
	})
	v.wal = s.wal
	return v, err
}

// claims are of one worker, that takes ten items from stage to stage.
func (m *measurement) claims(ctx context.Context, db *pgxpool.Pool) ([]work, error) {
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	round := 0
	v, err := m.timed(ctx, fmt.Sprintf("transitions, %d to a claim", hopBatch), func() (int, error) {
		round++
		return hop(ctx, engine, round)
	})
	return []work{v}, err
}

// recordings are of bags by four workers.
func (m *measurement) recordings(ctx context.Context, _ *pgxpool.Pool) (list []work, err error) {
	b := &bags{m: m}
	if b.db, err = m.connect(ctx); err != nil {
		return nil, err
	}
	defer b.db.Close(ctx)                                   //nolint:errcheck // everything was done or failed before
	if _, err := b.record(ctx, m.config.bags); err != nil { // until the caches are warm
		return nil, err
	}
	v, err := b.record(ctx, m.config.bags)
	took := time.Duration(float64(m.config.bags) / v.rate * float64(time.Second))
	return []work{{what: fmt.Sprintf("bags of %d files recorded, %d workers", filesOfABag, recorders), n: m.config.bags, took: took, wal: v.wal}}, err
}

const (
	checksAtOnce = 100
	checkDays    = 90
)

// checks chooses copies that are due, and records that their digests match.
func (m *measurement) checks(ctx context.Context, db *pgxpool.Pool) ([]work, error) {
	targets, err := texts(ctx, m.DB, `
		INSERT INTO fixity_policies (target, provider, mode) SELECT DISTINCT 'Standard-' || n, 'AWS', 'read' FROM generate_series(1, `+fmt.Sprint(m.config.sizes.Copies)+`) n
		ON CONFLICT (target) DO UPDATE SET mode = 'read' RETURNING target`)
	if err != nil {
		return nil, err
	}
	f := fixity.In(registry.New(db))
	if _, err := f.Feed(ctx, 1_000_000_000, time.Hour); err != nil {
		return nil, err
	}
	var taken [][]fixity.Copy
	chosen, err := m.timed(ctx, fmt.Sprintf("copies chosen for fixity checks, %d to a claim", checksAtOnce), func() (int, error) {
		list, err := f.Claim(ctx, fixity.Claim{Worker: "lists", Targets: targets, Most: checksAtOnce, Days: checkDays, Lease: time.Hour})
		taken = append(taken, list)
		return len(list), err
	})
	if err != nil {
		return nil, err
	}
	recorded, err := m.timed(ctx, fmt.Sprintf("results of checks, %d to a transaction", checksAtOnce), func() (int, error) {
		if len(taken) == 0 {
			return 0, nil
		}
		var results []fixity.Result
		for _, c := range taken[0] {
			results = append(results, fixity.Result{
				Hold: fixity.Hold{ID: c.ID, Token: c.Token}, Key: c.Key, Algorithm: "sha256", Expected: c.SHA256, Found: c.SHA256, Bytes: c.Size,
			})
		}
		taken = taken[1:]
		_, err := f.Record(ctx, results...)
		return len(results), err
	})
	return []work{chosen, recorded}, err
}

// passes are those of the doctor through the registry, without any store.
func (m *measurement) passes(ctx context.Context, db *pgxpool.Pool) ([]work, error) {
	u := upkeep.In(registry.New(db))
	rules := work{what: "rules of the doctor"}
	for _, rule := range upkeep.Rules() {
		began := time.Now()
		if _, err := u.Violations(ctx, rule); err != nil {
			return nil, err
		}
		rules.calls = append(rules.calls, time.Since(began))
		rules.took += time.Since(began)
		rules.n++
	}
	incomplete, err := pass("files that lack a copy (the doctor)", int(m.config.sizes.Files), u.IncompleteFiles(ctx, map[string][]string{"Standard": {"Standard-1"}}))
	if err != nil {
		return nil, err
	}
	keys, err := pass("keys of a target in order (the doctor)", 0, u.CopyKeys(ctx, "Standard-1"))
	return []work{rules, incomplete, keys}, err
}

// pass reads all; n is of how many, 0: of as many as are read.
func pass[T any](what string, n int, all iter.Seq2[T, error]) (v work, err error) {
	began, read := time.Now(), 0
	for _, err := range all {
		if err != nil {
			return v, fmt.Errorf("%s: %w", what, err)
		}
		read++
	}
	if n == 0 {
		n = read
	}
	return work{what: what, n: n, took: time.Since(began)}, nil
}

// vacuums remove what the parts before have left.
func (m *measurement) vacuums(ctx context.Context, _ *pgxpool.Pool) (list []work, err error) {
	for _, table := range []string{"work_items", "generic_files", "storage_records", "event_records"} {
		began := time.Now()
		if _, err := m.DB.Exec(ctx, `VACUUM (INDEX_CLEANUP ON) `+table); err != nil {
			return nil, fmt.Errorf("vacuum %s: %w", table, err)
		}
		list = append(list, work{what: "vacuum of " + table, n: 1, took: time.Since(began), calls: []time.Duration{time.Since(began)}})
	}
	return list, nil
}

// tables prints how large the large tables are.
func (m *measurement) tables(ctx context.Context) error {
	rows, err := m.DB.Query(ctx, `
		SELECT parent, sum(pg_table_size(c.oid))::float8, sum(pg_indexes_size(c.oid))::float8, sum(greatest(c.reltuples, 0))::float8
		FROM (SELECT c.oid, c.reltuples, coalesce((SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = c.oid), c.oid)::regclass::text AS parent
			FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace) c
		GROUP BY 1 HAVING sum(pg_total_relation_size(c.oid)) > 10 * 1024 * 1024 ORDER BY sum(pg_total_relation_size(c.oid)) DESC`)
	if err != nil {
		return fmt.Errorf("measure the tables: %w", err)
	}
	defer rows.Close()
	w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nTables\n\trows\ttable MB\tindexes MB\tbytes a row\t\n")
	for rows.Next() {
		var name string
		var table, indexes, n float64
		if err := rows.Scan(&name, &table, &indexes, &n); err != nil {
			return fmt.Errorf("measure the tables: %w", err)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, n, table/1e6, indexes/1e6, (table+indexes)/max(n, 1))
	}
	if rows.Err() != nil {
		return fmt.Errorf("measure the tables: %w", rows.Err())
	}
	return flushed(w)
}
