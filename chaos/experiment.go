package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// An experiment is what is done to a Farol at work, and what must come of it.
type experiment struct {
	name  string
	does  string
	must  string // what must come of it, in addition to what always must
	short bool   // part of `make chaos`, and not of ARGS=--all alone

	prepare step    // before the processes start; nil: nothing is done
	script  step    // nil: nothing is done
	at      float64 // how far the work has come when the script begins, from 0 to 1
	mix     func(bags int) mix
	promise oracle.Promise
	way     string // of [storeways.All], that the store goes; "": it does what the gateway does
	inParts bool   // the script deposits the bags, in [site.part]s
}

// A step is something that is done to a site, or waited for.
type step func(context.Context, *site) error

// trial is an experiment with the usual bags, that must spend no attempts and is not short.
func trial(name, does, must string, at float64, script step) experiment {
	return experiment{name: name, does: does, must: must, at: at, script: script, mix: usual}
}

func (e experiment) inShort() experiment {
	e.short = true
	return e
}

func (e experiment) prepared(prepare func(*site) error) experiment {
	e.prepare = func(_ context.Context, s *site) error { return prepare(s) }
	return e
}

// drilled is an experiment whose script deposits the bags, by parts, in something that it prepares.
func (e experiment) drilled(prepare step) experiment {
	e.prepare, e.inParts = prepare, true
	return e
}

func (e experiment) of(mix func(bags int) mix) experiment {
	e.mix = mix
	return e
}

func (e experiment) promising(p oracle.Promise) experiment {
	e.promise = p
	return e
}

func (e experiment) spends() experiment { return e.promising(oracle.Promise{Spends: true}) }

// The ways of a store under which experiments are made once more: as MinIO, and as Ceph RGW.
const (
	copiesUnproven = "no checksums of copied parts"
	completeSilent = "no ETag of what is completed"
)

// otherStores are experiments again, on stores that make Farol take other ways. They are those
// whose faults meet copies, uploads in parts, or what is read back.
func otherStores(list []experiment) (again []experiment) {
	for name, way := range map[string]string{
		"s3-half-500": copiesUnproven, "s3-cut-each-second": copiesUnproven, "flip-staging": copiesUnproven,
		"copies-cut": copiesUnproven, "staging-wiped": copiesUnproven, "restorations-decayed": copiesUnproven,
		"kill-9": completeSilent, "s3-503": completeSilent, "s3-cut-bodies": completeSilent, "flip-receiving": completeSilent,
		"bucket-gone": completeSilent, "restorations-flipped": completeSilent, "deletions": completeSilent,
	} {
		e := list[slices.IndexFunc(list, func(e experiment) bool { return e.name == name })]
		e.name += map[string]string{copiesUnproven: "-minio", completeSilent: "-ceph"}[way]
		e.does, e.way = "as `"+name+"`; the store gives "+way, way
		e.short = name == "s3-half-500" || name == "bucket-gone"
		again = append(again, e)
	}
	slices.SortFunc(again, func(a, b experiment) int { return strings.Compare(a.name, b.name) })
	return again
}

// usual is one large bag, one with many files, and small ones; one small bag in ten
// is invalid.
func usual(bags int) mix { return mix{Bags: bags, Large: 1, Many: 1} }

// listed is usual with more bags whose lists are too large for the registry, and so go to the staging
// bucket.
func listed(bags int) mix { return mix{Bags: bags, Large: 1, Many: 12} }

const (
	firstProgress = 30 * time.Second // from the end of the faults to the first stage that is done
	pollPause     = 100 * time.Millisecond
)

// options are what the command line says.
type options struct {
	seed          uint64
	bags, workers int
	keep          bool
	before        string // commit of the release before; "": see [site.releaseBefore]
}

// A result is what came of an experiment.
type result struct {
	Name       string             `json:"name"`
	Does       string             `json:"does"`
	Must       string             `json:"must"`
	Seed       uint64             `json:"seed"`
	Bags       int                `json:"bags"`
	Workers    int                `json:"workers"`
	Seconds    float64            `json:"seconds"` // from the first process to the end of the work
	First      float64            `json:"first_progress_s"`
	All        float64            `json:"all_done_s"` // since the end of the faults
	Want       map[string]int     `json:"want"`       // bags by status
	Found      map[string]int     `json:"found"`
	Outcomes   map[string]int     `json:"outcomes"` // attempts
	Notes      []string           `json:"notes,omitempty"`
	Violations []oracle.Violation `json:"violations,omitempty"`
	Error      string             `json:"error,omitempty"` // the harness failed, and nothing is known
}

// run makes one experiment.
func run(ctx context.Context, srv *servers, e experiment, number int, o options) (r result) {
	m := e.mix(o.bags)
	r = result{Name: e.name, Does: e.does, Must: e.must, Seed: o.seed, Bags: m.Bags, Workers: o.workers}
	name := fmt.Sprintf("x%02d_%s", number, strings.NewReplacer("-", "").Replace(e.name))
	s, err := newSite(ctx, srv, name, o.seed, m)
	if err == nil {
		s.before = o.before
		err = s.experiment(ctx, e, o, &r)
	}
	if s != nil {
		s.stopProcesses()
		for i := range s.after {
			err = errors.Join(err, s.after[len(s.after)-1-i](context.WithoutCancel(ctx)))
		}
		r.Notes = append(r.Notes, s.notes...)
		r.Violations = append(r.Violations, s.broken...)
		if !o.keep && err == nil && len(r.Violations) == 0 {
			err = s.remove(context.WithoutCancel(ctx))
		} else if s.DB != nil {
			r.Notes = append(r.Notes, "kept in "+s.Dir+" and database "+s.Name)
			s.DB.Close()
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// experiment runs the processes, the script and the oracle.
func (s *site) experiment(ctx context.Context, e experiment, o options, r *result) error {
	if err := s.goes(e.way); err != nil {
		return err
	}
	for i := range o.workers {
		p, err := s.process(fmt.Sprintf("worker-%d", i+1), "work")
		if err != nil {
			return err
		}
		s.workers = append(s.workers, p)
	}
	var err error
	if s.scheduler, err = s.process("scheduler", "schedule", "--jobs", "read-buckets"); err != nil {
		return err
	}
	if !e.inParts {
		if err := s.deposit(ctx, s.Bags); err != nil {
			return err
		}
	}
	if e.prepare != nil {
		if err := e.prepare(ctx, s); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	began := time.Now()
	for _, p := range s.everyone() {
		if err := p.Start(); err != nil {
			return err
		}
	}
	if e.script != nil {
		if err := s.awaitShare(ctx, e.at, time.Minute); err != nil {
			return err
		}
		if err := e.script(ctx, s); err != nil {
			return fmt.Errorf("the script: %w", err)
		}
	}
	if err := s.settle(ctx, r); err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	s.stopProcesses()
	return s.ask(ctx, e, r)
}

const stages = 9

// awaitShare waits until a share of all the stages of all the bags is done, or for
// as long as it may take.
func (s *site) awaitShare(ctx context.Context, share float64, most time.Duration) error {
	want := int(share * stages * float64(len(s.Bags)))
	var c rig.Counts
	done, err := poll(ctx, most, func() (_ bool, err error) {
		c, err = s.Look(ctx)
		return c.Done >= want, err
	})
	if err == nil && !done {
		s.note("after %s, only %d of %d stages had ended; the faults began anyway", most, c.Done, want)
	}
	return err
}

// stuck is how long nothing may move before an experiment is given up.
const stuck = 100 * time.Second

// settle waits until every bag has ended, measures how soon work went on after the
// faults, and gives up when nothing moves any more.
func (s *site) settle(ctx context.Context, r *result) error {
	over := time.Now()
	last, err := s.firstLook(ctx)
	if err != nil {
		return err
	}
	moved, late := over, last.Live > 0 || last.Ended < len(s.Bags)
	for !s.allEnded(last) {
		if time.Since(moved) > stuck || time.Since(over) > s.patience() {
			s.note("gave up %.0f s after the faults, %.0f s after the last stage that was done: %d items are live", time.Since(over).Seconds(), time.Since(moved).Seconds(), last.Live)
			break
		}
		if err := sleep(ctx, pollPause); err != nil {
			return err
		}
		c, err := s.Look(ctx)
		if err != nil {
			continue // sleep returns once ctx is done
		}
		if c.Done+c.Ended > last.Done+last.Ended {
			if moved = time.Now(); late {
				r.First, late = moved.Sub(over).Seconds(), false
			}
		}
		last = c
	}
	r.All = time.Since(over).Seconds()
	if late {
		r.First = r.All
	}
	r.judgeRecovery()
	return nil
}

// allEnded tells whether every bag has ended.
func (s *site) allEnded(c rig.Counts) bool { return c.Live == 0 && c.Ended >= len(s.Bags) }

// firstLook is look once PostgreSQL answers, which may still be starting.
func (s *site) firstLook(ctx context.Context) (c rig.Counts, err error) {
	_, ended := poll(ctx, time.Minute, func() (bool, error) {
		c, err = s.Look(ctx)
		return err == nil, nil
	})
	return c, errors.Join(err, ended)
}

// judgeRecovery is a violation where work went on too late.
func (r *result) judgeRecovery() {
	if r.First > firstProgress.Seconds() {
		r.Violations = append(r.Violations, oracle.Violation{
			Kind: "recovery-late", Detail: fmt.Sprintf("the first stage was done %.1f s after the faults, should be within %s", r.First, firstProgress),
		})
	}
}

// patience is how long all bags may take after the faults: six times what they take
// on a busy machine without any.
func (s *site) patience() time.Duration {
	return 2*time.Minute + time.Duration(len(s.Bags))*time.Second
}

// ask has the oracle judge.
func (s *site) ask(ctx context.Context, e experiment, r *result) error {
	w, err := s.Collect(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what it was reading
	}
	r.Want, r.Found, r.Outcomes = map[string]int{}, map[string]int{}, map[string]int{}
	for _, b := range s.Bags {
		if b.Wrong == "" {
			r.Want["Success"]++
		} else {
			r.Want["Failed"]++
		}
	}
	for _, i := range w.Items {
		r.Found[i.Status]++
	}
	for _, a := range w.Attempts {
		r.Outcomes[a.Outcome]++
	}
	for _, p := range s.everyone() {
		if exits := p.Unexpected(); len(exits) > 0 {
			s.note("%s ended by itself %d times, first with exit code %d", p.Name, len(exits), exits[0])
		}
		if n := p.Killed(); n > 0 {
			s.note("%s was killed %d times", p.Name, n)
		}
	}
	r.Violations = append(r.Violations, oracle.Judge(w, e.promise)...)
	return nil
}

func (s *site) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// errVoid says that a fault harmed nobody, so that the experiment shows nothing.
var errVoid = errors.New("the fault affected no request; the experiment proves nothing")

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // as it is
	case <-t.C:
		return nil
	}
}

// poll looks until it is done, or for as long as that may take, and returns whether it was.
func poll(ctx context.Context, most time.Duration, look func() (done bool, err error)) (bool, error) {
	for deadline := time.Now().Add(most); ; {
		if done, err := look(); done || err != nil || time.Now().After(deadline) {
			return done, err
		}
		if err := sleep(ctx, pollPause); err != nil {
			return false, err
		}
	}
}

// bucketDir is where the gateway keeps a bucket.
func (s *site) bucketDir(bucket string) string {
	return filepath.Join(s.Servers.Dir, "stack", "s3", "buckets", bucket)
}
