package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// listenTime is how long a listener may receive nothing before it checks its connection:
// the node may be gone, or be a standby by now.
const listenTime = 10 * time.Second

// The first in line is a session that answers. The server ends one whose process is stopped, or
// whose host is gone, and the next in line is notified of new work.
const silentTime = "15s"

// inLine reports whether this process stands in line for new work: it has pools, and others may
// have the same.
func (w *worker) inLine() bool { return len(w.pools) > len("[]") }

// listener is the session in which a process receives notices.
type listener struct {
	*pgx.Conn
	ears

	check  func(ctx context.Context, conn *pgconn.PgConn) error // whether this is still the right server; nil: it answers
	spoken time.Time                                            // when the server last answered
}

// listen keeps one connection of its own and reads it always: one that is not
// read holds up the notices of everyone.
func (p *postgres) listen(ctx context.Context, e ears) error {
	conn, err := pgx.ConnectConfig(ctx, p.direct)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on how a listener ends
	l := &listener{Conn: conn, ears: e, check: p.direct.ValidateConnect}
	if err := l.tell(ctx, "SET idle_session_timeout = '"+silentTime+"'; LISTEN "+settingsChannel); err != nil {
		return err
	}
	l.heard(settingsChannel, "") // they may have changed before
	if e.line == "" {
		return l.hear(ctx, func() bool { return false })
	}
	var line int64
	if err := l.QueryRow(ctx, `SELECT hashtextextended('farol line ' || $1, 0)`, e.line).Scan(&line); err != nil {
		return fmt.Errorf("find the line of this worker: %w", err)
	}
	for {
		if err := l.receive(ctx, l.waits); err != nil {
			return err
		}
		first, err := l.stand(ctx, line)
		if err != nil {
			return err
		}
		if !first {
			continue
		}
		if err := l.hear(ctx, func() bool { return !l.waits() }); err != nil {
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
	if err := l.tell(ctx, "LISTEN "+workChannel); err != nil {
		return err
	}
	l.begun()
	if err := l.receive(ctx, enough); err != nil {
		return err
	}
	return l.tell(ctx, "UNLISTEN "+workChannel+"; SELECT pg_advisory_unlock_all()")
}

// receive receives notices until it is enough.
func (l *listener) receive(ctx context.Context, enough func() bool) error {
	for !enough() {
		n, err := l.next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("wait for notices: %w", err)
		case n != nil:
			l.heard(n.Channel, n.Payload)
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
	go func() {
		select {
		case <-quiet.Done():
		case <-l.turned:
			cancel()
		}
	}()
	n, err := l.WaitForNotification(quiet)
	if err != nil && ctx.Err() == nil && quiet.Err() != nil {
		return nil, nil
	}
	return n, err //nolint:wrapcheck // as its own
}

// ask asks the server whether it is there, and the right one.
func (l *listener) ask(ctx context.Context) error {
	check, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	l.spoken = time.Now()
	if l.check != nil {
		return l.check(check, l.PgConn())
	}
	return l.Ping(check) //nolint:wrapcheck // as its own
}

// tell has the server do something.
func (l *listener) tell(ctx context.Context, sql string) error {
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if _, err := l.Exec(call, sql); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.spoken = time.Now()
	return nil
}
