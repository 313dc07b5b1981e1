package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func readBucketsCommand() *cobra.Command {
	var once, asJSON bool
	var interval time.Duration
	c := &cobra.Command{
		Use:   "read-buckets",
		Short: "Create a work item for each new bag in the receiving buckets",
		Long: `Look into the receiving bucket of every institution and make a work item for each
tar that has none, again and again until SIGTERM or Ctrl-C. It is the job
read-buckets of ` + "`farol schedule`" + ` alone: any number of both may run at once, and one of
them looks at a time. --once looks whoever else does; a bag gets one item all the
same.`,
		Example: `  farol read-buckets --once
  farol read-buckets --once --json
  farol read-buckets --interval 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("interval") && interval <= 0 {
				return cli.Usage(fmt.Errorf("--interval is %v", interval), "name a time such as 30s")
			}
			if asJSON && !once {
				return cli.Usage(errors.New("--json goes with --once"), "the log says what a service does: FAROL_LOG_FORMAT=json")
			}
			err := readBuckets(cmd.Context(), cmd.OutOrStdout(), once, interval, asJSON)
			if once {
				return err
			}
			return orderly(cmd.Context(), err)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "look once and exit")
	c.Flags().DurationVar(&interval, "interval", 0, "time between two looks (default FAROL_READ_INTERVAL)")
	cli.JSONFlag(c, &asJSON)
	return c
}

func readBuckets(ctx context.Context, out io.Writer, once bool, interval time.Duration, asJSON bool) error {
	config, err := connect.Load(settings.ReadBucketReader)
	if err != nil {
		return err
	}
	if interval <= 0 {
		interval = config.Read.Interval
	}
	if interval <= 0 && !once {
		return cli.Usage(errors.New("FAROL_READ_INTERVAL is 0: the buckets are not to be read"), "set it, or give --interval or --once")
	}
	s, err := connect.Open(ctx, "read-buckets", connect.Needs{Database: &config.Database, S3: &config.S3})
	if err != nil {
		return err
	}
	defer s.Close()
	c := newScheduling("read-buckets", s, settings.Scheduler{Database: config.Database, Log: config.Log, HTTP: config.HTTP}, []string{upkeep.ReadBucketsJob})
	if !once {
		c.Jobs = []upkeep.Job{c.reader().Job(interval)}
		return c.serve(ctx, "read-buckets")
	}
	created, err := c.reader().ReadAll(ctx)
	if err != nil {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: err,
			Next: "the buckets that could be read were; for the others see the FAROL_S3_… and AWS_… settings and `farol institution list`",
		}
	}
	if asJSON {
		return errors.Join(err, cli.WriteJSON(out, map[string]int{"created": created}))
	}
	_, writeErr := fmt.Fprintf(out, "%s made.\n", human.Count(created, "work item", "work items"))
	return errors.Join(err, writeErr)
}
