package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// What can be said of a thing that a process needs.
const (
	stateOK      = "ok"
	stateWarning = "warning" // it works, and a person should know
	stateFailed  = "failed"
)

const institutionsCheck = "institutions' buckets"

const (
	checkTime = 8 * time.Second // of one check, or of one bucket
	allChecks = 18 * time.Second
	trialTime = 20 * time.Second // more, where rights are tried
)

// finding is a row of farol check.
type finding struct {
	Service string   `json:"service"` // as in package fault: database, redis, s3:Standard-VA, disk, ...
	Check   string   `json:"check"`   // what of it was looked at
	State   string   `json:"state"`
	Found   string   `json:"found"`
	Todo    string   `json:"to_do,omitempty"`
	Code    string   `json:"code,omitempty"`    // stable, such as storage-denied
	Missing []string `json:"missing,omitempty"` // rights
	Fatal   bool     `json:"fatal"`             // a worker does not start with it

	cause string // of failures that have one cause, as far as is known; "" is what is to be done
}

// surroundings are what a process needs of the world around it; nil is nothing.
type surroundings struct {
	command  string // whose they are: work, schedule, serve or mirror
	database *settings.Database
	redis    *settings.Redis
	s3       *settings.S3
	storage  *settings.Storage // implies s3
	viruses  *virus.Scanner
	host     *hostNeeds

	starting bool   // the process is to run: Redis and TMPDIR may be written to
	write    string // writeNothing, or which buckets' rights are tried by writing
}

// check looks at one thing. It has a deadline, and one finding at least.
type check struct {
	service, what string
	run           func(context.Context) []finding
	time          time.Duration
	lesser        bool // its failure holds back some of the work only
}

// checks are all that are to be made.
func (s surroundings) checks(client *storage.Client) (list []check) {
	add := func(service, what string, run func(context.Context) []finding) {
		limit := checkTime
		if s.write != writeNothing {
			limit += trialTime
		}
		lesser := what == "target" || what == keepCheck || what == institutionsCheck || service == fault.Scanner
		list = append(list, check{service, what, run, limit, lesser})
	}
	if s.database != nil {
		add(fault.Database, "answers", s.checkDatabase)
	}
	if s.redis != nil {
		add(fault.Redis, "answers", s.checkRedis)
	}
	if s.storage != nil {
		add(fault.Bucket(s.storage.Staging), "staging bucket", func(ctx context.Context) []finding { return s.checkStaging(ctx, client) })
		if s.storage.Keep != "" {
			add(fault.Bucket(s.storage.Keep), keepCheck, func(ctx context.Context) []finding { return s.checkKeep(ctx, client) })
		}
		for _, t := range s.storage.Targets {
			add(fault.Bucket(t.Name), "target", func(ctx context.Context) []finding { return s.checkTarget(ctx, client, t) })
		}
	}
	for _, t := range s.endpoints() {
		add("s3", "clock", func(ctx context.Context) []finding { return s.checkS3Clock(ctx, client, t) })
	}
	if s.s3 != nil && s.database != nil {
		add("s3", institutionsCheck, func(ctx context.Context) []finding { return s.checkInstitutions(ctx, client) })
	}
	if s.viruses != nil {
		add(fault.Scanner, "answers", s.checkScanner)
	}
	if s.host != nil {
		add(fault.Disk, "TMPDIR", s.checkDisk)
		add(fault.Memory, "limits", s.checkLimits)
	}
	return list
}

// examine makes all checks at the same time, in bounded time whatever hangs, and
// returns what they found in the order of the list.
func (s surroundings) examine(ctx context.Context) []finding {
	limit := allChecks
	if s.write != writeNothing {
		limit += trialTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client := storage.NewClient(storage.Options{Stall: checkTime})
	defer client.Close()
	checks := s.checks(client)
	results := make([]chan []finding, len(checks))
	for i, c := range checks {
		// A look at a disk that hangs cannot be ended: its goroutine is left behind.
		results[i] = make(chan []finding, 1)
		go func() { results[i] <- c.bounded(ctx) }()
	}
	var all []finding
	for i, c := range checks {
		select {
		case found := <-results[i]:
			all = append(all, found...)
		case <-ctx.Done():
			all = append(all, c.silent())
		}
	}
	return s.judged(all)
}

func (c check) bounded(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, c.time)
	defer cancel()
	return c.run(ctx)
}

// silent is what is found of a check that did not end in time.
func (c check) silent() finding {
	f := bad(&fault.Error{Service: c.service, Kind: fault.Unavailable, Err: errors.New("no answer in time")}, c.what,
		"see that it answers, and that nothing on the way drops packets")
	if c.lesser {
		return f.lesser()
	}
	return f
}

// judged says which failures keep the process from starting. What only some of its
// work needs (one target of several, the buckets of one institution, the virus
// scanner) does not: that work waits, and the rest goes on. docs/operators.md has
// the rule.
func (s surroundings) judged(all []finding) []finding {
	targets, buckets := tally{}, tally{}
	for i := range all {
		f := &all[i]
		f.Found, f.Todo = storage.Redact(f.Found), storage.Redact(f.Todo)
		if !s.needsFor(f.Service, f.Check) {
			f.Fatal = false
		}
		if f.Check == "target" {
			targets.add(*f)
		}
		if strings.HasPrefix(f.Service, "s3:") && f.Check != "rights" {
			buckets.add(*f)
		}
	}
	for i := range all {
		f := &all[i]
		if f.State == stateFailed && (s.command == "work" && f.Check == "target" && targets.none() || strings.HasPrefix(f.Service, "s3:") && buckets.none()) {
			f.Fatal = true
		}
	}
	return all
}

// needsFor reports whether all work of the process needs something. The jobs of a
// scheduler need the database, and each what it needs besides.
func (s surroundings) needsFor(service, what string) bool {
	return service == fault.Database || s.command == "work" || service == "s3" && what == "clock"
}

// tally counts how many of several do.
type tally struct{ all, failed int }

func (t *tally) add(f finding) {
	t.all++
	if f.State == stateFailed {
		t.failed++
	}
}

func (t *tally) none() bool { return t.all > 0 && t.failed == t.all }

func good(service, what, found string) finding {
	return finding{Service: service, Check: what, State: stateOK, Found: found}
}

func warn(service, what, found, todo string) finding {
	return finding{Service: service, Check: what, State: stateWarning, Found: found, Todo: todo}
}

// bad is a failure of something that all work needs.
func bad(e *fault.Error, what, todo string) finding {
	return finding{Service: e.Service, Check: what, State: stateFailed, Found: saidBy(e), Code: e.Code(), Todo: todo, Fatal: true}
}

// lesser is a failure that holds back some of the work only.
func (f finding) lesser() finding {
	f.Fatal = false
	return f
}

// saidBy is what to show of an error: what the service said, and the whole, on one
// line.
func saidBy(e *fault.Error) string {
	var parts []string
	for line := range strings.Lines(e.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	whole := strings.Join(parts, "; ")
	if e.Said == "" || strings.Contains(whole, e.Said) {
		return whole
	}
	return e.Said + ": " + whole
}

// blamed makes an error that is of a service, if it does not say so itself. sort
// knows the service's own answers.
func blamed(service string, err error, sort func(error) (fault.Kind, bool)) *fault.Error {
	if e := fault.In(err); e != nil {
		return &fault.Error{Service: service, Kind: e.Kind, Said: e.Said, Err: err}
	}
	if k, ok := sort(err); ok {
		return &fault.Error{Service: service, Kind: k, Err: err}
	}
	if k, said, ok := fault.Network(err); ok {
		return &fault.Error{Service: service, Kind: k, Said: said, Err: err}
	}
	return &fault.Error{Service: service, Kind: fault.Unavailable, Err: err}
}

// worst is the state of the whole.
func worst(all []finding) string {
	for _, state := range []string{stateFailed, stateWarning} {
		if slices.ContainsFunc(all, func(f finding) bool { return f.State == state }) {
			return state
		}
	}
	return stateOK
}

func skewText(d time.Duration) string {
	word := "behind"
	if d < 0 {
		word = "ahead of"
	}
	return fmt.Sprintf("the clock of this host is %v %s", d.Abs().Round(time.Second), word)
}

// Which buckets' rights are tried by writing to them.
const (
	writeNothing = ""
	writeHot     = "hot" // those that charge by the day
	writeAll     = "all" // and those that charge for months, whatever becomes of an object
)

func (f finding) name() string { return human.Line(f.Service + ", " + f.Check) }

// alikeFindings are a finding, with the names of others about which the same is to be done.
type alikeFindings struct {
	finding

	also []string
}

// alike groups some of the findings, and counts them.
func alike(all []finding, some func(finding) bool) (groups []alikeFindings, n int) {
	at := map[[2]string]int{}
	for _, f := range all {
		if !some(f) {
			continue
		}
		n++
		key := [2]string{f.Code, cmp.Or(f.cause, f.Todo)}
		if i, ok := at[key]; ok {
			groups[i].also = append(groups[i].also, f.name())
			continue
		}
		at[key] = len(groups)
		groups = append(groups, alikeFindings{finding: f})
	}
	return groups, n
}
