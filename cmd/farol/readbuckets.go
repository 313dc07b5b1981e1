package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func readBucketsCommand() *cobra.Command {
	return op.Command{
		Use:   "read-buckets",
		Short: "Create a work item for each new bag in the receiving buckets",
		Long: `List the receiving bucket of every institution and create a work item for each tar
that has none, repeatedly until SIGTERM or Ctrl-C. This is the job read-buckets of
` + "`farol schedule`" + `: any number of both may run, and one process scans at a time. With
--once, scan now even if another process is scanning; each bag still gets one item.`,
		Example: `  farol read-buckets --once
  farol read-buckets --once --json
  farol read-buckets --interval 30s`,
		Flags: []op.Flag{
			{Name: "once", Kind: op.Truth, Help: "scan once and exit"},
			{Name: "interval", Kind: op.Seconds, Help: "time between two scans (default FAROL_READ_INTERVAL)"},
		},
	}.Alone(func(c *op.Call) error {
		once := c.Given("once")
		if c.Given("interval") && c.Duration("interval") <= 0 {
			return cli.Usage(fmt.Errorf("--interval is %v", c.Duration("interval")), "name a time such as 30s")
		}
		if c.JSON && !once {
			return cli.Usage(errors.New("--json goes with --once"), "for a service, set FAROL_LOG_FORMAT=json: its log is JSON then")
		}
		err := readBuckets(c, once)
		if once {
			return err
		}
		return orderly(c.Cmd.Context(), err)
	})
}

func readBuckets(call *op.Call, once bool) error {
	ctx := call.Cmd.Context()
	config, err := connect.Load(settings.BucketReader{})
	if err != nil {
		return err
	}
	interval := cmp.Or(call.Duration("interval"), config.Read.Interval)
	if interval <= 0 && !once {
		return cli.Usage(errors.New("FAROL_READ_INTERVAL is 0, which disables the reading of buckets"), "set it, or give --interval or --once")
	}
	s, err := connect.Open(ctx, "read-buckets", connect.Needs{Database: &config.Database, S3: &config.S3, Log: connect.NewLogger(config.Log)})
	if err != nil {
		return err
	}
	defer s.Close()
	c := newScheduling("read-buckets", s, settings.Scheduler{Database: config.Database, Log: config.Log, Traces: config.Traces, HTTP: config.HTTP, Read: config.Read, S3: &config.S3}, []string{upkeep.ReadBucketsJob})
	if !once {
		c.Jobs = []upkeep.Job{c.reader().Job(interval)}
		return c.serve(ctx, "read-buckets")
	}
	created, err := c.reader().ReadAll(ctx)
	if err != nil {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: err,
			Next: "check the FAROL_S3_… and AWS_… settings and `farol institution list`; the other buckets were read",
		}
	}
	return errors.Join(err, cli.Printf(call.Cmd, call.JSON, map[string]int{"created": created}, "%s created.\n", human.Count(created, "work item", "work items")))
}
