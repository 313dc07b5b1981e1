package nsqcompat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/retry"
)

// compare compares our account with nsqd's figures, and the pauses of both sides. What
// two comparisons in a row find is believed: nsqd counts while messages move.
func (l *link) compare(ctx context.Context) error {
	l.comparedAt = time.Now()
	stats, err := l.at.stats(ctx)
	if err != nil {
		if l.misses++; l.misses == 1 {
			l.o.Log.WarnContext(ctx, "cannot read nsqd's figures; publishing continues without them", "nsqd", l.at.http, "err", err)
		}
		return nil // if nsqd is away, publishing fails
	}
	l.misses = 0
	if stats.StartTime != l.started {
		return ofNSQD(errRestarted)
	}
	var figures []TopicFigures
	var quietTime time.Duration
	for _, c := range l.channels {
		t, _ := stats.topic(c.topic)
		worker, _ := t.channel(c.topic + channelSuffix)
		us := slices.IndexFunc(worker.Clients, func(k clientStats) bool { return k.ID == l.client })
		if us < 0 {
			return ofNSQD(fmt.Errorf("nsqd no longer lists the mirror's connection to %s", c.topic))
		}
		if c.certainSince.IsZero() {
			c.distrust(stats.at)
			quietTime = c.certainSince.Sub(stats.at)
		}
		c.correct(t, worker, worker.Clients[us])
		c.statsAt = stats.at
		c.rescanIfNeeded(time.Now(), c.reachable(t, worker))
		f := figuresOf(c.is, t)
		f.Drift, c.drift = min(f.Drift, c.drift), f.Drift
		figures = append(figures, f)
		if err := l.syncPauses(ctx, c, f); err != nil {
			return err
		}
	}
	slices.SortFunc(figures, func(a, b TopicFigures) int { return cmp.Compare(a.Topic, b.Topic) })
	l.o.figures.Store(&figures)
	retry.Pause(ctx, quietTime)
	return nil
}

// handOver records what is left in the topics' channels, for the next mirror.
func (l *link) handOver(ctx context.Context) error {
	asked := time.Now()
	stats, err := l.at.stats(ctx)
	if err != nil {
		return err
	}
	var topics []string
	var at []*time.Time
	var messages []int64
	var quietTime time.Duration
	for _, c := range l.channels {
		left, ok := c.handOver(stats.at, asked)
		if !ok {
			continue
		}
		topics, messages, at = append(topics, c.topic), append(messages, left.messages), append(at, nil)
		if !left.at.IsZero() {
			at[len(at)-1] = &left.at
			quietTime = max(quietTime, left.at.Sub(stats.at))
		}
	}
	err = l.o.records.handOver(ctx, topics, at, messages)
	retry.Pause(ctx, quietTime) // the next mirror publishes nothing before that time
	return err
}

// errRestarted says that nsqd has lost what it does not keep on disk.
var errRestarted = errors.New("nsqd was restarted")

// nsqdError says that nsqd has failed, which is tried again; a failure of the database is another
// matter.
type nsqdError struct{ err error }

func (e nsqdError) Error() string { return e.err.Error() }
func (e nsqdError) Unwrap() error { return e.err }

// ofNSQD says that an error is one of nsqd.
func ofNSQD(err error) error {
	if err == nil {
		return nil
	}
	return nsqdError{err}
}
