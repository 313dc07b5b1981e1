package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/farol-preservation/farol/retry"
)

const (
	// mirrorChannel is on which the mirror hears that somebody waits for it.
	mirrorChannel = "farol_mirror"
	// hurryFor is for how long it then looks more often.
	hurryFor = 5 * time.Second
	// roundTime is for how long it publishes without a look at the figures.
	roundTime = 200 * time.Millisecond
)

func (m *Mirror) hurried() bool { return time.Now().Before(m.hurry) }

// follow publishes batch after batch, and brings nsqd's figures to the registry's
// between them. It returns when the database fails or ctx is done; a failing nsqd
// it waits out.
func (m *Mirror) follow(ctx context.Context, q queueReader) error {
	defer m.leave(ctx)
	failures, wait := 0, retry.NewBackoff()
	for ctx.Err() == nil {
		m.linkUp(ctx, q)
		more, err := m.publishSome(ctx, q)
		var away unpublishedError
		switch {
		case errors.As(err, &away):
			m.failures.Add(1)
			if failures++; failures == 1 {
				m.o.Log.WarnContext(ctx, "nsqd takes no messages, will try until it does", "nsqd", m.nsqd.addr, "err", err)
			}
			m.rest(ctx, wait.Next())
			continue
		case err != nil:
			return err
		case failures > 0:
			m.o.Log.InfoContext(ctx, "nsqd takes messages again", "nsqd", m.nsqd.addr, "failures", failures)
			failures = 0
			wait.Reset()
		}
		if err := m.reflect(ctx, q); err != nil {
			return err
		}
		if !more {
			m.rest(ctx, 0)
		}
	}
	return nil
}

// publishSome publishes what can be read of the log, for a while; more says that
// the log goes on.
func (m *Mirror) publishSome(ctx context.Context, q queueReader) (more bool, err error) {
	if err := m.find(ctx); err != nil {
		return false, unpublishedError{err}
	}
	began := time.Now()
	for more = true; more && err == nil && ctx.Err() == nil && time.Since(began) < roundTime; {
		more, err = m.step(ctx, q.Reader)
	}
	return more, err
}

// linkUp makes the link to nsqd when there is none.
func (m *Mirror) linkUp(ctx context.Context, q queueReader) {
	if !m.mirrors() || m.link != nil || time.Now().Before(m.attachAt) {
		return
	}
	err := m.find(ctx)
	if err == nil {
		m.link, err = m.attach(ctx, q)
	}
	switch {
	case err != nil: // the database's are heard of by the next who asks it
		m.link = nil
		_ = m.detachIf(ctx, broken(fmt.Errorf("attach to nsqd: %w", err)))
	case m.attempts > 0:
		m.o.Log.InfoContext(ctx, "nsqd shows the queue again", "nsqd", m.nsqd.addr)
	}
}

// reflect brings nsqd's figures to the registry's. Only the database's errors are
// returned.
func (m *Mirror) reflect(ctx context.Context, q queueReader) error {
	if m.link == nil {
		return nil
	}
	m.attempts = 0
	m.attachWait.Reset()
	return m.detachIf(ctx, m.link.tick(ctx, q))
}

// detachIf gives up the link if that is broken, and returns all other errors.
func (m *Mirror) detachIf(ctx context.Context, err error) error {
	var b brokenError
	if !errors.As(err, &b) {
		return err
	}
	if m.attempts++; m.attempts == 1 && ctx.Err() == nil {
		m.o.Log.WarnContext(ctx, "nsqd does not show the queue, will try until it does", "nsqd", m.nsqd.addr, "err", err)
	}
	if m.link != nil {
		m.link.close()
		m.link = nil
	}
	m.attachAt = time.Now().Add(m.attachWait.Next())
	return nil
}

// rest waits until it is time for the next round, or for as long as is said, and
// meanwhile deals with what nsqd sends.
func (m *Mirror) rest(ctx context.Context, d time.Duration) {
	switch {
	case m.link != nil && d == 0:
		d = m.link.nextTick(m.pollTime())
		fallthrough
	case m.link != nil:
		if err := m.detachIf(ctx, m.link.wait(ctx, d)); err != nil {
			m.o.Log.WarnContext(ctx, "what nsqd sent could not be dealt with", "err", err)
		}
	case d > 0:
		retry.Pause(ctx, d)
	default:
		poll := m.pollTime()
		m.calm(ctx, poll*3/4+rand.N(poll/2+1))
	}
}

// leave ends the link, and remembers what the next mirror can rely on.
func (m *Mirror) leave(ctx context.Context) {
	if m.link == nil {
		m.echoes = nil
		return
	}
	ended, ctx := ctx.Err() != nil, context.WithoutCancel(ctx)
	if ended {
		if err := m.settle(ctx, m.link); err != nil {
			m.o.Log.WarnContext(ctx, "the next mirror will be told less about requests", "err", err)
		}
	}
	m.link.close()
	m.link, m.echoes = nil, nil
}

// echo is what is known of our own messages on a topic.
func (m *Mirror) echo(topic string) *echo {
	if m.echoes == nil {
		m.echoes = map[string]*echo{}
	}
	if m.echoes[topic] == nil {
		m.echoes[topic] = newEcho()
	}
	return m.echoes[topic]
}

// send publishes bodies to a topic and keeps the books, also of a topic that is to
// be linked yet.
func (m *Mirror) send(ctx context.Context, topic string, bodies [][]byte) error {
	if !m.mirrors() {
		return m.nsqd.send(ctx, topic, bodies)
	}
	e := m.echo(topic)
	e.publishing(bodies, 1) // before they can be received
	err := m.nsqd.send(ctx, topic, bodies)
	e.published, e.unanswered = time.Now(), false
	switch {
	case err == nil:
		e.actual += int64(len(bodies))
		if m.link != nil && m.link.channels[topic] != nil {
			m.link.channels[topic].left += int64(len(bodies))
		}
	case isRefusal(err), errors.Is(err, errUnsent):
		e.publishing(bodies, -1)
	default:
		e.unanswered = true
	}
	return err
}
