package nsqcompat

import (
	"container/list"
	"sync"
	"time"
)

// lines are where calls wait for messages: one for each receiver of a queue, in which
// the first goes first. News of messages wakes as many of a line as there are
// messages, and who got one wakes the next, since there may be more: so that a
// thousand calls that wait under one name ask the database once for a message, and
// none of them ever polls.
type lines struct {
	mu      sync.Mutex
	of      map[string]map[lineKey]*queueLine // by queue
	waiting int
}

// lineKey is the same for calls that may stand in for each other.
type lineKey struct {
	queue, receiver string
	start           int64
	retryNum        int
	failTimeout     time.Duration
}

type queueLine struct {
	waiters list.List // of *waiter
	due     time.Time // when a message may be given again to the first; zero: it is not known that one may
}

// waiter is a call that waits, in a line for each of its queues.
type waiter struct {
	wake   chan struct{} // gets a value when a try is worth it
	places []*list.Element
	keys   []lineKey
}

// join puts a call at the end of its lines.
func (l *lines) join(receiver string, wants []Want) *waiter {
	w := &waiter{wake: make(chan struct{}, 1), places: make([]*list.Element, len(wants)), keys: make([]lineKey, len(wants))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	for i, want := range wants {
		k := lineKey{want.Queue, receiver, afterFirst(want.Start), want.RetryNum, want.FailTimeout}
		if l.of[k.queue] == nil {
			l.of[k.queue] = map[lineKey]*queueLine{}
		}
		if l.of[k.queue][k] == nil {
			l.of[k.queue][k] = &queueLine{}
		}
		w.keys[i], w.places[i] = k, l.of[k.queue][k].waiters.PushBack(w)
	}
	return w
}

// leave takes a call out of its lines. If it was given something, or was woken and
// did not look, the next of each line looks in its place; if it was the first, the
// next has to see to messages that are due again.
func (l *lines) leave(w *waiter, given bool) {
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
	default: // it is to look anyway
	}
}

// put says that n messages have come to a queue.
func (l *lines) put(queue string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.of[queue] {
		for e, i := at.waiters.Front(), 0; e != nil && i < n; e, i = e.Next(), i+1 {
			wake(e)
		}
	}
}

// putAll says that nobody knows what has come, or where.
func (l *lines) putAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.of {
		for _, at := range of {
			wake(at.waiters.Front())
		}
	}
}

// queues lists those that are waited on.
func (l *lines) queues() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]string, 0, len(l.of))
	for queue := range l.of {
		list = append(list, queue)
	}
	return list
}

// later notes after which times messages may be given again to a call's receiver,
// and returns the one that this call has to look after: those of lines in which it
// is the first. Negative is none.
func (l *lines) later(w *waiter, due []time.Duration) time.Duration {
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
func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}
