package nsqcompat

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

const (
	// calmAfter is how long nothing has to happen until the mirror polls less.
	calmAfter = 5 * time.Second
	// calmPoll is about how often it then polls, unless it is notified.
	calmPoll = 3 * time.Second
)

// stirred notes that something happens, so that more is to be expected.
func (m *Mirror) stirred() { m.lastStir = time.Now() }

// pollTime is how long to wait for the next poll: less while something happens.
func (m *Mirror) pollTime() time.Duration {
	if time.Since(m.lastStir) < calmAfter || m.hurried() {
		return m.o.Poll
	}
	return max(calmPoll, m.o.Poll)
}

// hear notifies the mirror of work until ctx is done. While it fails, the mirror polls,
// so it is not logged as a warning.
func (m *Mirror) hear(ctx context.Context) error {
	retry.Forever(ctx, m.listen, func(err error, wait time.Duration) {
		m.o.Log.DebugContext(ctx, "LISTEN failed; the mirror polls until it is retried", "retry_in", wait, "err", err)
	})
	return nil
}

func (m *Mirror) listen(ctx context.Context, heard func()) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(call, m.db.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		conn.Close(end) //nolint:errcheck // it only listened
	}()
	if _, err := conn.Exec(call, `LISTEN `+topiclog.Channel+`; LISTEN `+mirrorChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("wait for a notification: %w", err)
		}
		heard()
		select {
		case m.work <- struct{}{}:
		default: // it is awake
		}
	}
}

// calm waits until there may be something to do, or for d.
func (m *Mirror) calm(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-m.work:
		m.stirred()
	}
}
