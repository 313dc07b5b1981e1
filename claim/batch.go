package claim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// batcher gathers the calls of a process's slots: those that come while the last
// statement runs go into the next one together. Nobody waits for a timer, so a
// call that comes alone is sent at once. It is safe for concurrent use.
type batcher[Q, A any] struct {
	// do answers the questions of one batch, in their order. Its context has a
	// deadline and does not end with that of any caller.
	do    func(context.Context, []Q) ([]A, error)
	lanes int // statements at once
	most  int // questions in one statement

	mu      sync.Mutex
	waiting []*asked[Q, A]
	running int
}

type asked[Q, A any] struct {
	question Q
	answer   A
	err      error
	done     chan struct{}
}

// statementTime bounds a statement of the queue. The slowest takes milliseconds.
const statementTime = 10 * time.Second

// askAll returns the answers to questions, each with an error of its own. If ctx
// ends first, what has not been sent is not; what has is answered still.
func (b *batcher[Q, A]) askAll(ctx context.Context, questions []Q) []*asked[Q, A] {
	calls := make([]*asked[Q, A], len(questions))
	b.mu.Lock()
	for i, q := range questions {
		calls[i] = &asked[Q, A]{question: q, done: make(chan struct{})}
	}
	b.waiting = append(b.waiting, calls...)
	start := b.running < b.lanes
	if start {
		b.running++
	}
	b.mu.Unlock()
	if start {
		go b.run()
	}
	for _, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
			if !b.withdraw(c) {
				<-c.done
			} else {
				c.err = ctx.Err()
			}
		}
	}
	return calls
}

func (b *batcher[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	c := b.askAll(ctx, []Q{question})[0]
	return c.answer, c.err
}

// withdraw takes back a question that was not sent.
func (b *batcher[Q, A]) withdraw(c *asked[Q, A]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// run sends batches until none waits.
func (b *batcher[Q, A]) run() {
	for {
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
		close(c.done)
	}
}
