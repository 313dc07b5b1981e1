package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry"
)

// StageSettings is how one stage of one action is treated: a row of
// stage_settings, which administrators change at run time.
type StageSettings struct {
	Action        registry.Action
	Stage         registry.Stage
	Ordinal       int    // place in the order of the action's stages
	Worker        string // who processes it: farol, or http for programs that ask over HTTP
	Topic         string
	MaxAttempts   int
	BackoffFirst  time.Duration // after a first failure
	BackoffFactor int           // by which each further one makes it longer
	BackoffMost   time.Duration
	Overdue       time.Duration // a priority that waited longer gets every second claim
	Timeout       time.Duration // how long the stage may take; 0: as long as it needs
	Heartbeat     time.Duration // a worker renews its leases as often, at least
	Lease         time.Duration // how long silence means death
	Capped        bool          // there is a bound on how many run at once in all processes

	// Timeout and lease of a worker that cannot heartbeat.
	UnrenewedTimeout time.Duration
	UnrenewedLease   time.Duration
}

// remoteWorker is the worker of stages that programs process over HTTP.
const remoteWorker = "http"

// SettingError is a setting of a stage under which live work could be lost.
type SettingError struct {
	Stage   string // see [StepOf]
	Setting string // the column of stage_settings
	Problem string
}

// Error names the stage, and what is wrong with its setting.
func (e *SettingError) Error() string { return e.Stage + ": " + e.Problem }

// check refuses a lease that live work could lose.
func (s StageSettings) check() error {
	step := StepOf(s.Action, s.Stage)
	switch {
	case s.Lease <= 0 || s.Heartbeat <= 0:
		return &SettingError{step, "lease", "lease and heartbeat must be longer than 0"}
	case s.Lease < 3*s.Heartbeat:
		return &SettingError{step, "lease", fmt.Sprintf("the lease (%v) is shorter than three heartbeats (3 × %v): one late heartbeat would lose live work",
			s.Lease, s.Heartbeat)}
	case s.UnrenewedLease < 3*s.UnrenewedTimeout:
		return &SettingError{step, "unrenewed_lease", fmt.Sprintf(
			"without heartbeats the lease (%v) must be three processing timeouts (3 × %v) at least: else a second worker would get slow work",
			s.UnrenewedLease, s.UnrenewedTimeout)}
	}
	return nil
}

// sizeBand is a row of size_bands.
type sizeBand struct {
	Band    int16
	MinSize int64
}

// settings are those of all stages, as they were read last, with what this
// process overrides.
type settings struct {
	stages map[stageKey]StageSettings
	next   map[stageKey]registry.Stage // the stage behind each that is not the last
	bands  []sizeBand                  // by size, the smallest first
	leases leaseTimes                  // where they are not the database's
}

type stageKey struct {
	action registry.Action
	stage  registry.Stage
}

// override puts a process's own settings in the place of the database's.
func (s *settings) override(o Options) error {
	var errs []error
	for key, st := range s.stages {
		if st.Worker == remoteWorker { // whose leases this process does not renew
			errs = append(errs, st.check())
			continue
		}
		step := StepOf(st.Action, st.Stage)
		if o.Lease > 0 {
			st.Lease = o.Lease
		}
		if o.Heartbeat > 0 {
			st.Heartbeat = o.Heartbeat
		}
		if n, ok := o.MaxAttempts[step]; ok {
			st.MaxAttempts = n
		}
		if d, ok := o.Leases[step]; ok {
			st.Lease = d
		}
		if d, ok := o.Timeouts[step]; ok {
			st.Timeout, st.UnrenewedTimeout = d, d
			if _, given := o.Leases[step]; !given || !o.Unrenewed { // a worker that can heartbeat does not use it
				st.UnrenewedLease = max(st.UnrenewedLease, 3*d)
			}
		}
		if o.Unrenewed {
			if d, ok := o.Leases[step]; ok {
				st.UnrenewedLease = d
			}
			st.Heartbeat = st.UnrenewedLease / 3 // none is sent; nothing is to be refused for it
			st.Lease, st.Timeout = st.UnrenewedLease, st.UnrenewedTimeout
		}
		s.stages[key] = st
		if _, given := o.Leases[step]; given || o.Lease > 0 || o.Unrenewed {
			s.leases[step] = st.Lease
		}
		errs = append(errs, st.check())
	}
	return errors.Join(errs...)
}

// heartbeat is how often a process has to renew so that no stage's lease is
// lost for one late heartbeat.
func (s *settings) heartbeat() time.Duration {
	d := time.Minute
	for _, st := range s.stages {
		if st.Worker != remoteWorker {
			d = min(d, st.Heartbeat, st.Lease/3)
		}
	}
	return d
}

// shortestLease is that of the stage with the shortest.
func (s *settings) shortestLease() time.Duration {
	d := time.Hour
	for _, st := range s.stages {
		d = min(d, st.Lease)
	}
	return d
}

// of returns the settings of a stage, also those of an unknown stage.
func (s *settings) of(action registry.Action, stage registry.Stage) StageSettings {
	if st, ok := s.stages[stageKey{action, stage}]; ok {
		return st
	}
	return StageSettings{Action: action, Stage: stage, MaxAttempts: 1, Lease: 30 * time.Second, Heartbeat: 10 * time.Second}
}

// bandsWithin lists the bands that hold sizes from least to below most; 0 is no
// bound.
func (s *settings) bandsWithin(least, most int64) []int16 {
	var in []int16
	for i, b := range s.bands {
		above := i+1 < len(s.bands) && s.bands[i+1].MinSize <= least
		if !above && (most == 0 || b.MinSize < most) {
			in = append(in, b.Band)
		}
	}
	return in
}

// behindAll are the places behind all items of a stage. Putting something there wakes those who
// take the stage, and has no claim start further back: one more of its items may run.
func (s *settings) behindAll(stage registry.Stage) (places []cursor.Place) {
	for _, b := range s.bands {
		places = append(places, cursor.Place{Partition: cursor.Partition{Stage: stage, Band: b.Band}, Position: cursor.End()})
	}
	return places
}

// anyTakes reports whether one of the filters takes items of a partition, as far as its stage
// and size band tell. No filter takes all.
func (s *settings) anyTakes(filters []Filter, p cursor.Partition) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f Filter) bool {
		return (p.Stage == "" || slices.ContainsFunc(f.Stages, func(w Want) bool { return w.Stage == p.Stage })) &&
			(p.Band == wake.AnyBand || slices.Contains(s.bandsWithin(f.MinSize, f.MaxSize), p.Band))
	})
}

func newSettings(stages []StageSettings, bands []sizeBand, o Options) (*settings, error) {
	s := &settings{stages: map[stageKey]StageSettings{}, next: nextStages(stages), bands: bands, leases: leaseTimes{}}
	slices.SortFunc(s.bands, func(a, b sizeBand) int { return int(min(max(a.MinSize-b.MinSize, -1), 1)) })
	for _, st := range stages {
		s.stages[stageKey{st.Action, st.Stage}] = st
	}
	return s, s.override(o)
}

// nextStages returns what each stage of an action is followed by.
func nextStages(stages []StageSettings) map[stageKey]registry.Stage {
	next := map[stageKey]registry.Stage{}
	order := slices.SortedFunc(slices.Values(stages), func(a, b StageSettings) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	for i, s := range order[:max(len(order)-1, 0)] {
		if behind := order[i+1]; behind.Action == s.Action {
			next[stageKey{s.Action, s.Stage}] = behind.Stage
		}
	}
	return next
}

// leaseTimes are those by [StepOf] that differ from the database's.
type leaseTimes map[string]time.Duration

// of lists those of an action, with the stages that they are for.
func (l leaseTimes) of(action registry.Action) (spans []time.Duration, stages []string) {
	if action != registry.Ingest {
		if d, ok := l[string(action)]; ok {
			return []time.Duration{d}, []string{string(registry.Requested)}
		}
		return nil, nil
	}
	for stage, d := range l {
		spans, stages = append(spans, d), append(stages, stage)
	}
	return spans, stages
}

// ruleStore reads what the database has claims go by.
type ruleStore interface {
	rules(ctx context.Context) (rules, error)
}

// rules are what the database has claims go by.
type rules struct {
	stages []StageSettings
	bands  []sizeBand
	holds  []ServiceHold // services that are held for all, and those that a person has released
}

func (p *postgres) rules(ctx context.Context) (r rules, err error) {
	batch := &pgx.Batch{}
	batch.Queue(stageSettingsSQL).Query(func(rows pgx.Rows) (err error) {
		type row struct {
			StageSettings

			Bands    []int16
			MinSizes []int64
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
		r = rules{}
		for _, one := range list {
			r.stages = append(r.stages, one.StageSettings)
			r.bands = r.bands[:0]
			for i, band := range one.Bands {
				r.bands = append(r.bands, sizeBand{band, one.MinSizes[i]})
			}
		}
		return err
	})
	batch.Queue(servicesSQL).Query(func(rows pgx.Rows) (err error) {
		r.holds, err = pgx.CollectRows(rows, serviceHold)
		return err
	})
	if err := p.upkeep.SendBatch(ctx, batch).Close(); err != nil {
		return r, fmt.Errorf("read the settings of stages, the size bands and the services that are held: %w", err)
	}
	return r, nil
}
