package pipeline

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/retry"
)

const (
	firstHeld   = time.Second      // how long an item waits whose service failed, at first
	longestHeld = 20 * time.Second // and at most
	aloneHeld   = 10 * time.Second // and at least, if the service works for others
	mostItems   = 10_000           // that are remembered

	heldTooOften = 200 // times that this process holds an item for the database
)

// breakers has the circuit breaker of each service that the work of this process needs. From
// the engine they learn which services are held for all processes, because most see them fail
// or a person holds them.
type breakers struct {
	deps   Deps
	steps  []Step
	engine serviceBoard
	log    *slog.Logger

	mu      sync.Mutex
	byName  map[string]*breaker
	items   map[int64]int      // how often a service failed an item in this process
	avoided map[string]avoided // by step and storage option
	changed chan struct{}
}

// avoided is work that this process leaves to others for a while, since its settings do not fit
// it. Otherwise it would be the first to claim the item again each time.
type avoided struct {
	scope claim.Scope
	until time.Time
}

// serviceBoard is where processes tell each other of services: the engine.
type serviceBoard interface {
	ServiceHolds() []claim.ServiceHold
	Report(ctx context.Context, r claim.ServiceReport) error
	Wake()
}

func newBreakers(d Deps, steps []Step, engine serviceBoard, log *slog.Logger) *breakers {
	g := &breakers{
		deps: d, steps: steps, engine: engine, log: log,
		byName: map[string]*breaker{}, items: map[int64]int{}, avoided: map[string]avoided{}, changed: make(chan struct{}, 1),
	}
	for _, one := range servicesOf(d, steps) {
		g.byName[one.service] = one
	}
	return g
}

// run probes failing services, and reports to the other processes, until ctx is done.
func (g *breakers) run(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		g.step(ctx, &probes)
		g.report(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-g.changed:
		}
	}
}

// step probes the services that are due and reports those that work again.
func (g *breakers) step(ctx context.Context, probes *sync.WaitGroup) {
	holds := g.engine.ServiceHolds()
	g.mu.Lock()
	defer g.mu.Unlock()
	now, opened := time.Now(), false
	for _, one := range g.byName {
		if i := slices.IndexFunc(holds, func(h claim.ServiceHold) bool { return h.Service == one.service }); i >= 0 {
			one.learn(now, holds[i])
		}
		one.tried(now)
		opened = opened || one.unheard && one.state != claim.ServiceFailing
		one.unheard = false
		one.log(ctx, g.log, now)
		if one.state != claim.ServiceFailing || one.probe == nil || one.elsewhere != "" || one.probing || now.Before(one.next) {
			continue
		}
		one.probing = true
		probes.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, probeTime)
			defer cancel()
			err := one.probe(bounded)
			if ctx.Err() != nil {
				return
			}
			g.mu.Lock()
			one.probed(time.Now(), err)
			g.mu.Unlock()
			wake.Signal(g.changed)
		})
	}
	if opened {
		g.engine.Wake()
	}
}

// learn takes what is known of the service beyond this process.
func (b *breaker) learn(now time.Time, h claim.ServiceHold) {
	if h.Released.After(b.released) {
		b.released = h.Released
		if b.state == claim.ServiceFailing && b.probe != nil && b.elsewhere == "" {
			b.try(now)
		}
	}
	b.agree(now, h.Place)
}

// report writes changes to the database. If that fails, they are reported later; until then
// the other processes act on what they see themselves.
func (g *breakers) report(ctx context.Context) {
	var reports []claim.ServiceReport
	g.mu.Lock()
	for _, one := range g.byName {
		if one.unsaid {
			reports = append(reports, one.report(time.Now()))
			one.unsaid, one.refusal = false, nil
		}
	}
	g.mu.Unlock()
	for i, r := range reports {
		bounded, cancel := context.WithTimeout(ctx, probeTime)
		err := g.engine.Report(bounded, r)
		cancel()
		if err == nil {
			continue
		}
		g.log.DebugContext(ctx, "cannot report the state of services; retrying", "service", r.Service, "err", err)
		g.mu.Lock()
		for _, r := range reports[i:] {
			g.byName[r.Service].unsaid = true
			g.byName[r.Service].refusal = cmp.Or(g.byName[r.Service].refusal, r.Refusal)
		}
		g.mu.Unlock()
		retry.Pause(ctx, time.Second)
		return
	}
}

// without is the work that may not be claimed now: it needs a service that this process sees
// fail, or that is held for all. If a service is being tried, only an item on trial is claimed;
// for that, trial omits the services whose trial is reserved.
func (g *breakers) without(trial bool) (scopes []claim.Scope) {
	holds := g.engine.ServiceHolds()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.byName {
		if one.state == claim.ServiceFailing || one.state == claim.ServiceTrying && (!trial || one.trial != reserved) {
			scopes = append(scopes, one.scopes...)
		}
	}
	for _, h := range holds {
		own := g.byName[h.Service]
		if h.Held && (h.ByPerson || own == nil || own.state == claim.ServiceOK) {
			scopes = append(scopes, h.Scopes...)
		}
	}
	for key, l := range g.avoided {
		if time.Now().After(l.until) {
			delete(g.avoided, key)
			continue
		}
		scopes = append(scopes, l.scope)
	}
	slices.SortFunc(scopes, compareScopes) // the same holds make the same filter
	return scopes
}

func compareScopes(a, b claim.Scope) int {
	return cmp.Or(slices.Compare(a.Steps, b.Steps), slices.Compare(a.StorageOptions, b.StorageOptions), slices.Compare(a.Institutions, b.Institutions))
}

// reserved is the item of a trial that is being claimed.
const reserved = -1

// tryOne has one item claimed that needs a service which is being tried, if there
// is such a service without an item on trial. claim is called with what to claim
// within, until it returns an item.
func (g *breakers) tryOne(claimOne func(within claim.Scope) []claim.Item) []claim.Item {
	var trying []*breaker
	g.mu.Lock()
	for _, one := range g.byName {
		if one.state == claim.ServiceTrying && one.trial == 0 {
			one.trial = reserved
			trying = append(trying, one)
		}
	}
	g.mu.Unlock()
	var got []claim.Item
	for _, one := range trying {
		for _, scope := range one.scopes {
			if len(got) == 0 {
				got = claimOne(scope)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range trying {
		if one.trial != reserved {
			continue // it failed since
		}
		one.trial = 0
		if len(got) > 0 && one.needs(got[0]) {
			one.trial, one.next = got[0].ID, time.Now().Add(trialTime)
		}
	}
	return got
}

// needs tells whether an item needs the service at its stage.
func (b *breaker) needs(item claim.Item) bool {
	return slices.ContainsFunc(b.scopes, func(s claim.Scope) bool { return s.Covers(item) })
}

// judge says what a result means for the item: if a service failed, the item is held. It also
// tells the breakers: that a service works is shown by what has used it, and by nothing else.
func (g *breakers) judge(item claim.Item, result error, answers *fault.Answers) error {
	f := claim.FaultIn(result)
	misled, doubted := claim.InDoubt(result)
	g.mu.Lock()
	defer wake.Signal(g.changed)
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case unjudged(result), doubted && misled == "":
		g.untry(item, now)
		return result
	case doubted:
		g.untry(item, now)
		f = &fault.Error{Service: misled, Kind: fault.WrongAnswer, Said: claim.Code(result), Err: result}
		if one := g.breakerOf(item, misled); one != nil {
			one.fault(now, item, f)
		}
		return result
	case f == nil:
		delete(g.items, item.ID)
		for _, one := range g.byName {
			if one.needs(item) && answers.Has(one.service) {
				one.ok(now, item)
			}
		}
		g.untry(item, now) // of a service that it did not use
		return result
	}
	if f.Service == fault.Settings {
		g.avoid(item, now)
	}
	one := g.breakerOf(item, f.Service)
	onTrial := one != nil && one.trial == item.ID // after a probe that succeeded: it may be this object alone
	g.untry(item, now)
	if one != nil && one.fault(now, item, f) && !onTrial {
		return claim.Held(f, firstHeld, result)
	}
	return g.hold(item, one, onTrial, f, now, result)
}

// unjudged tells whether a result says nothing about any service: the work was
// stopped before it came to an end.
func unjudged(result error) bool {
	switch claim.Code(result) {
	case "lost", "released", "timeout":
		return true
	}
	return false
}

// avoid leaves the items of a step and storage option to other processes, for longer
// than any of them is held.
func (g *breakers) avoid(item claim.Item, now time.Time) {
	l := avoided{claim.Scope{Steps: []string{item.Step()}}, now.Add(2 * longestHeld)}
	if item.StorageOption != "" {
		l.scope.StorageOptions = []string{item.StorageOption}
	}
	g.avoided[item.Step()+" "+item.StorageOption] = l
}

// untry ends the trial of an item that ended in no verdict on some services.
func (g *breakers) untry(item claim.Item, now time.Time) {
	for _, one := range g.byName {
		if one.trial == item.ID {
			one.trial, one.next = 0, now.Add(idleTrial)
		}
	}
}

// breakerOf returns the breaker of a service; nil for the database, without which nothing
// can be claimed anyway.
func (g *breakers) breakerOf(item claim.Item, service string) *breaker {
	one := g.byName[service]
	if one == nil && strings.HasPrefix(service, fault.Bucket("")) {
		one = bucketOf(g.deps, g.steps, item, service)
		g.byName[service] = one
	}
	return one
}

// hold holds an item whose service works for other items, longer each time. If the service fails
// this item alone again and again, a person has to decide.
func (g *breakers) hold(item claim.Item, one *breaker, onTrial bool, f *fault.Error, now time.Time, result error) error {
	if len(g.items) >= mostItems {
		clear(g.items)
	}
	g.items[item.ID]++
	n := g.items[item.ID]
	wait := min(firstHeld<<min(n-1, 10), longestHeld)
	switch {
	case one == nil && n >= heldTooOften: // the database, which has taken the ends of its attempts
		return claim.Suspend(f.Code(), result.Error())
	case one == nil || one.failsOthers(item):
		return claim.Held(f, wait, result)
	}
	text := result.Error() + ". " + serviceOf(f) + " answers, and fails this item alone."
	suspended := claim.Suspend("fails-alone", text)
	if f.Kind == fault.Denied {
		suspended = claim.Suspend(f.Code(), text)
	}
	alone := one.alone(now, item, onTrial)
	if n > 1 && alone.Served > 0 && alone.Served < window {
		wait = max(wait, aloneHeld)
	}
	return claim.HeldAlone(f, alone, wait, result, suspended)
}

// serviceOf names a service for people.
func serviceOf(f *fault.Error) string {
	if name, ok := strings.CutPrefix(f.Service, fault.Bucket("")); ok {
		return "The bucket " + name
	}
	return "The service " + f.Service
}
