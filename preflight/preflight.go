// Package preflight checks the surroundings of a process before it starts: the
// database, Redis, the buckets, the clocks, the virus scanner and the host. What comes
// in are the settings of the process; what goes out are findings. It prints nothing.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// States of a finding.
const (
	OK      = "ok"
	Warning = "warning" // it works, but a person should know
	Failed  = "failed"
)

const institutionsCheck = "institutions' buckets"

const (
	checkTime = 8 * time.Second // of one check, or of one bucket
	allChecks = 18 * time.Second
	trialTime = 60 * time.Second // more, where rights are tried
)

// Finding is the result of one check, as farol check prints it.
type Finding struct {
	Service string   `json:"service"` // as in package fault: database, redis, s3:Standard-VA, disk, ...
	Check   string   `json:"check"`   // what was checked
	State   string   `json:"state"`
	Found   string   `json:"found"`
	Todo    string   `json:"to_do,omitempty"`
	Code    string   `json:"code,omitempty"`    // stable, such as storage-denied
	Missing []string `json:"missing,omitempty"` // rights
	Fatal   bool     `json:"fatal"`             // a worker does not start with it

	cause string // of failures that have one cause, as far as is known; "" is what is to be done
}

// Surroundings are the servers and resources that a process needs; what is nil it does
// not need.
type Surroundings struct {
	Command  string // whose they are: work, schedule, serve or mirror
	Database *settings.Database
	Redis    *settings.Redis
	S3       *settings.S3
	Storage  *settings.Storage // implies S3
	Viruses  *virus.Scanner
	Host     *HostNeeds
	Origin   string // of the pages from which browsers upload to receiving buckets; "": none
	Days     int    // between two fixity checks where a policy has none; 0: they are not checked here

	Keeps bool // no part of its work deletes in targets: no right to do so is missing

	Starting bool   // the process is to run: Redis and TMPDIR may be written to
	Write    string // WriteNothing, or which buckets' rights are tried by writing

	tried *sync.Map // the stores whose abilities are tried already
	power *power    // which credentials may delete where
}

// check is one check. It has a deadline, and returns at least one finding.
type check struct {
	service, what string
	run           func(context.Context) []Finding
	lesser        bool // its failure holds back some of the work only
}

// checks are all that are to be made.
func (s Surroundings) checks(client *storage.Client) (list []check) {
	add := func(service, what string, run func(context.Context) []Finding) {
		lesser := what == "target" || what == keepCheck || what == institutionsCheck || service == fault.Scanner
		list = append(list, check{service, what, run, lesser})
	}
	if s.Database != nil {
		add(fault.Database, "answers", s.checkDatabase)
	}
	if s.Redis != nil {
		add(fault.Redis, "answers", s.checkRedis)
	}
	s.storeChecks(client, add)
	if s.Viruses != nil {
		add(fault.Scanner, "answers", s.checkScanner)
	}
	if s.Host != nil {
		add(fault.Disk, "TMPDIR", s.checkDisk)
		add(fault.Memory, "limits", s.checkLimits)
	}
	return list
}

// storeChecks adds those of the buckets and their stores.
func (s Surroundings) storeChecks(client *storage.Client, add func(service, what string, run func(context.Context) []Finding)) {
	if s.Storage != nil {
		own := func(name, what, setting string) {
			add(fault.Bucket(name), what, func(ctx context.Context) []Finding { return s.checkOwn(ctx, client, name, what, setting) })
		}
		own(s.Storage.Staging, stagingCheck, "FAROL_STAGING_BUCKET")
		if s.Storage.Keep != "" {
			own(s.Storage.Keep, keepCheck, "FAROL_KEEP_METADATA")
		}
		for _, t := range s.Storage.Targets {
			add(fault.Bucket(t.Name), "target", func(ctx context.Context) []Finding { return s.checkTarget(ctx, client, t) })
			if i, ok := s.Storage.Inventories[t.Name]; ok {
				add(fault.Bucket(t.Name), "inventory", func(ctx context.Context) []Finding { return checkInventory(ctx, client, t, i) })
			}
		}
	}
	for _, t := range s.endpoints() {
		add("s3", "clock", func(ctx context.Context) []Finding { return s.checkS3Clock(ctx, client, t) })
	}
	if s.S3 != nil && !s.Starting {
		add("s3", "encryption", s.checkEncryption)
	}
	if s.S3 != nil && s.Database != nil {
		add("s3", institutionsCheck, func(ctx context.Context) []Finding { return s.checkInstitutions(ctx, client) })
	}
}

// Examine makes all checks at the same time, in bounded time whatever hangs, and
// returns what they found in the order of the list.
func (s Surroundings) Examine(ctx context.Context) []Finding {
	trials := time.Duration(0)
	if s.Write != WriteNothing {
		trials = trialTime
	}
	ctx, cancel := context.WithTimeout(ctx, allChecks+trials)
	defer cancel()
	s.tried, s.power = &sync.Map{}, &power{}
	client := storage.NewClient(storage.Options{Stall: checkTime, Patience: time.Second})
	defer client.Close()
	checks := s.checks(client)
	results := make([]chan []Finding, len(checks))
	for i, c := range checks {
		// The check of a disk that hangs cannot be ended: its goroutine is left behind.
		results[i] = make(chan []Finding, 1)
		go func() { results[i] <- c.bounded(ctx, checkTime+trials) }()
	}
	var all []Finding
	for i, c := range checks {
		select {
		case found := <-results[i]:
			all = append(all, found...)
		case <-ctx.Done():
			all = append(all, c.silent()...)
		}
	}
	if s.Write != WriteNothing {
		all = append(all, s.storeAbilities(ctx, client)...)
	}
	return s.judged(append(all, s.rightsApart()...))
}

func (c check) bounded(ctx context.Context, limit time.Duration) []Finding {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.weighed(c.run(ctx))
}

// silent are the findings of a check that did not end in time.
func (c check) silent() []Finding {
	return c.weighed([]Finding{bad(&fault.Error{Service: c.service, Kind: fault.Unavailable, Err: errors.New("no answer before the timeout")}, c.what,
		"check that it answers and that the network drops no packets")})
}

// weighed are the findings of a check: a failure that holds back some of the work only is
// not fatal.
func (c check) weighed(found []Finding) []Finding {
	for i := range found {
		found[i].Fatal = found[i].Fatal && !c.lesser
	}
	return found
}

// judged says which failures keep the process from starting. What only some of its
// work needs (one target of several, the buckets of one institution, the virus
// scanner) does not: that work waits, and the rest goes on. docs/operators.md has
// the rule.
func (s Surroundings) judged(all []Finding) []Finding {
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
		if f.State == Failed && (s.Command == "work" && f.Check == "target" && targets.none() || strings.HasPrefix(f.Service, "s3:") && buckets.none()) {
			f.Fatal = true
		}
	}
	return all
}

// needsFor reports whether all work of the process needs something. The jobs of a
// scheduler need the database, and each its own servers.
func (s Surroundings) needsFor(service, what string) bool {
	return service == fault.Database || s.Command == "work" || service == "s3" && what == "clock"
}

// tally counts how many of several do.
type tally struct{ all, failed int }

func (t *tally) add(f Finding) {
	t.all++
	if f.State == Failed {
		t.failed++
	}
}

func (t *tally) none() bool { return t.all > 0 && t.failed == t.all }

func good(service, what, found string) Finding {
	return Finding{Service: service, Check: what, State: OK, Found: found}
}

func warn(service, what, found, todo string) Finding {
	return Finding{Service: service, Check: what, State: Warning, Found: found, Todo: todo}
}

// bad is a failure of something that all work needs.
func bad(e *fault.Error, what, todo string) Finding {
	return Finding{Service: e.Service, Check: what, State: Failed, Found: saidBy(e), Code: e.Code(), Todo: todo, Fatal: true}
}

// failed is the finding of a service that does not answer as it should. sort knows its own
// answers; todo is the advice where there is no better one for what is wrong.
func failed(service string, err error, sort func(error) (fault.Kind, bool), todo string, better map[fault.Kind]string) Finding {
	e := blamed(service, err, sort)
	return bad(e, "answers", cmp.Or(better[e.Kind], todo))
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

// Worst is the state of the whole.
func Worst(all []Finding) string {
	for _, state := range []string{Failed, Warning} {
		if slices.ContainsFunc(all, func(f Finding) bool { return f.State == state }) {
			return state
		}
	}
	return OK
}

func skewText(d time.Duration) string {
	word := "behind"
	if d < 0 {
		word = "ahead of"
	}
	return fmt.Sprintf("the clock of this host is %v %s", d.Abs().Round(time.Second), word)
}

// Buckets in which the rights are tried by writing.
const (
	WriteNothing = ""
	WriteHot     = "hot" // those that charge by the day
	WriteAll     = "all" // and those that charge for months, whatever becomes of an object
)

// Name names the service and the check, safe for a terminal.
func (f Finding) Name() string { return human.Line(f.Service + ", " + f.Check) }

// Group are a finding, with the names of others about which the same is to be done.
type Group struct {
	Finding

	Also []string
}

// Alike groups some of the findings, and counts them.
func Alike(all []Finding, some func(Finding) bool) (groups []Group, n int) {
	at := map[[2]string]int{}
	for _, f := range all {
		if !some(f) {
			continue
		}
		n++
		key := [2]string{f.Code, cmp.Or(f.cause, f.Todo)}
		if i, ok := at[key]; ok {
			groups[i].Also = append(groups[i].Also, f.Name())
			continue
		}
		at[key] = len(groups)
		groups = append(groups, Group{Finding: f})
	}
	return groups, n
}
