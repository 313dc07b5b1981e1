package claim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// wake is how waiting pools learn of work, and claims of where it is. A signal
// says "look again", not what there is.
type wake struct {
	toTell chan struct{}

	mu      sync.Mutex
	untold  map[cell]position
	waiting map[chan struct{}]bool
	hints   []*hints
}

func newWake() *wake {
	return &wake{toTell: make(chan struct{}, 1), untold: map[cell]position{}, waiting: map[chan struct{}]bool{}}
}

// tell adds the hints of a filter to those that hear where work was put.
func (w *wake) tell(h *hints) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints = append(w.hints, h)
}

// untell forgets all hints.
func (w *wake) untell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints = nil
}

// place is where an item is claimed.
type place struct {
	cell cell
	at   position
}

// put says where this process made items claimable. Those of one statement are
// put at once, so that they are told of at once too.
func (w *wake) put(places []place) {
	if len(places) == 0 {
		return
	}
	w.heard(places...)
	w.mu.Lock()
	for _, p := range places {
		if best, ok := w.untold[p.cell]; !ok || p.at.before(best) {
			w.untold[p.cell] = p.at
		}
	}
	w.mu.Unlock()
	select {
	case w.toTell <- struct{}{}:
	default:
	}
	w.ring()
}

// heard makes all claims see what somebody put somewhere.
func (w *wake) heard(places ...place) {
	w.mu.Lock()
	hints := w.hints
	w.mu.Unlock()
	for _, h := range hints {
		h.lower(places...)
	}
}

// forget makes the next claims of a stage begin at the beginning; of all stages
// if it is "".
func (w *wake) forget(stage string) {
	w.mu.Lock()
	hints := w.hints
	w.mu.Unlock()
	for _, h := range hints {
		h.forget(stage)
	}
}

// notice is what other processes are told: this one's name, and a line for each
// cell with the best place that something was put at.
func (w *wake) notice(worker string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	b.WriteString(worker)
	for c, p := range w.untold {
		fmt.Fprintf(&b, "\n%s\t%d\t%d\t%d", c.stage, c.band, p.priority, p.turn)
	}
	clear(w.untold)
	return b.String()
}

// hear takes a notice of another process or of a trigger. A line that names a
// stage alone stands for anywhere in it.
func (w *wake) hear(worker, notice string) {
	from, lines, _ := strings.Cut(notice, "\n")
	if from == worker {
		return // it knows already
	}
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		stage, where, exact := strings.Cut(line, "\t")
		c, p := cell{stage: stage}, position{}
		if exact {
			n, err := fmt.Sscanf(where, "%d\t%d\t%d", &c.band, &p.priority, &p.turn)
			exact = err == nil && n == 3
		}
		if exact {
			w.heard(place{c, p})
		} else {
			w.forget(stage)
		}
	}
	w.ring()
}

func (w *wake) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Wakes returns a channel that gets a value when there may be new work: on a
// notification, and at about every poll while anything is due. Call stop when done
// with it.
func (e *Engine) Wakes(ctx context.Context) (look <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	e.wake.mu.Lock()
	e.wake.waiting[c] = true
	e.wake.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	polling.Go(func() { e.poll(ctx) })
	return c, func() {
		e.wake.mu.Lock()
		delete(e.wake.waiting, c)
		e.wake.mu.Unlock()
		cancel()
		polling.Wait()
	}
}

// announceEvery bounds how often a process tells others of new work.
const announceEvery = 10 * time.Millisecond

// announce tells other processes, outside of any item's transaction and at most
// once in announceEvery, where there is new work.
func (e *Engine) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake.toTell:
		}
		call, cancel := context.WithTimeout(ctx, statementTime)
		err := e.store.announce(call, e.wake.notice(e.self.worker))
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "others were not told of work, they will find it", "err", err)
		}
		if !pause(ctx, announceEvery) {
			return
		}
	}
}

// listen hears of work that other processes made, and of changed settings. When
// its connection breaks, it is opened anew, and the poll finds meanwhile what was
// not heard.
func (e *Engine) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.store.listen(ctx, func(channel, payload string) {
			switch channel {
			case workChannel:
				e.wake.hear(e.self.worker, payload)
			case settingsChannel:
				select {
				case e.changed <- struct{}{}:
				default: // it will look anyway
				}
			default: // what came before we listened was not heard
				e.wake.forget("")
				e.wake.ring()
			}
		})
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "not listening for work, will connect again", "err", err)
		}
		pause(ctx, time.Second)
	}
}
