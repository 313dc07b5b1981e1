package nsqcompat

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/retry"
)

func cmpText(a, b string) int { return cmp.Compare(a, b) }

// make makes the topics and channels that nsqd lacks, so that dashboards show
// them before the first message comes, and returns the topics whose channel it
// did not have: it is new, or was wiped.
func (d daemon) make(ctx context.Context, topics []string, has nsqdStats) (made map[string]bool, err error) {
	made = map[string]bool{}
	for _, topic := range topics {
		t, there := has.topic(topic)
		if !there {
			if err := d.post(ctx, "/topic/create", url.Values{"topic": {topic}}); err != nil {
				return nil, err
			}
		}
		channel := topic + channelSuffix
		if _, there := t.channel(channel); there {
			continue
		}
		if err := d.post(ctx, "/channel/create", url.Values{"topic": {topic}, "channel": {channel}}); err != nil {
			return nil, err
		}
		made[topic] = true
	}
	return made, nil
}

// pause pauses a topic, or lets it and our channel go on.
func (d daemon) pause(ctx context.Context, topic string, yes bool) error {
	if yes {
		return d.post(ctx, "/topic/pause", url.Values{"topic": {topic}})
	}
	if err := d.post(ctx, "/topic/unpause", url.Values{"topic": {topic}}); err != nil {
		return err
	}
	return d.post(ctx, "/channel/unpause", url.Values{"topic": {topic}, "channel": {topic + channelSuffix}})
}

// agree reads what both sides agreed on last, and has Farol's pauses hold for
// topics that nsqd has lost. It takes back that the topics are settled, and
// returns what was left in those that were.
func (l *link) agree(ctx context.Context, q queueReader, made map[string]bool) (settled map[string]*leftover, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := q.conn.Query(ctx, `
		WITH was AS MATERIALIZED (SELECT * FROM nsq_topics), began AS (UPDATE nsq_topics SET settled = false WHERE settled)
		SELECT s.topic, bool_and(s.paused), coalesce(bool_and(was.paused), false), coalesce(bool_and(was.settled), false),
			max(was.left_at), coalesce(max(was.left_messages), 0)
		FROM stage_pauses s LEFT JOIN was USING (topic) GROUP BY s.topic`)
	l.agreed, settled = map[string]bool{}, map[string]*leftover{}
	var topic string
	var farol, agreed, was bool
	var at *time.Time
	var messages int64
	_, err = pgx.ForEachRow(rows, []any{&topic, &farol, &agreed, &was, &at, &messages}, func() error {
		l.agreed[topic] = agreed
		if was {
			settled[topic] = &leftover{messages: messages}
		}
		if was && at != nil {
			settled[topic].at = *at
		}
		if made[topic] { // nsqd's is not paused, and nobody has said so
			l.agreed[topic] = false
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the pauses that were agreed on: %w", err)
	}
	return settled, nil
}

// agreeOn remembers a pause that both sides have.
func (m *Mirror) agreeOn(ctx context.Context, topic string, paused bool) error {
	return m.change(ctx, "remember a pause", `
		INSERT INTO nsq_topics (topic, paused) VALUES ($1, $2)
		ON CONFLICT (topic) DO UPDATE SET paused = excluded.paused`, topic, paused)
}

// settle remembers what is left in the topics' channels, for the next mirror.
func (m *Mirror) settle(ctx context.Context, l *link) error {
	asked := time.Now()
	stats, err := l.at.stats(ctx)
	if err != nil {
		return err
	}
	var topics []string
	var at []*time.Time
	var messages []int64
	var hush time.Duration
	for _, c := range l.channels {
		left, ok := c.leaves(stats.at, asked)
		if !ok {
			continue
		}
		topics, messages, at = append(topics, c.topic), append(messages, left.messages), append(at, nil)
		if !left.at.IsZero() {
			at[len(at)-1] = &left.at
			hush = max(hush, left.at.Sub(stats.at))
		}
	}
	err = m.change(ctx, "remember what is left in nsqd", `
		INSERT INTO nsq_topics (topic, settled, left_at, left_messages)
		SELECT t, true, a, n FROM unnest($1::text[], $2::timestamptz[], $3::bigint[]) AS u (t, a, n)
		ON CONFLICT (topic) DO UPDATE SET settled = true, left_at = excluded.left_at, left_messages = excluded.left_messages`,
		topics, at, messages)
	retry.Pause(ctx, hush) // what is published once we have ended is not before it
	return err
}

// requestsKept is for how long what was asked for on topics stays on record.
const requestsKept = 90 * 24 * time.Hour

// trimRequests deletes old ones, some at a time.
func (m *Mirror) trimRequests(ctx context.Context) error {
	return m.change(ctx, "trim the requests", `
		DELETE FROM topic_requests WHERE id IN (
			SELECT id FROM topic_requests WHERE at < now() - $1::interval ORDER BY at LIMIT 10000)`, requestsKept)
}
