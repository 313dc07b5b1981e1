package control

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// Queue is farol queue.
func Queue() *cobra.Command {
	return cli.Group("queue", "Show the queues that programs use over HTTP", queueListCommand(), queueShowCommand())
}

// mostQueues bounds what is shown of queues, and of receivers.
const mostQueues = 10_000

func queueListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List queues with their depth",
		Example: `  farol queue list
  farol queue list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				list, err := r.Queues(ctx, "", mostQueues)
				if err != nil {
					return err
				}
				return cli.PrintList(cmd, asJSON, list, "queues", []string{"QUEUE", "MESSAGES", "DEPTH", "OLDEST", "FAILED", "RECEIVERS"}, func(q registry.Queue) []string {
					return []string{
						human.Line(q.Queue), human.Number(q.Messages), human.Number(q.Depth), human.Age(q.Oldest), human.Number(q.Failed), fmt.Sprint(len(q.Receivers)),
					}
				})
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func queueShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a queue and the position of each receiver",
		Example: `  farol queue show scans
  farol queue show scans --json`,
		Args: cli.OneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				list, err := r.Queues(ctx, args[0], mostQueues)
				if err != nil {
					return err
				}
				if len(list) == 0 {
					return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no queue %q", args[0]), Next: "`farol queue list` lists the queues"}
				}
				return cli.Print(cmd, asJSON, list[0], printQueue)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func printQueue(out io.Writer, q registry.Queue) error {
	if !q.Pipeline {
		if _, err := fmt.Fprintf(out, "%s: %d messages, the last is %d\n", human.Line(q.Queue), q.Messages, q.Last); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, r := range q.Receivers {
		rows = append(rows, []string{
			human.Line(r.Receiver), human.Number(r.Position), human.Number(r.Waiting), human.Number(r.Processing), human.Number(r.Delayed), human.Number(r.Failed), human.Age(r.Oldest), human.Time(r.PulledAt),
		})
	}
	return cli.WriteTable(out, []string{"RECEIVER", "POSITION", "WAITING", "PROCESSING", "DELAYED", "FAILED", "OLDEST", "LAST PULL"}, rows)
}
