package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// Status is the figures of the registry and of nsqd, side by side.
type Status struct {
	NSQD   string         `json:"nsqd"`     // host:port of its HTTP API
	Leader *Leader        `json:"leader"`   // null: no mirror runs
	Behind int            `json:"behind"`   // messages that are not published yet
	Oldest time.Duration  `json:"-"`        // age of the first of them
	Moved  *time.Time     `json:"moved_at"` // when a mirror published last; null: never
	Topics []TopicFigures `json:"topics"`
}

// Leader is the mirror that publishes, as the database sees it. A database user that may not
// see the sessions of others knows neither its address nor since when it has run.
type Leader struct {
	Program string     `json:"program"`
	Client  string     `json:"client"` // address
	PID     int        `json:"backend_pid" db:"pid"`
	Since   *time.Time `json:"since"`
}

// Drift is by how many messages the figures of all topics differ.
func (s Status) Drift() (n int64) {
	for _, t := range s.Topics {
		n += t.Drift
	}
	return n
}

// ErrNoNSQD says that nsqd, or nsqlookupd, does not answer.
var ErrNoNSQD = errors.New("nsqd does not answer")

// statusReads is how often both sides are read before a drift is believed: they are not
// read at one moment.
const statusReads = 4

// Status reads both sides, whether a mirror runs here, elsewhere or not at all.
func (m *Mirror) Status(ctx context.Context) (s Status, err error) {
	at, err := find(ctx, m.o)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrNoNSQD, err)
	}
	if at.http == "" {
		return s, fmt.Errorf("%w: the address of its HTTP API is not set", ErrNoNSQD)
	}
	for i := range statusReads {
		figures, err := m.compareOnce(ctx, at)
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.Topics = figures
		}
		for n := range min(len(figures), len(s.Topics)) {
			if figures[n].Topic == s.Topics[n].Topic && figures[n].Drift < s.Topics[n].Drift {
				s.Topics[n] = figures[n]
			}
		}
		if s.Drift() == 0 || i+1 < statusReads && !retry.Pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	lag, err := m.Lag(ctx)
	if err != nil {
		return s, err
	}
	s.NSQD, s.Behind, s.Oldest, s.Moved = at.http, lag.Messages, lag.Oldest, lag.MovedAt
	s.Leader, err = m.leader(ctx)
	return s, err
}

func (m *Mirror) compareOnce(ctx context.Context, at daemon) (list []TopicFigures, err error) {
	stats, err := at.stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNSQD, err)
	}
	is, err := count(ctx, m.db, topiclog.Position{XID: 1 << 62}, m.o.FixityDays)
	if err != nil {
		return nil, err
	}
	for _, c := range is {
		t, _ := stats.topic(c.Topic)
		list = append(list, figuresOf(c, t))
	}
	return list, nil
}

const leaderSQL = `
SELECT a.application_name AS program, CASE WHEN a.backend_start IS NULL THEN '' ELSE coalesce(host(a.client_addr), 'local') END AS client,
	l.pid, a.backend_start AS since
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('topic reader ' || $1, 0)`

// leader finds the mirror that has the lock.
func (m *Mirror) leader(ctx context.Context) (*Leader, error) {
	list, err := collect(ctx, m.db, "find the mirror that publishes", pgx.RowToAddrOfStructByName[Leader], leaderSQL, m.o.Reader)
	if err != nil || len(list) == 0 {
		return nil, err // no mirror runs
	}
	return list[0], nil
}

// Reconcile waits until nsqd shows what the registry has, or until ctx is done. The mirror
// that runs is asked to compare at once; if none runs, this one runs for as long as it
// takes. A drift that is left is not an error.
func (m *Mirror) Reconcile(ctx context.Context) (s Status, err error) {
	group, running := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(running)
	group.Go(func() error { return m.Run(running) })
	for {
		if _, err = m.db.Exec(ctx, `SELECT pg_notify($1, '')`, mirrorChannel); err != nil {
			err = fmt.Errorf("ask the mirror to compare: %w", err)
			break
		}
		var now Status
		if now, err = m.Status(ctx); err != nil {
			break
		}
		s = now
		unled := slices.ContainsFunc(s.Topics, func(t TopicFigures) bool { return t.missing || t.orphan })
		if s.Drift() == 0 && s.Behind == 0 && !unled && s.Leader != nil || !retry.Pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	stop()
	if ended := group.Wait(); err == nil {
		err = ended
	}
	if ctx.Err() != nil && s.Topics != nil {
		return s, nil // its figures are the best there are
	}
	return s, err
}
