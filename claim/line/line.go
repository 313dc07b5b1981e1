// Package line is how processes are notified of each other's work, in PostgreSQL. Those that take
// the same work stand in line, and one at a time is notified.
package line

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/lane"
)

// Channels on which processes notify each other.
const (
	Work     = "farol_work"     // of work: the sender, then a line for each place in which items were put
	Settings = "farol_settings" // of changed settings, and of workers that are asked to stop
)

// Ears are how a process receives notices.
type Ears struct {
	// Line is what some processes have in common; one at a time is notified of new work. "": this
	// one always is. Each notice that all of them received would have all of them claim.
	Line   string
	Waits  func() bool     // new work is for this process, see [wake.Board.Waits]
	Turned <-chan struct{} // gets a value when Waits may have another answer

	Begun func()                        // is called when it is notified of new work from now on
	Heard func(channel, payload string) // is called with each notice
}

// Notices are those of one process. They are safe for concurrent use.
type Notices struct {
	Lane   lane.Lane       // for statements that may take their time
	Direct *pgx.ConnConfig // for listening; nil: there is only a pooler
}

// Announce sends a notice of work to all processes. It waits for no disk: a notice does not outlive a
// crash anyway.
func (n *Notices) Announce(ctx context.Context, payload string) error {
	if _, err := n.Lane.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`, Work, payload); err != nil {
		return fmt.Errorf("notify other workers: %w", err)
	}
	return nil
}

//go:embed sql/due.sql
var dueSQL string

// mostPolled bounds what a poll reads of a partition: with as many items waiting, pools claim.
const mostPolled = 100

// Due lists where a claim may find items now: of each partition the place of the first, or
// [cursor.End] where it is not known.
func (n *Notices) Due(ctx context.Context) (list []cursor.Place, err error) {
	rows, _ := n.Lane.Query(ctx, dueSQL, mostPolled)
	var at cursor.Partition
	var priority *int16
	var start *int64
	_, err = pgx.ForEachRow(rows, []any{&at.Stage, &at.Band, &priority, &start}, func() error {
		place := cursor.Place{Partition: at, Position: cursor.End()}
		if priority != nil {
			place.Position = cursor.Position{Priority: *priority, VirtualStart: *start}
		}
		list = append(list, place)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look what is due: %w", err)
	}
	return list, nil
}

// listenTime is how long a listener may receive nothing before it checks its connection:
// the node may be gone, or be a standby by now.
const listenTime = 10 * time.Second

// The first in line is a session that answers. The server ends one whose process is stopped, or
// whose host is gone, and the next in line is notified of new work.
const silentTime = "15s"

// listener is the session in which a process receives notices.
type listener struct {
	*pgx.Conn
	Ears

	check  func(ctx context.Context, conn *pgconn.PgConn) error // whether this is still the right server; nil: it answers
	spoken time.Time                                            // when the server last answered
}

// Listen receives notices until ctx is done or the connection breaks. It keeps one connection of its
// own and reads it always: one that is not read holds up the notices of everyone.
func (n *Notices) Listen(ctx context.Context, e Ears) error {
	conn, err := pgx.ConnectConfig(ctx, n.Direct)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on how a listener ends
	l := &listener{Conn: conn, Ears: e, check: n.Direct.ValidateConnect}
	if err := l.tell(ctx, "SET idle_session_timeout = '"+silentTime+"'; LISTEN "+Settings); err != nil {
		return err
	}
	l.Heard(Settings, "") // they may have changed before
	if e.Line == "" {
		return l.hear(ctx, func() bool { return false })
	}
	var line int64
	if err := l.QueryRow(ctx, `SELECT hashtextextended('farol line ' || $1, 0)`, e.Line).Scan(&line); err != nil {
		return fmt.Errorf("find the line of this worker: %w", err)
	}
	for {
		if err := l.receive(ctx, l.Waits); err != nil {
			return err
		}
		first, err := l.stand(ctx, line)
		if err != nil {
			return err
		}
		if !first {
			continue
		}
		if err := l.hear(ctx, func() bool { return !l.Waits() }); err != nil {
			return err
		}
	}
}

// standSQL waits until this session is the first in a line. A session that waited for the lock, and
// not for the clock, would hold its snapshot all the time, and keep dead rows from being removed.
// It returns now and then, so that notices of settings are received.
const standSQL = `
DO $$
DECLARE
	since timestamptz := clock_timestamp();
	pause double precision := 0.02;
BEGIN
	PERFORM set_config('farol.first', 'no', false);
	WHILE clock_timestamp() < since + interval '3 seconds' LOOP
		IF pg_try_advisory_lock(%d) THEN
			PERFORM set_config('farol.first', 'yes', false);
			EXIT;
		END IF;
		COMMIT;
		PERFORM pg_sleep(pause * (0.5 + random()));
		pause := least(1.5 * pause, 0.25);
	END LOOP;
END
$$`

// stand waits in line, and reports whether this process is the first now.
func (l *listener) stand(ctx context.Context, line int64) (first bool, err error) {
	if err := l.tell(ctx, fmt.Sprintf(standSQL, line)); err != nil {
		return false, err
	}
	if err := l.QueryRow(ctx, `SELECT current_setting('farol.first') = 'yes'`).Scan(&first); err != nil {
		return false, fmt.Errorf("stand in line for new work: %w", err)
	}
	return first, nil
}

// hear receives notices of new work until it is enough, and gives way to the next in line.
func (l *listener) hear(ctx context.Context, enough func() bool) error {
	if err := l.tell(ctx, "LISTEN "+Work); err != nil {
		return err
	}
	l.Begun()
	if err := l.receive(ctx, enough); err != nil {
		return err
	}
	return l.tell(ctx, "UNLISTEN "+Work+"; SELECT pg_advisory_unlock_all()")
}

// receive receives notices until it is enough.
func (l *listener) receive(ctx context.Context, enough func() bool) error {
	for !enough() {
		n, err := l.next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("wait for notices: %w", err)
		case n != nil:
			l.Heard(n.Channel, n.Payload)
		}
	}
	return nil
}

// next waits for a notice. It returns nil if there was none for a while, or something has turned,
// and the connection is good.
func (l *listener) next(ctx context.Context) (*pgconn.Notification, error) {
	while := listenTime - time.Since(l.spoken)
	if while <= 0 {
		return nil, l.ask(ctx)
	}
	quiet, cancel := context.WithTimeout(ctx, while)
	defer cancel()
	var turned sync.WaitGroup
	turned.Go(func() {
		select {
		case <-quiet.Done():
		case <-l.Turned:
			cancel()
		}
	})
	n, err := l.WaitForNotification(quiet)
	ended := quiet.Err() != nil
	cancel()
	turned.Wait() // or it would take a value that is for the next call
	if err != nil && ctx.Err() == nil && ended {
		return n, nil
	}
	return n, err //nolint:wrapcheck // as its own
}

// ask asks the server whether it is there, and the right one.
func (l *listener) ask(ctx context.Context) error {
	check, cancel := context.WithTimeout(ctx, batch.Timeout)
	defer cancel()
	l.spoken = time.Now()
	if l.check != nil {
		return l.check(check, l.PgConn())
	}
	return l.Ping(check) //nolint:wrapcheck // as its own
}

// tell has the server do something.
func (l *listener) tell(ctx context.Context, sql string) error {
	call, cancel := context.WithTimeout(ctx, batch.Timeout)
	defer cancel()
	if _, err := l.Exec(call, sql); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.spoken = time.Now()
	return nil
}
