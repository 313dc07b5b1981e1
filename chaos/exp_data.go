package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// dataExperiments lose or damage what stages have left, let administrators type at
// random, or do a bit of everything.
func dataExperiments() []experiment {
	return []experiment{
		trial("copies-lost", "8 copies are deleted from the target between Store and Storage Validation", "stored again", 0.02,
			between("Storage Validation", harmCopies(8, os.Remove))).inShort().spends(),
		trial("copies-cut", "8 copies are cut in the target between Store and Storage Validation", "stored again", 0.02,
			between("Storage Validation", harmCopies(8, func(path string) error { return os.Truncate(path, 10) }))).spends(),
		trial("staging-wiped", "the lists of all items are deleted before Store", "made again", 0.02,
			between("Store", wipeStaging)).spends(),
		trial("staging-wiped-late", "the lists of all items are deleted before Record", "made again", 0.02,
			between("Record", wipeStaging)).spends(),
		trial("mad-administrators", "three administrators requeue, release, cancel, pause and reorder at random for 25 s", "all items that were not cancelled are Success", 0.05,
			madness(25*time.Second)).promising(oracle.Promise{Spends: true, ByHand: true}),
		trial("storm", "for 90 s, one to three random faults at a time, each for 2 to 12 s", allDo+"; attempts may be used up", 0.05,
			storm(90*time.Second)).spends(),
	}
}

// between has items wait before a stage until all that are valid have come there,
// does something, and lets them go on.
func between(stage string, do step) step {
	return func(ctx context.Context, s *site) error {
		if err := s.Exec(ctx, `UPDATE stage_settings SET paused = true WHERE action = 'Ingest' AND stage = $1`, stage); err != nil {
			return err
		}
		var elsewhere, all int
		there, err := poll(ctx, s.patience(), func() (bool, error) {
			err := s.DB.QueryRow(ctx, `SELECT count(*) FILTER (WHERE retry AND (stage <> $1 OR status = 'Started')), count(*) FROM work_items`, stage).Scan(&elsewhere, &all)
			return elsewhere == 0 && all >= len(s.Bags), err
		})
		if err != nil {
			return fmt.Errorf("wait for items at %s: %w", stage, err)
		}
		if !there {
			return fmt.Errorf("%d items did not reach %s", elsewhere, stage)
		}
		if err := do(ctx, s); err != nil {
			return err
		}
		return s.Exec(ctx, `UPDATE stage_settings SET paused = false WHERE action = 'Ingest' AND stage = $1`, stage)
	}
}

// harmCopies does something to some objects of the first Standard target that are on
// no record yet.
func harmCopies(n int, harm func(path string) error) step {
	return func(_ context.Context, s *site) error {
		dir := s.bucketDir(s.Bucket("standard-va"))
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("find the copies: %w", err)
		}
		s.rng.Shuffle(len(entries), func(i, k int) { entries[i], entries[k] = entries[k], entries[i] })
		done := 0
		for _, e := range entries {
			info, err := e.Info()
			if done == n || err != nil || !info.Mode().IsRegular() || info.Size() < 20 || s.onRecord(e.Name()) {
				continue
			}
			if err := harm(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("damage a copy: %w", err)
			}
			done++
		}
		s.note("%d copies damaged", done)
		if done == 0 {
			return errVoid
		}
		return nil
	}
}

func (s *site) onRecord(key string) bool {
	var is bool
	err := s.DB.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM storage_records WHERE key = $1)`, key).Scan(&is)
	return is || err != nil
}

// wipeStaging deletes what the stages have left, in the staging bucket and in the registry.
func wipeStaging(ctx context.Context, s *site) error {
	if err := s.Exec(ctx, `DELETE FROM work_item_lists`); err != nil {
		return err
	}
	dir := s.bucketDir(s.Staging())
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	s.note("%d entries of %s deleted", len(entries), s.Staging())
	if err != nil {
		return fmt.Errorf("wipe the bucket: %w", err)
	}
	return nil
}

// madness has three administrators type at random, and then sets right what would
// keep items from going on.
func madness(d time.Duration) step {
	return func(ctx context.Context, s *site) error {
		mad := func(seed uint64) fault {
			rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // the same each time
			return repeated("administrator", 150*time.Millisecond, func(ctx context.Context, s *site) error {
				return s.rage(ctx, rng)
			})
		}
		seed := s.rng.Uint64()
		if err := hold(d, mad(seed), mad(seed+1), mad(seed+2))(ctx, s); err != nil {
			return err
		}
		if err := s.Exec(ctx, `UPDATE stage_settings SET paused = false`); err != nil {
			return err
		}
		return s.Exec(ctx, `SELECT requeue(id) FROM work_items WHERE status = 'Suspended'`)
	}
}

// rage does one thing to a random item or stage. What the database refuses is
// refused.
func (s *site) rage(ctx context.Context, rng *rand.Rand) error {
	const anItem = `(SELECT id FROM work_items WHERE retry ORDER BY random() LIMIT 1)`
	const aStage = `(SELECT stage FROM stage_settings WHERE action = 'Ingest' ORDER BY random() LIMIT 1)`
	deeds := []string{
		`SELECT requeue(` + anItem + `)`, `SELECT requeue(` + anItem + `, 'Receive')`, `SELECT requeue(` + anItem + `, 'Store')`,
		`SELECT release(` + anItem + `)`, `SELECT release((SELECT id FROM work_items WHERE status = 'Started' ORDER BY random() LIMIT 1))`,
		`SELECT set_priority(` + anItem + `, (random() * 100)::int - 50)`,
		`UPDATE stage_settings SET paused = NOT paused WHERE action = 'Ingest' AND stage = ` + aStage,
		`UPDATE stage_settings SET paused = false`,
		`UPDATE work_items SET stage = 'Validate', status = 'Pending' WHERE id = ` + anItem,
	}
	if rng.IntN(30) == 0 {
		deeds = []string{`SELECT cancel(` + anItem + `, 'a mad administrator')`}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.DB.Exec(ctx, deeds[rng.IntN(len(deeds))]) //nolint:errcheck // refusals are half of the fun
	return nil
}

// storm has random faults follow each other. The seed chooses them, and how long
// they last.
func storm(d time.Duration) step {
	return func(ctx context.Context, s *site) error {
		one := func(s *site) []*process { return s.workers[len(s.workers)-1:] }
		end := time.Now().Add(d)
		for time.Now().Before(end) {
			pool := []fault{
				onS3(all, always(refusal(http.StatusForbidden, "AccessDenied", "Access Denied"))),
				onS3(all, always(refusal(http.StatusInternalServerError, "InternalError", "Internal error.").some(0.5))),
				onS3(one, func(*site) *rule { return portal() }), onS3(all, func(*site) *rule { return cutBody().when(isRead).some(0.2) }),
				onS3(one, func(*site) *rule { return badSignature() }),
				refused(all, toRedis), refused(one, toRedis), refused(all, toPostgres), refused(one, toS3), cut(all, toPostgres), stalled(one, toS3),
				once("flush", redisDo("FLUSHALL"), nil),
				once("kill", func(_ context.Context, s *site) error { s.workers[0].Signal(syscall.SIGKILL); return nil }, nil),
			}
			s.rng.Shuffle(len(pool), func(i, k int) { pool[i], pool[k] = pool[k], pool[i] })
			err := hold(2*time.Second+time.Duration(s.rng.Int64N(int64(10*time.Second))), pool[:1+s.rng.IntN(3)]...)(ctx, s)
			if err != nil && !errors.Is(err, errVoid) {
				return err
			}
		}
		return nil
	}
}
