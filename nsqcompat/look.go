package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/retry"
)

// TopicFigures are one topic as the registry has it and as nsqd shows it.
type TopicFigures struct {
	Topic string `json:"topic"`

	Claimable int64 `json:"claimable"` // items that are due
	Running   int64 `json:"running"`   // items, or files whose fixity is checked
	Later     int64 `json:"later"`     // items that wait for a time or for another item

	Depth    int64 `json:"depth"` // of the channel, and of the topic while that is paused
	InFlight int64 `json:"in_flight"`
	Deferred int64 `json:"deferred"`
	Requeued int64 `json:"requeued"`
	Finished int64 `json:"finished"` // by the mirror's connection

	Drift           int64 `json:"drift"` // by how much depth and in flight are off, together
	PausedInFarol   bool  `json:"paused_in_farol"`
	PausedInNSQ     bool  `json:"paused_in_nsq"`
	missing, orphan bool  // nsqd has no such channel, or nobody consumes it
}

// compare puts the figures of both sides together.
func compare(is counts, t topicStats) (f TopicFigures) {
	c, there := t.channel(is.Topic + channelSuffix)
	f = TopicFigures{
		Topic: is.Topic, Claimable: is.Due, Running: is.Running, Later: is.Later + is.Waiting,
		Depth: t.Depth + c.Depth, InFlight: c.InFlight, Deferred: c.Deferred, Requeued: c.Requeued,
		PausedInFarol: is.Paused, PausedInNSQ: t.Paused || c.Paused,
		missing: !there, orphan: len(c.Clients) == 0,
	}
	for _, client := range c.Clients {
		f.Finished += client.Finished
	}
	f.Drift = distance(f.Depth, f.Claimable) + distance(f.InFlight, f.Running)
	return f
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// look compares our books with nsqd's figures, and the pauses of both sides. What
// two looks in a row find is believed: nsqd counts while messages move.
func (l *link) look(ctx context.Context) error {
	l.looked = time.Now()
	stats, err := l.at.stats(ctx)
	if err != nil {
		if l.misses++; l.misses == 1 {
			l.m.o.Log.WarnContext(ctx, "nsqd does not tell its figures, going on without", "nsqd", l.at.http, "err", err)
		}
		return nil // who publishes hears of it if nsqd is away
	}
	l.misses = 0
	if stats.StartTime != l.started {
		return broken(errors.New("nsqd has been started again"))
	}
	var figures []TopicFigures
	var hush time.Duration
	for _, c := range l.channels {
		t, _ := stats.topic(c.topic)
		worker, _ := t.channel(c.topic + channelSuffix)
		us := slices.IndexFunc(worker.Clients, func(k clientStats) bool { return k.ID == l.client })
		if us < 0 {
			return broken(fmt.Errorf("nsqd does not know our connection to %s any more", c.topic))
		}
		if c.since.IsZero() {
			c.doubt(stats.at)
			hush = c.since.Sub(stats.at)
		}
		c.compare(t, worker, worker.Clients[us])
		c.lookedAt = stats.at
		c.seek(time.Now(), c.reachable(t, worker))
		f := compare(c.is, t)
		f.Drift, c.drift = min(f.Drift, c.drift), f.Drift
		figures = append(figures, f)
		if err := l.pauses(ctx, c, f); err != nil {
			return err
		}
	}
	slices.SortFunc(figures, func(a, b TopicFigures) int { return cmpText(a.Topic, b.Topic) })
	l.m.keep(figures)
	retry.Pause(ctx, hush)
	return nil
}

// compare sets our books right. What nsqd has and they have not may be somebody
// else's, and has to be received first.
func (c *channel) compare(t topicStats, worker channelStats, us clientStats) {
	// Less what it was told to finish, and has not yet.
	there := t.Depth + worker.messages() - (c.finished - us.Finished) - int64(len(c.strangers))
	if off := there - c.actual; off > 0 {
		c.excess, c.off = max(0, min(c.off, off)), off
	} else {
		c.excess = 0
		had := c.actual
		c.off, c.actual = lasting(c.off, off, c.actual)
		if !c.rejoined || time.Since(c.attached) > settlesIn { // nsqd may have lost some by itself
			c.gone += had - c.actual
		}
	}
	c.orphans, c.depth = max(0, worker.InFlight-us.InFlight), worker.Depth
	if !t.Paused {
		c.depth += t.Depth
	}
	asking := c.asking()
	had := int64(len(c.deferred))
	var have int64
	c.offDeferred, have = lasting(c.offDeferred, worker.Deferred-int64(len(c.strangers)-asking)-had, had)
	if have = max(have, 0); have < had { // a deferred message of another publisher may be back
		slices.SortFunc(c.deferred, func(a, b comeback) int { return a.at.Compare(b.at) })
		c.deferred = c.deferred[had-have:]
	}
	for ; have > had; had++ {
		c.deferred = append(c.deferred, comeback{at: time.Now().Add(deferMost)})
	}
	if c.surplus(time.Now()) < 0 {
		c.short++
	}
	// All that is there has been received: what we are still waiting for never came.
	quiet := t.Depth+worker.messages() == int64(len(c.held)+asking)
	if quiet && c.quiet && time.Since(c.published) > 2*lookEvery {
		clear(c.own)
		maps.DeleteFunc(c.mine, func(id nsq.MessageID, _ int) bool { return c.held[id] == nil })
		c.unknown = 0
	}
	c.quiet = quiet
}

// reachable tells whether all messages can be received: none waits for a pause to
// end, or for its time with a connection that is gone.
func (c *channel) reachable(t topicStats, worker channelStats) bool {
	return !t.Paused && !worker.Paused && (c.orphans == 0 || time.Since(c.attached) > 2*c.worker.msgTimeout)
}

// lasting corrects a number by as much as two looks in a row agree on.
func lasting(before, now, number int64) (off, corrected int64) {
	switch {
	case before > 0 && now > 0:
		n := min(before, now)
		return now - n, number + n
	case before < 0 && now < 0:
		n := max(before, now)
		return now - n, number + n
	}
	return now, number
}
