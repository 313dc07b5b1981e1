package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/nsqcompat"
	"github.com/farol-preservation/farol/preflight"
)

func mirrorCommand() *cobra.Command {
	var wait waiting
	c := op.Command{
		Use:   "mirror",
		Short: "Mirror the queue to NSQ for existing dashboards",
		Long: `Show the queue in nsqd, until SIGTERM or Ctrl-C. The mirror publishes every transition
between stages on the topics of the pipeline's predecessor and consumes the messages as
its workers did, so that nsqd's figures are those of the queue.

A message that another program publishes on these topics requeues an item. A pause in
nsqadmin pauses the stage; an unpause there does not end a pause made in Farol.
FAROL_NSQ_ORDERS=off ignores such messages and pauses.

The pipeline does not wait for the mirror: while nsqd is down it continues, and the
mirror catches up later. If several mirrors run, one is active and the others stand by.

With --reconcile, have the active mirror compare both sides now, print the result and
exit. If no mirror runs, this process compares them.

Exit codes: 0 success; 1 failure, or --reconcile left differences; 2 usage error.`,
		Example: `  farol mirror
  farol mirror --reconcile
  farol mirror --reconcile --timeout 1m --json
  farol mirror status`,
		Flags: []op.Flag{
			{Name: "reconcile", Kind: op.Truth, Help: "correct nsqd's figures by the registry's, and exit"},
			{Name: "timeout", Kind: op.Seconds, Default: 30 * time.Second, Help: "how long --reconcile may take"},
		},
	}.Alone(func(c *op.Call) error {
		if c.Given("reconcile") {
			return reconcileMirror(c)
		}
		if c.JSON || c.Cmd.Flags().Changed("timeout") {
			return cli.Usage(errors.New("--json and --timeout go with --reconcile"), "farol mirror status --json shows the figures")
		}
		return orderly(c.Cmd.Context(), runMirror(c.Cmd.Context(), wait))
	})
	wait.flag(c, startWait)
	c.AddCommand(mirrorStatusCommand())
	return c
}

func runMirror(ctx context.Context, wait waiting) error {
	config, err := connect.Load(settings.Mirror{})
	if err != nil {
		return err
	}
	log := connect.NewLogger(config.Log)
	s, err := wait.open(ctx, preflight.Surroundings{Command: "mirror", Database: &config.Database}, config.HTTP, log)
	if err != nil {
		return err
	}
	defer s.Close()
	mirror := newMirror(config, s)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(monitor.NewMirror(mirror))
	ends, traces, err := endsOf(ctx, "mirror", config.Traces, metrics, log)
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	work := func() error { return reaping(ctx, s.DB, ends, log, mirror.Run) }
	return watched(ctx, stop, work, func(ctx context.Context, ready readiness) error {
		return serveQueue(ctx, "mirror", s, config.Database, config.HTTP, ready, log, metrics)
	})
}

func newMirror(c settings.Mirror, s *connect.Services) *nsqcompat.Mirror {
	return nsqcompat.NewMirror(s.DB, nsqcompat.MirrorOptions{
		NSQDTCPAddr: c.NSQ.TCPAddr, NSQDHTTPAddr: c.NSQ.HTTPAddr, LookupdAddr: c.NSQ.LookupdAddr,
		NoOrders: c.NSQ.Orders == "off", FixityDays: c.Fixity.Days, Log: connect.NewLogger(c.Log),
	})
}

func mirrorStatusCommand() *cobra.Command {
	return op.Command{
		Use:   "status",
		Short: "Compare the registry with nsqd",
		Long: `Show the figures of each topic in the registry and in nsqd, whether or not a mirror
runs. With --requests, show the requests that arrived through NSQ and their answers.

Exit codes: 0 success; 1 nsqd or the database does not answer; 2 usage error.`,
		Example: `  farol mirror status
  farol mirror status --json
  farol mirror status --requests`,
		Flags: []op.Flag{{Name: "requests", Kind: op.Truth, Help: "show the requests that arrived through NSQ"}},
	}.Alone(func(c *op.Call) error {
		ctx, cancel := context.WithTimeout(c.Cmd.Context(), time.Minute)
		defer cancel()
		if c.Given("requests") {
			return showRequests(ctx, c)
		}
		return withMirror(ctx, func(m *nsqcompat.Mirror) error {
			status, err := m.Status(ctx)
			if err != nil {
				return err
			}
			return cli.Print(c.Cmd, c.JSON, status, printMirror)
		})
	})
}

// withMirror does something with a mirror that does not run.
func withMirror(ctx context.Context, do func(*nsqcompat.Mirror) error) error {
	config, err := connect.Load(settings.Mirror{})
	if err != nil {
		return err
	}
	s, err := connect.Open(ctx, "mirror", connect.Needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	if err = do(newMirror(config, s)); errors.Is(err, nsqcompat.ErrNoNSQD) {
		err = cli.Failure{Code: cli.ExitFailed, Err: err, Next: "check FAROL_NSQD_HTTP_ADDR, or FAROL_NSQLOOKUPD_HTTP_ADDR, and that nsqd is running; the pipeline does not need it"}
	}
	return err
}

func reconcileMirror(c *op.Call) error {
	return withMirror(c.Cmd.Context(), func(m *nsqcompat.Mirror) error {
		ctx, cancel := context.WithTimeout(c.Cmd.Context(), c.Duration("timeout"))
		defer cancel()
		status, err := m.Reconcile(ctx)
		if err != nil {
			return err
		}
		if err := cli.Print(c.Cmd, c.JSON, status, printMirror); err != nil {
			return err
		}
		if drift := status.Drift(); drift > 0 || status.Behind > 0 {
			return cli.Failure{
				Code: cli.ExitFailed, Err: fmt.Errorf("nsqd is off by %d messages, and %d are not published yet", drift, status.Behind),
				Next: "if the queue is busy, run it again; otherwise see the log of farol mirror",
			}
		}
		return nil
	})
}

func printMirror(out io.Writer, s nsqcompat.Status) error {
	var rows [][]string
	for _, t := range s.Topics {
		rows = append(rows, []string{
			human.Line(t.Topic), human.Number(t.Claimable), human.Number(t.Depth), human.Number(t.Running), human.Number(t.InFlight), human.Number(t.Later), human.Number(t.Deferred),
			human.Number(t.Requeued), human.Number(t.Finished), human.Number(t.Drift), pausedWhere(t),
		})
	}
	head := []string{"TOPIC", "CLAIMABLE", "DEPTH", "RUNNING", "IN FLIGHT", "LATER", "DEFERRED", "REQUEUED", "FINISHED", "DRIFT", "PAUSED"}
	if err := cli.WriteTable(out, head, rows); err != nil {
		return err
	}
	if s.Behind > 0 {
		fmt.Fprintf(out, "%s not published yet, the first for %s.\n", human.Count(s.Behind, "message is", "messages are"), human.Duration(s.Oldest))
	}
	who := "No mirror is running: start farol mirror."
	switch {
	case s.Leader != nil && s.Leader.Since == nil:
		who = fmt.Sprintf("%s mirrors to nsqd at %s. Grant pg_read_all_stats to this database user to see where it runs.", human.Line(s.Leader.Program), human.Line(s.NSQD))
	case s.Leader != nil:
		who = fmt.Sprintf("%s at %s mirrors to nsqd at %s since %s.", human.Line(s.Leader.Program), human.Line(s.Leader.Client), human.Line(s.NSQD), human.Time(*s.Leader.Since))
	}
	_, err := fmt.Fprintln(out, who)
	return err
}

func pausedWhere(t nsqcompat.TopicFigures) string {
	switch {
	case t.PausedInFarol && t.PausedInNSQ:
		return "yes"
	case t.PausedInFarol:
		return "in Farol"
	case t.PausedInNSQ:
		return "in NSQ"
	}
	return "no"
}

func showRequests(ctx context.Context, c *op.Call) error {
	s, err := connect.Registry(ctx, "mirror")
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := nsqcompat.NewMirror(s.DB, nsqcompat.MirrorOptions{}).Requests(ctx, 1000)
	if err != nil {
		return err
	}
	return cli.PrintList(c.Cmd, c.JSON, list, "requests from NSQ", []string{"AT", "TOPIC", "MESSAGE", "ANSWER"}, func(r nsqcompat.TopicRequest) []string {
		answer := "refused: "
		if r.Accepted {
			answer = "accepted: "
		}
		return []string{human.Time(r.At), human.Line(r.Topic), human.Line(r.Body), answer + human.Line(r.Answer)}
	})
}
