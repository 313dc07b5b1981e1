package control

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// Queue is farol queue.
func Queue() *cobra.Command {
	return cli.Group("queue", "Show the queues that programs use over HTTP", queueListCommand(), queueShowCommand())
}

func queueListCommand() *cobra.Command {
	return op.List[record.Queue]{
		Path: "queues", What: "queues", Header: []string{"QUEUE", "MESSAGES", "DEPTH", "OLDEST", "FAILED", "RECEIVERS"},
		Row: func(q record.Queue) []string {
			return []string{
				human.Line(q.Queue), human.Number(q.Messages), human.Number(q.Depth), human.Age(q.Oldest), human.Number(q.Failed), fmt.Sprint(len(q.Receivers)),
			}
		},
	}.All(op.Command{
		Use:   "list",
		Short: "List queues with their depth",
	})
}

func queueShowCommand() *cobra.Command {
	return op.Command{
		Use:   "show NAME",
		Short: "Show a queue and the position of each receiver",
		Example: `  farol queue show scans
  farol queue show scans --json`,
		Arg: "name",
	}.Make(func(ctx context.Context, c *op.Call) error {
		v, err := remote.Get[struct{ Items []record.Queue }](ctx, c.Server, "queues", remote.Query("queue", c.Arg))
		switch {
		case err != nil:
			return err
		case len(v.Items) == 0:
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no queue %q", c.Arg), Next: "`farol queue list` lists the queues"}
		}
		return cli.Print(c.Cmd, c.JSON, v.Items[0], printQueue)
	})
}

func printQueue(out io.Writer, q record.Queue) error {
	if !q.Pipeline {
		if _, err := fmt.Fprintf(out, "%s: %d messages, the last is %d\n", human.Line(q.Queue), q.Messages, q.Last); err != nil {
			return err
		}
	}
	rows := cli.Rows(q.Receivers, func(r record.QueueReceiver) []string {
		return []string{
			human.Line(r.Receiver), human.Number(r.Position), human.Number(r.Waiting), human.Number(r.Processing), human.Number(r.Delayed), human.Number(r.Failed), human.Age(r.Oldest), human.Time(r.PulledAt),
		}
	})
	return cli.WriteTable(out, []string{"RECEIVER", "POSITION", "WAITING", "PROCESSING", "DELAYED", "FAILED", "OLDEST", "LAST PULL"}, rows)
}
