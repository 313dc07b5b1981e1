package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim/clock"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/line"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// simStore is a database in memory with a clock of its own. What a call comes to
// is decided by the seed: how long it takes, whether it fails, and whether what
// failed was done all the same.
type simStore struct {
	*sim

	mu        sync.Mutex
	items     []*simItem
	listeners map[int]chan [2]string // by engine
	asked     map[[2]int]int         // calls by engine and kind
	draining  map[string]bool
	stages    []stages.Settings
	landed    map[[2]int64]string // how claims ended, by item and token
}

type simItem struct {
	id, token, entered int64
	stage              registry.Stage
	status             string
	at                 cursor.Position
	band               int16
	attempt            int
	runAt, leaseEnd    time.Duration // by the store's clock
	worker             string
}

// simConn is the store as one engine reaches it.
type simConn struct {
	*simStore

	engine int
}

// Kinds of calls, each with faults of its own.
const (
	callRules = iota
	callClaim
	callSettle
	callSentBack
	callRenew
	callLeave
	callReap
	callTidy
	callOverdue
	callServe
	callAnnounce
	callListen
	callBehind
)

var errSim = errors.New("connection lost")

// fate is what becomes of a call.
type fate struct {
	before, after time.Duration // the effect comes between the two
	fails, done   bool          // it is reported as failed; it takes effect
	hangs         bool          // no answer comes until the caller gives up
}

func (s *sim) fate(engine, kind, n int) fate {
	r := s.roll(int64(engine), int64(kind), int64(n))
	f := fate{before: time.Duration(r % uint64(2*time.Millisecond)), after: time.Duration(r >> 20 % uint64(2*time.Millisecond)), done: true}
	if s.calm() {
		return f
	}
	if o := s.outage(engine, kind); o != nil {
		return fate{before: f.before, fails: true, hangs: o.hangs, done: o.hangs && r>>40%4 == 0}
	}
	switch r >> 40 % 1000 * 100 / uint64(s.trouble) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		f.before = time.Duration(r >> 8 % uint64(15*time.Second)) // longer than anyone waits, perhaps
	case 8, 9, 10, 11:
		f.after = time.Duration(r >> 8 % uint64(15*time.Second))
	case 12, 13, 14, 15, 16, 17, 18, 19:
		f.fails, f.done = true, false
	case 20, 21, 22, 23, 24, 25, 26, 27:
		f.fails = true // the answer is lost
	}
	return f
}

// call lets a call meet its fate. A call that its caller has given up on may
// still take effect.
func (c *simConn) call(ctx context.Context, kind int, effect func(now time.Duration)) error {
	c.mu.Lock()
	n := c.asked[[2]int{c.engine, kind}]
	c.asked[[2]int{c.engine, kind}]++
	c.mu.Unlock()
	f := c.fate(c.engine, kind, n)
	actor := 1 + c.engine*128 + kind*8 + n%8
	do := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		effect(c.now())
	}
	if f.hangs {
		<-ctx.Done()
		if f.done {
			do()
		}
		return ctx.Err()
	}
	begun := c.now()
	if err := c.sleep(ctx, f.before, actor); err != nil {
		if f.done { // the server goes on with it
			c.later.Go(func() {
				c.sleep(context.Background(), begun+f.before-c.now(), actor)
				do()
			})
		}
		return err
	}
	if f.done {
		do()
	}
	if err := c.sleep(ctx, f.after, actor); err != nil {
		return err
	}
	if f.fails {
		return errSim
	}
	return nil
}

func (c *simConn) rules(ctx context.Context) (rules, error) {
	var known []stages.Settings // a local variable, here and below: the effect may come after the call
	if err := c.call(ctx, callRules, func(time.Duration) { known = slices.Clone(c.stages) }); err != nil {
		return rules{}, err
	}
	return rules{stages: known, bands: []stages.Band{{Band: 0, MinSize: 0}, {Band: 1, MinSize: 100}}}, nil
}

func (c *simConn) claim(ctx context.Context, takes []take) ([][]Item, error) {
	got := make([][]Item, len(takes))
	err := c.call(ctx, callClaim, func(now time.Duration) {
		for i, t := range takes {
			got[i] = c.take(t, now)
		}
	})
	if err != nil {
		return nil, err
	}
	c.granted(slices.Concat(got...))
	return got, nil
}

func (c *simConn) take(t take, now time.Duration) (got []Item) {
	if t.n > c.slots() {
		c.violation("a claim of %d items for %d slots", t.n, c.slots())
	}
	left := map[registry.Stage]int{}
	for _, p := range t.scans {
		left[p.Stage] = p.Most
	}
	for _, p := range t.scans {
		for _, i := range c.line(p, now) {
			if len(got) == t.n || left[p.Stage] == 0 {
				break
			}
			left[p.Stage]--
			got = append(got, c.start(i, t.who.worker, t.over, now))
		}
	}
	return got
}

// line is what a probe finds.
func (s *simStore) line(p cursor.Scan, now time.Duration) (list []*simItem) {
	for _, i := range s.items {
		if i.status == "Pending" && i.stage == p.Stage && i.band == p.Band && i.runAt <= now && !i.at.Before(p.From) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b *simItem) int {
		return cmp.Or(cmp.Compare(a.at.Priority, b.at.Priority), cmp.Compare(a.at.VirtualStart, b.at.VirtualStart), cmp.Compare(a.id, b.id))
	})
	return list
}

func (s *simStore) start(i *simItem, worker string, over stages.LeaseTimes, now time.Duration) Item {
	lease, ok := over[string(i.stage)]
	if !ok {
		lease = s.stages[0].Lease
	}
	i.status, i.worker, i.leaseEnd = "Started", worker, now+lease
	i.token++
	i.attempt++
	return Item{ID: i.id, Token: i.token, Entered: i.entered, Action: "Ingest", Stage: i.stage, Attempt: i.attempt, Band: i.band, At: i.at, Lease: lease}
}

func (c *simConn) settle(ctx context.Context, moves []move, who identity, over stages.LeaseTimes) ([]landing, error) {
	if len(moves) > 256 {
		c.violation("%d moves in one statement", len(moves))
	}
	if slices.ContainsFunc(moves, func(m move) bool { return m.Code == "refused" }) {
		return nil, &pgconn.PgError{Code: "23514"}
	}
	landed := slices.Repeat([]landing{{err: ErrLost}}, len(moves))
	var begun []Item
	err := c.call(ctx, callSettle, func(now time.Duration) {
		for k, m := range moves {
			i := c.items[m.ID]
			if i.token != m.Token {
				continue
			}
			landed[k] = landing{}
			c.landed[[2]int64{m.ID, m.Token}] = m.Ended
			c.leave(i, string(m.Status), now+m.Delay)
			if i.stage != m.Stage {
				i.stage, i.entered = m.Stage, i.token
			}
			i.attempt = m.Attempt
			if m.carried && c.roll(60, m.ID, m.Token)%4 > 0 { // else the stage is paused
				item := c.start(i, who.worker, over, now)
				landed[k].lease = item.Lease
				begun = append(begun, item)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	c.granted(begun)
	return landed, nil
}

func (s *simStore) leave(i *simItem, status string, runAt time.Duration) {
	i.token++
	i.status, i.worker, i.leaseEnd, i.runAt = status, "", 0, runAt
}

func (c *simConn) Clamp(context.Context, bool) (int, error) { return 0, nil }

func (c *simConn) uncount(context.Context, []int64, []int64) error { return nil }

func (c *simConn) Time(context.Context) (time.Time, error) { return time.Now(), nil }

func (c *simConn) failures(_ context.Context, item Item) (int, error) { return item.Attempt - 1, nil }

func (c *simConn) sentBack(ctx context.Context, _ int64) (int, error) {
	return 0, c.call(ctx, callSentBack, func(time.Duration) {})
}

func (c *simConn) witnesses(context.Context, Item, string, string, string) (witnesses, error) {
	return witnesses{}, nil
}

func (c *simConn) reportService(context.Context, string, ServiceReport) error { return nil }

func (c *simConn) renew(ctx context.Context, w worker, _ time.Duration, held []heldLease, _ []givenUp) (renewed, error) {
	got := renewed{kept: map[int64]bool{}}
	err := c.call(ctx, callRenew, func(now time.Duration) {
		for _, h := range held {
			if i := c.items[h.item]; i.token == h.token {
				i.leaseEnd = max(i.leaseEnd, now+h.lease)
				got.kept[h.item] = true
			}
		}
		got.draining = c.draining[w.worker]
	})
	if err != nil {
		return renewed{}, err
	}
	return got, nil
}

func (c *simConn) leaveWorker(ctx context.Context) error {
	return c.call(ctx, callLeave, func(time.Duration) {})
}

func (c *simConn) reap(ctx context.Context, most int, r round) ([]reaped, bool, error) {
	var list []reaped
	err := c.call(ctx, callReap, func(now time.Duration) {
		for _, i := range c.items {
			if i.status == "Started" && i.leaseEnd < now && i.leaseEnd >= now-r.since && len(list) < most {
				c.landed[[2]int64{i.id, i.token}] = "lease expired"
				c.leave(i, "Pending", now+time.Second)
				list = append(list, reaped{id: i.id, place: cursor.Place{Partition: cursor.Partition{Stage: i.stage, Band: i.band}, Position: i.at}})
			}
		}
	})
	if err != nil {
		return nil, false, err
	}
	return list, false, nil
}

func (c *simConn) Announce(ctx context.Context, payload string) error {
	return c.call(ctx, callAnnounce, func(time.Duration) { c.tell(line.Work, payload) })
}

// tell sends a notice to all that listen; one whose queue is full misses it.
func (s *simStore) tell(channel, payload string) {
	for _, l := range s.listeners {
		select {
		case l <- [2]string{channel, payload}:
		default:
		}
	}
}

func (c *simConn) Listen(ctx context.Context, e line.Ears) error {
	ears := make(chan [2]string, 16)
	if err := c.call(ctx, callListen, func(time.Duration) { c.listeners[c.engine] = ears }); err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, c.engine)
	}()
	e.Begun()
	ctx, cancel := context.WithTimeout(ctx, c.lasts(c.engine))
	defer cancel()
	for {
		select {
		case n := <-ears:
			e.Heard(n[0], n[1])
		case <-ctx.Done():
			return errSim
		}
	}
}

func (c *simConn) peek(context.Context, Filter, []cursor.Scan, int) ([]int64, error) { return nil, nil }

func (c *simConn) reapDue(context.Context, worker, time.Duration) ([]worker, bool, error) {
	return nil, true, nil
}

func (c *simConn) tidy(ctx context.Context) error {
	return c.call(ctx, callTidy, func(time.Duration) {})
}

func (c *simConn) archive(context.Context, time.Duration, int) (int, error) { return 0, nil }

func (c *simConn) Due(context.Context) (list []cursor.Place, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stages {
		for band := range int16(2) {
			list = append(list, cursor.Place{Partition: cursor.Partition{Stage: s.Stage, Band: band}, Position: cursor.End()})
		}
	}
	return list, nil
}

func (c *simConn) overdue(ctx context.Context, _ registry.Action, _ []cursor.Scan) (map[cursor.Partition][]int16, error) {
	return nil, c.call(ctx, callOverdue, func(time.Duration) {})
}

func (c *simConn) behind(ctx context.Context, _ Filter, scans []cursor.Scan) (map[cursor.Partition]cursor.Position, error) {
	found := map[cursor.Partition]cursor.Position{}
	err := c.call(ctx, callBehind, func(now time.Duration) {
		for _, p := range scans {
			all := c.line(cursor.Scan{Partition: p.Partition, From: cursor.Beginning()}, now)
			if len(all) > 0 && all[0].at.Before(p.From) {
				found[p.Partition] = all[0].at
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (c *simConn) serve(ctx context.Context, _ map[int16]int64) error {
	return c.call(ctx, callServe, func(time.Duration) {})
}

// store is all that the engine needs of the database.
//
//nolint:interfacebloat // the parts of the engine have interfaces of their own, and one simulation has all
type store interface {
	ruleStore
	endStore
	serviceStore
	leaseStore
	scanStore
	noticeStore
	reapStore
	clock.Store
	upkeepStore
}

// on is a store as the parts of the engine have it.
func on(s store) stores { return stores{s, s, s, s, s, s, s, s, s} }

// asStore makes a simConn a store: leave has another meaning inside.
type asStore struct{ *simConn }

func (a asStore) leave(ctx context.Context, _ string) error { return a.leaveWorker(ctx) }
