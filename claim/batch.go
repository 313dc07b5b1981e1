package claim

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// batcher gathers the calls of a process's slots: those that come while the last
// statement runs go into the next one together, and so do those that are about
// to come, of goroutines that can run already. Nobody waits for a timer, so a
// call that comes alone is sent at once. It is safe for concurrent use.
type batcher[Q, A any] struct {
	// do answers the questions of one batch, in their order. Its context has a
	// deadline and does not end with that of any caller.
	do    func(context.Context, []Q) ([]A, error)
	lanes int // statements at once, if there are calls enough to fill them
	most  int // questions in one statement

	mu      sync.Mutex
	waiting []*asked[Q, A]
	running int
}

type asked[Q, A any] struct {
	question Q
	answer   A
	err      error
	call     *call
}

// call is what one caller asked for, whose waiter is woken once.
type call struct {
	open atomic.Int64 // questions without an answer
	done chan struct{}
}

func (c *call) answered(n int) {
	if c.open.Add(-int64(n)) == 0 {
		close(c.done)
	}
}

// statementTime bounds a statement of the queue. The slowest takes milliseconds.
const statementTime = 10 * time.Second

// worthALane is how many calls are worth a statement of their own beside the one
// that runs. Fewer wait for its end: a commit more costs more than their waiting.
const worthALane = 64

// askAll returns the answers to questions, each with an error of its own. If ctx
// ends first, what has not been sent is not; what has is answered still.
func (b *batcher[Q, A]) askAll(ctx context.Context, questions []Q) []*asked[Q, A] {
	list := make([]*asked[Q, A], len(questions))
	if len(list) == 0 {
		return list
	}
	mine := &call{done: make(chan struct{})}
	mine.open.Store(int64(len(list)))
	for i, q := range questions {
		list[i] = &asked[Q, A]{question: q, call: mine}
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, list...)
	start := b.running == 0 || b.running < b.lanes && len(b.waiting) >= worthALane
	if start {
		b.running++
	}
	b.mu.Unlock()
	if start {
		go b.run()
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		b.withdraw(mine, ctx.Err())
		<-mine.done
	}
	return list
}

func (b *batcher[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	c := b.askAll(ctx, []Q{question})[0]
	return c.answer, c.err
}

// withdraw answers what of a call was not sent with an error.
func (b *batcher[Q, A]) withdraw(of *call, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := make([]*asked[Q, A], 0, len(b.waiting))
	for _, a := range b.waiting {
		if a.call == of {
			a.err = err
			of.answered(1)
		} else {
			rest = append(rest, a)
		}
	}
	b.waiting = rest
}

// run sends batches until none waits.
func (b *batcher[Q, A]) run() {
	for {
		runtime.Gosched() // those whom the last statement has answered ask for their next
		b.mu.Lock()
		n := min(len(b.waiting), b.most)
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.waiting = nil
			b.running--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.send(batch)
	}
}

func (b *batcher[Q, A]) send(batch []*asked[Q, A]) {
	questions := make([]Q, len(batch))
	for i, c := range batch {
		questions[i] = c.question
	}
	ctx, cancel := context.WithTimeout(context.Background(), statementTime)
	answers, err := b.do(ctx, questions)
	cancel()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d answers to %d questions", len(answers), len(batch))
	}
	for i, c := range batch {
		if err != nil {
			c.err = err
		} else {
			c.answer = answers[i]
		}
		c.call.answered(1)
	}
}

// Batch gathers calls as the engine does those of a process's slots, for others who
// make many short statements. It is safe for concurrent use.
type Batch[Q, A any] struct{ calls batcher[Q, A] }

// NewBatch returns one that asks up to most questions at once, in up to so many
// statements. do answers them in their order; its context has a deadline.
func NewBatch[Q, A any](lanes, most int, do func(context.Context, []Q) ([]A, error)) *Batch[Q, A] {
	return &Batch[Q, A]{batcher[Q, A]{do: do, lanes: lanes, most: most}}
}

// Ask returns the answer to a question. If ctx ends before the question was sent, it
// is not; if it was, the answer is waited for.
func (b *Batch[Q, A]) Ask(ctx context.Context, question Q) (A, error) {
	return b.calls.ask(ctx, question)
}
