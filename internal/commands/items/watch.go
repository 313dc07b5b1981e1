package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const (
	// pollInterval is the time between two polls of an item.
	pollInterval = time.Second
	// pollTimeout is how long a poll may take.
	pollTimeout = 10 * time.Second
	// mostAway is how long the database may be unavailable.
	mostAway = 10 * time.Minute
)

func itemWatchCommand() *cobra.Command {
	return one(op.Command{
		Use:   "watch ID",
		Short: "Follow an item until it ends",
		Long: `Follow an item until it ends, or until Ctrl-C: its stage, files and bytes, the rate,
the time left, the files in progress and when the item will have ended. On a terminal
the display is redrawn each second; elsewhere there is a line for each change, with
--json an object. It survives outages of the database and of Redis.

Exit codes: 0 the item ended as Success; 1 it is Failed, Suspended or Cancelled;
2 unknown result: there is no such item, it was interrupted, or the database did
not answer for ten minutes.`,
		Within: -1,
	}).Make(func(ctx context.Context, c *op.Call) error {
		return (&watcher{server: c.Server, id: c.ID, warnings: c.Cmd.ErrOrStderr()}).watch(ctx, c.Cmd.OutOrStdout(), c.JSON)
	})
}

// watch shows the item until it has ended.
func (w *watcher) watch(ctx context.Context, out io.Writer, asJSON bool) error {
	f, ok := out.(*os.File)
	var show display = &changes{out: out, asJSON: asJSON}
	if ok && cli.IsTerminal(f) && !asJSON {
		show = &picture{out: f}
	}
	item, err := w.follow(ctx, show)
	switch {
	case err != nil:
		return err
	case item.Status == "Success":
		return nil
	}
	return cli.Failure{
		Code: cli.ExitFailed, Err: fmt.Errorf("item %d ended as %s at %s", w.id, item.Status, item.Stage),
		Next: fmt.Sprintf("`farol item explain %d` explains why, and what to do", w.id),
	}
}

// watcher polls one item.
type watcher struct {
	server   *remote.Server
	id       int64
	warnings io.Writer
	redisOut bool // Redis was unavailable at the last poll
}

// display shows the results of polls.
type display interface {
	show(l explain.Snapshot) error
	// interrupt makes room for a message.
	interrupt()
}

// follow polls until the item has ended. An outage of the database is reported once, and
// waited out.
func (w *watcher) follow(ctx context.Context, d display) (record.WorkItem, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var away time.Time // since when the database is unavailable
	for {
		l, err := w.poll(ctx, d)
		switch {
		case ctx.Err() != nil:
			return l.Item, cli.Failure{Code: cli.ExitUsage, Err: context.Canceled}
		case errors.Is(err, registry.ErrNotFound):
			return l.Item, cli.Failure{Code: cli.ExitUsage, Err: err, Next: "`farol item list` lists the items"}
		case remote.Final(err):
			return l.Item, err
		case err != nil && away.IsZero():
			away = time.Now()
			d.interrupt()
			fmt.Fprintf(w.warnings, "The %s does not answer; trying again: %v\n", w.name(), err)
		case err != nil && time.Since(away) > mostAway:
			return l.Item, cli.Failure{Code: cli.ExitUsage, Err: err, Next: "check that the " + w.name() + " is running, and that its URL is right"}
		case err == nil:
			if !away.IsZero() {
				away = time.Time{}
				d.interrupt()
				fmt.Fprintf(w.warnings, "The %s answers again.\n", w.name())
			}
			if err := d.show(l); err != nil || !l.Item.Retry {
				return l.Item, err
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// poll asks the database and Redis. Either may be unavailable.
func (w *watcher) poll(ctx context.Context, d display) (explain.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	l, unread, err := snapshotOf(ctx, w.server, w.id)
	if away := unread != nil; err == nil && away != w.redisOut && ctx.Err() == nil {
		w.redisOut = away
		d.interrupt()
		if away {
			fmt.Fprintln(w.warnings, "The progress of files is not known:", unread)
		} else {
			fmt.Fprintln(w.warnings, "The progress of files is known again.")
		}
	}
	return l, err
}

// snapshotOf is how far an item is. unread is why no more than its stage is known.
func snapshotOf(ctx context.Context, s *remote.Server, id int64) (l explain.Snapshot, unread, err error) {
	l, err = remote.Get[explain.Snapshot](ctx, s.Once(), remote.About("items", id, "/progress"), nil)
	var answer *client.Error
	if err == nil || !errors.As(err, &answer) || answer.Status != http.StatusServiceUnavailable {
		return l, nil, err
	}
	unread = answer
	shown, err := remote.Get[struct {
		record.WorkItem
		record.Times
	}](ctx, s.Once(), remote.About("items", id, ""), nil)
	if err != nil {
		return l, nil, err
	}
	item := shown.WorkItem
	l = explain.Snapshot{Times: shown.Times, Time: time.Now(), Item: item, State: explain.State(item, time.Now())}
	l.Current.Stage = item.Stage
	return l, unread, nil
}

// name is what the watcher asks, as people call it.
func (w *watcher) name() string {
	if w.server.Here() {
		return "database"
	}
	return "server"
}

// changes writes a line for each change.
type changes struct {
	out    io.Writer
	asJSON bool

	last     string
	reported time.Time
}

// mostSilence is how long small changes of figures are not reported.
const mostSilence = time.Minute

func (c *changes) interrupt() {}

func (c *changes) show(l explain.Snapshot) error {
	i := l.Item
	state := fmt.Sprint(i.Status, i.Stage, i.ClaimToken, i.Note)
	if share, ok := l.Current.Share(); ok {
		state += fmt.Sprint(int(100 * share))
	}
	moves := l.Current.IdleSeconds != nil && l.Time.Sub(c.reported) > mostSilence
	if state == c.last && !moves {
		return nil
	}
	c.last, c.reported = state, l.Time
	if c.asJSON {
		if err := json.NewEncoder(c.out).Encode(l); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return nil
	}
	text := fmt.Sprintf("%s  %s at %s", human.Time(l.Time), i.Status, l.Current.Place())
	switch {
	case i.Status == "Started" && l.Current.FilesDone != nil:
		text += ": " + l.Current.Done() + "; " + l.Current.Pace()
	case i.Status == "Started":
	case !i.Retry && i.Status != "Success":
		text += ": " + human.Line(i.Note)
	default:
		text += ": " + l.State
	}
	if ends := explain.EndsIn(l.End, l.Unknown, l.Time); ends != "" {
		text += "; end: " + ends
	}
	if _, err := fmt.Fprintln(c.out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
