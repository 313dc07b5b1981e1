package pull

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"
)

// waitlists are the calls that wait for messages: one list for each receiver of a queue,
// served in order. New messages wake as many calls of a list as there are messages,
// and a call that got one wakes the next, since there may be more. So a thousand calls
// that wait under one name query the database once for a message, and never poll.
type waitlists struct {
	mu      sync.Mutex
	of      map[string]map[listKey]*waitlist // by queue
	waiting int
}

// listKey is the same for calls that are interchangeable.
type listKey struct {
	queue, receiver string
	start           int64
	retryNum        int
	failTimeout     time.Duration
}

type waitlist struct {
	waiters list.List // of *waiter
	due     time.Time // when a message may be redelivered to the first; zero: unknown
}

// waiter is a call that waits, on a list for each of its queues.
type waiter struct {
	wake   chan struct{} // gets a value when a fetch may bring something
	places []*list.Element
	keys   []listKey
}

// join puts a call at the end of its lists.
func (l *waitlists) join(receiver string, wants []wanted) *waiter {
	w := &waiter{wake: make(chan struct{}, 1), places: make([]*list.Element, len(wants)), keys: make([]listKey, len(wants))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	for i, want := range wants {
		k := listKey{want.Queue, receiver, afterFirst(want.Start), want.RetryNum, want.FailTimeout}
		if l.of[k.queue] == nil {
			l.of[k.queue] = map[listKey]*waitlist{}
		}
		if l.of[k.queue][k] == nil {
			l.of[k.queue][k] = &waitlist{}
		}
		w.keys[i], w.places[i] = k, l.of[k.queue][k].waiters.PushBack(w)
	}
	return w
}

// leave takes a call off its lists. If it was given something, or was woken and did not
// fetch, the next of each list is woken in its place; if it was the first, the next
// takes over its redeliveries.
func (l *waitlists) leave(w *waiter, given bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	select {
	case <-w.wake:
		given = true
	default:
	}
	for i, k := range w.keys {
		at := l.of[k.queue][k]
		first := at.waiters.Front() == w.places[i]
		at.waiters.Remove(w.places[i])
		next := at.waiters.Front()
		switch {
		case next == nil:
			delete(l.of[k.queue], k)
			if len(l.of[k.queue]) == 0 {
				delete(l.of, k.queue)
			}
		case given || first && !at.due.IsZero():
			wake(next)
		}
	}
}

func wake(e *list.Element) {
	w, _ := e.Value.(*waiter)
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// wakeSome wakes n calls of each list of a queue, to which n messages have come.
func (l *waitlists) wakeSome(queue string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.of[queue] {
		for e, i := at.waiters.Front(), 0; e != nil && i < n; e, i = e.Next(), i+1 {
			wake(e)
		}
	}
}

// wakeFirst wakes the first call of every list: messages may have come to any.
func (l *waitlists) wakeFirst() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.of {
		for _, at := range of {
			wake(at.waiters.Front())
		}
	}
}

// queues returns the queues for which calls wait.
func (l *waitlists) queues() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.of))
}

// redeliveries notes after which times messages may be redelivered to a call's receiver,
// and returns the soonest of the lists in which this call is the first. Negative is
// none.
func (l *waitlists) redeliveries(w *waiter, due []time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	soonest := time.Duration(-1)
	for i, k := range w.keys {
		at := l.of[k.queue][k]
		at.due = time.Time{}
		if due[i] < 0 {
			continue
		}
		at.due = time.Now().Add(due[i])
		if at.waiters.Front() == w.places[i] && (soonest < 0 || due[i] < soonest) {
			soonest = due[i]
		}
	}
	return soonest
}

// count is how many calls wait.
func (l *waitlists) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// afterFirst is the start of a call that waits from its second fetch on: existing
// messages were skipped at the first, but the newest message and one that is to come
// are still the first that it wants.
func afterFirst(start int64) int64 {
	if start == onlyNew {
		return 0
	}
	return start
}
