package claim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// simPool claims for its free slots, as the runner's pools do.
type simPool struct {
	*simStore

	engine  *Engine
	process int
	id      int
	free    chan int
	busy    sync.WaitGroup
}

func (p *simPool) actor(slot int) int { return 512 + p.process*64 + p.id*16 + slot }

// run claims until ctx is done. The first two pools of a process take the same,
// and so share their claims.
func (p *simPool) run(ctx context.Context) {
	const itself = 15
	defer p.busy.Wait()
	if p.sleep(ctx, time.Duration(p.roll(40, int64(p.process), int64(p.id))%uint64(time.Second)), p.actor(itself)) != nil {
		return
	}
	look, stop := p.engine.Wakes(ctx, p.filter(1))
	defer stop()
	for ctx.Err() == nil {
		var slots []int
		for len(p.free) > 0 {
			slots = append(slots, <-p.free)
		}
		slices.Sort(slots)
		got := p.claim(ctx, len(slots))
		for k, slot := range slots {
			if k < len(got) {
				p.busy.Go(func() {
					for item := &got[k]; item != nil; {
						item = p.work(ctx, *item, slot)
					}
					p.free <- slot
				})
			} else {
				p.free <- slot
			}
		}
		if len(got) < len(slots) || len(slots) == 0 {
			select {
			case <-look.C:
			case <-ctx.Done():
			}
		}
		p.sleep(ctx, 0, p.actor(itself)) //nolint:errcheck // the loop looks
	}
}

// filter is what the pool takes.
func (p *simPool) filter(n int) Filter {
	f := Filter{MinSize: int64(max(0, p.id-1)) * 100}
	for k, stage := range simStages() {
		f.Stages = append(f.Stages, Want{stage, 1 + int(p.roll(41, int64(p.now()), int64(k))%uint64(n))})
	}
	return f
}

// claim asks for n items, sometimes with little patience.
func (p *simPool) claim(ctx context.Context, n int) []Item {
	if n == 0 {
		return nil
	}
	f := p.filter(n)
	if r := p.roll(42, int64(p.now())); r%10 == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r>>8%uint64(6*time.Millisecond)))
		defer cancel()
	}
	got, err := p.engine.Claim(ctx, f, n)
	if len(got) > n {
		p.violation("engine %d: %d items were claimed for %d slots", p.process, len(got), n)
	}
	by := map[registry.Stage]int{}
	for _, item := range got {
		by[item.Stage]++
		p.takes(item)
	}
	for _, w := range f.Stages {
		if by[w.Stage] > w.Most {
			p.violation("engine %d: %d items of %s were claimed, not %d", p.process, by[w.Stage], w.Stage, w.Most)
		}
	}
	if len(got) > 0 || err != nil {
		p.say("engine %d, pool %d: claimed %v, %v", p.process, p.id, simIDs(got), err)
	}
	return got
}

func simIDs(items []Item) (ids [][2]int64) {
	for _, i := range items {
		ids = append(ids, [2]int64{i.ID, i.Token})
	}
	return ids
}

func (p *simPool) takes(item Item) {
	p.watch.Lock()
	defer p.watch.Unlock()
	p.taken[[2]int64{item.ID, item.Token}]++
}

// work holds an item for a while and reports what came of it. It returns the item if it is
// carried on.
func (p *simPool) work(ctx context.Context, item Item, slot int) *Item {
	p.sleep(context.Background(), 0, p.actor(slot))
	h := p.engine.Hold(ctx, item)
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watchLease(h, over) })
	defer watcher.Wait()
	defer close(over)

	roll := func(what int64) uint64 { return p.roll(what, item.ID, item.Token) }
	takes := time.Duration(roll(50) % uint64(2*time.Second))
	if roll(51)%8 == 0 && !p.calm() {
		takes = time.Duration(roll(52) % uint64(90*time.Second))
	}
	err := p.sleep(h.Context(), takes/2, p.actor(slot))
	if err == nil && roll(53)%2 == 0 {
		if checked := h.Check(h.Context()); checked == nil {
			p.checked(h)
		}
		p.sleep(context.Background(), 0, p.actor(slot))
	}
	p.sleep(h.Context(), takes/2, p.actor(slot)) //nolint:errcheck // the verdict knows
	p.sleep(context.Background(), 0, p.actor(slot))
	if cause := context.Cause(h.Context()); errors.Is(cause, ErrLost) {
		p.say("item %d, token %d: dropped: %v", item.ID, item.Token, cause)
		if roll(54)%2 == 0 {
			h.Abandon()
			return nil
		}
	}
	return p.end(ctx, h, slot, roll(55))
}

// end settles, again and again while the store does not answer. It carries some items on.
func (p *simPool) end(ctx context.Context, h *Hold, slot int, roll uint64) (carried *Item) {
	item := h.Item
	stages := simStages()
	next := slices.Index(stages, item.Stage) + 1
	var done Done
	if next < len(stages) {
		done.Next = stages[next]
	}
	var result error
	switch roll % 12 {
	case 0:
		result = Transient("trouble", errors.New("trouble"))
	case 1:
		result = Snooze(time.Duration(roll>>8%uint64(3*time.Second)), "later")
	case 2:
		result = Release("stopping")
	case 3:
		result = Fatal("refused", "the store refuses this")
	}
	if ctx.Err() != nil {
		result = Release("the simulation ends")
	}
	settled, cancel := context.WithTimeout(context.Background(), h.Lease()-time.Duration(1+p.actor(slot))*time.Microsecond-1)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		var err error
		if result == nil && done.Next != "" && roll>>16%2 == 0 {
			carried, err = h.Carry(settled, done)
		} else {
			err = h.Settle(settled, done, result)
		}
		p.say("item %d, token %d at %s: settled as %v: %v", item.ID, item.Token, item.Stage, result, err)
		p.settled(item, result, err)
		if refused(err) {
			result = Transient("trouble", errors.New("trouble"))
		}
		if err == nil || errors.Is(err, ErrLost) || p.sleep(settled, wait, p.actor(slot)) != nil {
			break
		}
	}
	h.Abandon()
	p.sleep(context.Background(), 0, p.actor(slot))
	if carried != nil {
		p.takes(*carried)
		p.carried.Add(1)
	}
	return carried
}

// settled compares an answer with what the store has.
func (p *simPool) settled(item Item, result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	landed := p.landed[[2]int64{item.ID, item.Token}]
	switch {
	case err == nil && landed == "":
		p.violation("item %d, token %d: settled, and the store does not know", item.ID, item.Token)
	case errors.Is(err, ErrLost) && p.items[item.ID].token == item.Token:
		p.violation("item %d, token %d: told to be lost, and is not", item.ID, item.Token)
	case refused(err) && Code(result) != "refused":
		p.violation("item %d, token %d: refused for what another did", item.ID, item.Token)
	}
}

// watchLease waits for the lease of a hold to end in the store. Its work has to
// be stopped before that.
func (p *simPool) watchLease(h *Hold, over chan struct{}) {
	for {
		p.mu.Lock()
		i := p.items[h.Item.ID]
		end, ours := i.leaseEnd, i.token == h.Item.Token
		p.mu.Unlock()
		if !ours {
			return
		}
		if left := end - p.now(); left > 0 {
			timer := time.NewTimer(left)
			select {
			case <-timer.C:
				continue
			case <-over:
				timer.Stop()
				return
			}
		}
		if h.Context().Err() == nil {
			p.violation("engine %d works on item %d, token %d, whose lease has ended", p.process, h.Item.ID, h.Item.Token)
		}
		return
	}
}

// checked is called when a process has learnt that it still holds an item.
func (p *simPool) checked(h *Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.items[h.Item.ID]; i.token == h.Item.Token && i.leaseEnd < p.now() {
		p.violation("engine %d was told that it holds item %d, and its lease has ended", p.process, h.Item.ID)
	}
}
