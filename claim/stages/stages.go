// Package stages knows how each stage of the queue is treated. What the database says of stages
// and size bands comes in, and what a process has in its place; what claims, heartbeats and
// ends of claims go by comes out. Settings under which live work could be lost are refused.
package stages

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/registry"
)

// StepOf names the step of an item at a stage: of an ingest it is the stage,
// of a request, since all have the same, the action.
func StepOf(action registry.Action, stage registry.Stage) string {
	if action == registry.Ingest {
		return string(stage)
	}
	return string(action)
}

// Settings is how one stage of one action is treated: a row of
// stage_settings, which administrators change at run time.
type Settings struct {
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

// Remote is the worker of stages that programs process over HTTP.
const Remote = "http"

// SettingError is a setting of a stage under which live work could be lost.
type SettingError struct {
	Stage   string // see [StepOf]
	Setting string // the column of stage_settings
	Problem string
}

// Error names the stage, and what is wrong with its setting.
func (e *SettingError) Error() string { return e.Stage + ": " + e.Problem }

// check refuses a lease that live work could lose.
func (s Settings) check() error {
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

// Backoff is how long an item waits after its nth failure in a row.
func (s Settings) Backoff(n int) time.Duration {
	d := s.BackoffFirst
	for ; n > 1; n-- {
		if d >= s.BackoffMost/time.Duration(max(s.BackoffFactor, 1)) {
			return s.BackoffMost
		}
		d *= time.Duration(s.BackoffFactor)
	}
	return min(d, s.BackoffMost)
}

// Band is a row of size_bands.
type Band struct {
	Band    int16
	MinSize int64
}

// Overrides are what a process has in the place of what the database says. A zero field
// overrides nothing.
type Overrides struct {
	Lease       time.Duration            // how long a claim of any stage lasts unless renewed
	Heartbeat   time.Duration            // between two renewals; at most a third of any lease
	Leases      map[string]time.Duration // by [StepOf], before Lease
	Timeouts    map[string]time.Duration // how long a stage may take; likewise
	MaxAttempts map[string]int           // likewise
}

// All are the settings of all stages, as they were read last, with what this process
// overrides.
type All struct {
	Leases LeaseTimes // where they are not the database's

	stages map[key]Settings
	next   map[key]registry.Stage // the stage behind each that is not the last
	bands  []Band                 // by size, the smallest first
}

type key struct {
	action registry.Action
	stage  registry.Stage
}

// New are the settings of stages, with what a process overrides.
func New(stages []Settings, bands []Band, o Overrides) (*All, error) {
	s := &All{stages: map[key]Settings{}, next: nextStages(stages), bands: bands, Leases: LeaseTimes{}}
	slices.SortFunc(s.bands, func(a, b Band) int { return int(min(max(a.MinSize-b.MinSize, -1), 1)) })
	var errs []error
	for _, st := range stages {
		if st.Worker != Remote { // whose leases this process does not renew
			st = s.override(st, o)
		}
		s.stages[key{st.Action, st.Stage}] = st
		errs = append(errs, st.check())
	}
	return s, errors.Join(errs...)
}

// override puts a process's own settings in the place of the database's.
func (s *All) override(st Settings, o Overrides) Settings {
	step := StepOf(st.Action, st.Stage)
	if o.Lease > 0 {
		st.Lease, s.Leases[step] = o.Lease, o.Lease
	}
	if own, ok := o.Leases[step]; ok {
		st.Lease, s.Leases[step] = own, own
	}
	st.Heartbeat = cmp.Or(o.Heartbeat, st.Heartbeat)
	if n, ok := o.MaxAttempts[step]; ok {
		st.MaxAttempts = n
	}
	if d, ok := o.Timeouts[step]; ok {
		st.Timeout, st.UnrenewedTimeout = d, d
		st.UnrenewedLease = max(st.UnrenewedLease, 3*d)
	}
	return st
}

// Heartbeat is how often a process has to renew so that no stage's lease is
// lost for one late heartbeat.
func (s *All) Heartbeat() time.Duration {
	d := time.Minute
	for _, st := range s.stages {
		if st.Worker != Remote {
			d = min(d, st.Heartbeat, st.Lease/3)
		}
	}
	return d
}

// ShortestLease is that of the stage with the shortest.
func (s *All) ShortestLease() time.Duration {
	d := time.Hour
	for _, st := range s.stages {
		d = min(d, st.Lease)
	}
	return d
}

// Of returns the settings of a stage, also those of an unknown stage.
func (s *All) Of(action registry.Action, stage registry.Stage) Settings {
	if st, ok := s.stages[key{action, stage}]; ok {
		return st
	}
	return Settings{Action: action, Stage: stage, MaxAttempts: 1, Lease: 30 * time.Second, Heartbeat: 10 * time.Second}
}

// BandsWithin lists the bands that hold sizes from least to below most; 0 is no
// bound.
func (s *All) BandsWithin(least, most int64) []int16 {
	var in []int16
	for i, b := range s.bands {
		above := i+1 < len(s.bands) && s.bands[i+1].MinSize <= least
		if !above && (most == 0 || b.MinSize < most) {
			in = append(in, b.Band)
		}
	}
	return in
}

// BehindAll are the places behind all items of a stage. Putting something there wakes those who
// take the stage, and has no claim start further back: one more of its items may run.
func (s *All) BehindAll(stage registry.Stage) (places []cursor.Place) {
	for _, b := range s.bands {
		places = append(places, cursor.Place{Partition: cursor.Partition{Stage: stage, Band: b.Band}, Position: cursor.End()})
	}
	return places
}

// WorkerOf is who processes a stage; "" if there is no such stage.
func (s *All) WorkerOf(action registry.Action, stage registry.Stage) string {
	return s.stages[key{action, stage}].Worker
}

// Next is the stage behind another; "" behind the last.
func (s *All) Next(action registry.Action, stage registry.Stage) registry.Stage {
	return s.next[key{action, stage}]
}

// nextStages returns what each stage of an action is followed by.
func nextStages(stages []Settings) map[key]registry.Stage {
	next := map[key]registry.Stage{}
	order := slices.SortedFunc(slices.Values(stages), func(a, b Settings) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	for i, s := range order[:max(len(order)-1, 0)] {
		if behind := order[i+1]; behind.Action == s.Action {
			next[key{s.Action, s.Stage}] = behind.Stage
		}
	}
	return next
}

// LeaseTimes are those by [StepOf] that differ from the database's.
type LeaseTimes map[string]time.Duration

// Of lists those of an action, with the stages that they are for.
func (l LeaseTimes) Of(action registry.Action) (spans []time.Duration, stages []string) {
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
