// Package batch gathers the calls of a process's goroutines into few statements.
//
// Calls that come while the last statement runs go into the next one together, and so
// do those of goroutines that can run already. Nobody waits for a timer, so a call that
// comes alone is sent at once.
package batch

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Timeout bounds one statement. The slowest takes milliseconds.
const Timeout = 10 * time.Second

// Calls are the calls of one kind. It is safe for concurrent use.
type Calls[Q, A any] struct {
	do       func(context.Context, []Q) ([]A, error)
	parallel int
	most     int

	mu      sync.Mutex
	waiting []*asked[Q, A]
	running int
}

// New returns calls that ask up to most questions in one statement, in up to so many
// parallel statements. do answers the questions of a batch in their order; its context
// has a deadline and does not end with that of any caller.
func New[Q, A any](parallel, most int, do func(context.Context, []Q) ([]A, error)) *Calls[Q, A] {
	return &Calls[Q, A]{do: do, parallel: parallel, most: most}
}

// Answer is the answer to one question.
type Answer[A any] struct {
	Value A
	Err   error
}

type asked[Q, A any] struct {
	question Q
	answer   Answer[A]
	call     *call
}

// call is what one caller asked for, which is woken once.
type call struct {
	open atomic.Int64 // questions without an answer
	done chan struct{}
}

func (c *call) answered(n int) {
	if c.open.Add(-int64(n)) == 0 {
		close(c.done)
	}
}

// worthAnother is how many calls are worth a parallel statement. Fewer wait for the
// one that runs: one more commit costs more than their waiting.
const worthAnother = 64

// Ask returns the answer to a question. If ctx ends before the question was sent, it
// is not sent; if it was, Ask waits for the answer.
func (c *Calls[Q, A]) Ask(ctx context.Context, question Q) (A, error) {
	answer := c.AskAll(ctx, []Q{question})[0]
	return answer.Value, answer.Err
}

// AskAll returns the answers to several questions, each as Ask does.
func (c *Calls[Q, A]) AskAll(ctx context.Context, questions []Q) []Answer[A] {
	if len(questions) == 0 {
		return nil
	}
	list := make([]*asked[Q, A], len(questions))
	mine := &call{done: make(chan struct{})}
	mine.open.Store(int64(len(list)))
	for i, q := range questions {
		list[i] = &asked[Q, A]{question: q, call: mine}
	}
	c.mu.Lock()
	c.waiting = append(c.waiting, list...)
	start := c.running == 0 || c.running < c.parallel && len(c.waiting) >= worthAnother
	if start {
		c.running++
	}
	c.mu.Unlock()
	if start {
		go c.run()
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		c.withdraw(mine, ctx.Err())
		<-mine.done
	}
	answers := make([]Answer[A], len(list))
	for i, a := range list {
		answers[i] = a.answer
	}
	return answers
}

// withdraw answers the questions of a call that were not sent with an error.
func (c *Calls[Q, A]) withdraw(of *call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := make([]*asked[Q, A], 0, len(c.waiting))
	for _, a := range c.waiting {
		if a.call == of {
			a.answer.Err = err
			of.answered(1)
		} else {
			rest = append(rest, a)
		}
	}
	c.waiting = rest
}

// run sends batches until no call waits.
func (c *Calls[Q, A]) run() {
	for {
		c.gather()
		c.mu.Lock()
		n := min(len(c.waiting), c.most)
		batch := c.waiting[:n:n]
		c.waiting = c.waiting[n:]
		if n == 0 {
			c.waiting = nil
			c.running--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.send(batch)
	}
}

// gather lets goroutines run that can: those that the last statement has answered ask their next
// questions. It ends when a turn of theirs has brought none.
func (c *Calls[Q, A]) gather() {
	for before := -1; ; {
		runtime.Gosched()
		n := c.Waiting()
		if n == before || n >= c.most {
			return
		}
		before = n
	}
}

// Waiting counts the questions that have not been sent.
func (c *Calls[Q, A]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

func (c *Calls[Q, A]) send(batch []*asked[Q, A]) {
	questions := make([]Q, len(batch))
	for i, a := range batch {
		questions[i] = a.question
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	answers, err := c.do(ctx, questions)
	cancel()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d results for %d requests", len(answers), len(batch))
	}
	for i, a := range batch {
		if err != nil {
			a.answer.Err = err
		} else {
			a.answer.Value = answers[i]
		}
		a.call.answered(1)
	}
}
