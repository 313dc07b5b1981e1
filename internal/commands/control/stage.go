// Package control has the commands that control stages, workers, services and queues.
package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// Stage is farol stage.
func Stage() *cobra.Command {
	return cli.Group("stage", "List and change stages, and add stages that other programs process", stageListCommand(), stageAddCommand(), stageSetCommand(), stageRemoveCommand())
}

func stageListCommand() *cobra.Command {
	return stages().All(op.Command{
		Use:   "list",
		Short: "List stages in their order, with workers and item counts",
	})
}

// stages is a list of stages.
func stages() op.List[record.QueueStage] {
	return op.List[record.QueueStage]{
		Path: "stages", What: "stages", Header: []string{"STAGE", "ACTION", "WORKER", "TOPIC", "ATTEMPTS", "CAP", "LEASE", "WAITING", "RUNNING", "PARKED", ""},
		Row: func(s record.QueueStage) []string {
			state, most := "", "-"
			if s.Paused {
				state = "paused"
				for _, p := range s.Pauses {
					state += fmt.Sprintf("; pause %d, %s", p.ID, human.Pause(p.By, p.Since, p.Reason))
				}
			}
			if s.Cap > 0 {
				most = strconv.Itoa(s.Cap)
			}
			return []string{
				string(s.Stage), string(s.Action), s.Worker, s.Topic, strconv.Itoa(s.MaxAttempts), most, human.Duration(human.Seconds(s.Lease)),
				human.Number(s.Waiting), human.Number(s.Running), human.Number(s.Parked), state,
			}
		},
	}
}

func stageAddCommand() *cobra.Command {
	return op.Command{
		Use:   "add NAME --after STAGE --worker http",
		Short: "Add an ingest stage that programs process over HTTP",
		Long: `Add a stage to the order of an ingest, after another one. Programs in any language
process it and claim its items over HTTP: docs/workers.md. Workers learn of the stage
within seconds; bags that finish the stage before it in these seconds skip it. The name
has letters, digits and single spaces, and begins with a capital.`,
		Example: `  farol stage add 'Virus Scan' --after Validate --worker http
  farol stage add OCR --after 'Format Identification' --worker http --topic ocr --max-attempts 5 --lease 2m --heartbeat 20s --timeout 6h --json`,
		Arg: "stage",
		Flags: []op.Flag{
			{Name: "after", Param: "after", Kind: op.Stage, Help: "the stage before it"},
			{Name: "worker", Help: "what processes it: http"},
			{Name: "topic", Param: "topic", Help: "its NSQ topic (default ingest_ and its name)"},
			{Name: "max-attempts", Param: "max_attempts", Kind: op.Number, Default: 3, Least: 1, Most: 1000, Help: "attempts after which an item waits for a person"},
			{Name: "lease", Param: "lease_seconds", Kind: op.Seconds, Default: 30 * time.Second, Help: "time without a heartbeat after which a worker loses the item; at least three heartbeats"},
			{Name: "heartbeat", Param: "heartbeat_seconds", Kind: op.Seconds, Help: "time between two heartbeats (default a third of the lease, 10s at most)"},
			{Name: "timeout", Param: "timeout_seconds", Kind: op.Seconds, Help: "how long the stage may take; 0: no limit"},
		},
		Check: checkNew,
	}.Make(func(ctx context.Context, c *op.Call) error {
		body := c.Body()
		body["name"] = c.Arg
		s, err := remote.Send[record.QueueStage](ctx, c.Server, http.MethodPost, "stages", body)
		if err != nil {
			return remote.Next(err, "`farol stage list` shows the stages")
		}
		return cli.Printf(c.Cmd, c.JSON, s, "%s comes after %s now, with the topic %s. Its items wait until programs claim them: docs/workers.md.\n", s.Stage, c.Text("after"), s.Topic)
	})
}

// checkNew refuses a stage that cannot be added.
func checkNew(c *op.Call) error {
	lease, heartbeat := c.Duration("lease"), c.Duration("heartbeat")
	switch {
	case c.Text("worker") != "http":
		return cli.Usage(fmt.Errorf("--worker is %q", c.Text("worker")), "give --worker http: only programs over HTTP process added stages")
	case !c.Given("after"):
		return cli.Usage(errors.New("--after is missing"), "name the stage before it: `farol stage list` shows the stages")
	case lease <= 0 || lease < 3*heartbeat:
		return cli.Usage(fmt.Errorf("--lease is %v and --heartbeat is %v", lease, heartbeat), "give a lease of at least three heartbeats")
	}
	return errors.Join(notNegative("--heartbeat", heartbeat), notNegative("--timeout", c.Duration("timeout")))
}

func notNegative(flag string, d time.Duration) error {
	if d < 0 {
		return cli.Usage(fmt.Errorf("%s is %v", flag, d), "give a duration such as 30s or 6h, or 0")
	}
	return nil
}

func stageSetCommand() *cobra.Command {
	return op.Command{
		Use:   "set STAGE",
		Short: "Set the cap, timeout and maximum attempts of a stage",
		Long: `Set the cap of a stage over all processes, its processing timeout, and the attempts after
which an item waits for a person. Workers apply a change within five seconds.`,
		Example: `  farol stage set Record --cap 4
  farol stage set Receive --timeout 6h --max-attempts 5
  farol stage set Requested --action Delete --cap 2 --json`,
		Arg: "stage",
		Flags: []op.Flag{
			{Name: "action", Param: "action", Among: values.Names(values.Actions), Help: "only for this action"},
			{Name: "cap", Param: "cap", Kind: op.Number, Least: 0, Most: math.MaxInt32, Help: "items at the stage at the same time in all processes; 0: no limit"},
			{Name: "timeout", Param: "timeout_seconds", Kind: op.Seconds, Help: "how long the stage may take; 0: no limit"},
			{Name: "max-attempts", Param: "max_attempts", Kind: op.Number, Least: 1, Most: 1000, Help: "attempts after which an item waits for a person"},
		},
		Check: func(c *op.Call) error {
			if !c.Given("cap") && !c.Given("timeout") && !c.Given("max-attempts") {
				return cli.Usage(errors.New("no setting is named"), "add --cap, --timeout or --max-attempts")
			}
			return notNegative("--timeout", c.Duration("timeout"))
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		stage, err := values.Stage(ctx, c.Server, "the stage", record.Stage(c.Arg))
		if err != nil {
			return err
		}
		body := c.Body()
		body["stage"] = stage
		v, err := remote.Send[struct{ Items []record.QueueStage }](ctx, c.Server, http.MethodPatch, "stages", body)
		switch {
		case err != nil:
			return err
		case len(v.Items) == 0:
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no settings for that", stage), Next: "`farol stage list` shows the stages and their actions"}
		}
		return stages().Write(c, v.Items)
	})
}

func stageRemoveCommand() *cobra.Command {
	return op.Command{
		Use:   "remove NAME",
		Short: "Remove an added stage",
		Long: `Remove an added stage, if no item waits or runs at it. Items that are parked at it stay
parked, and can be requeued to another stage.`,
		Example: `  farol stage remove 'Virus Scan'
  farol stage remove OCR --json`,
		Arg: "stage",
	}.Make(func(ctx context.Context, c *op.Call) error {
		name, err := values.Stage(ctx, c.Server, "the stage", record.Stage(c.Arg))
		if err != nil {
			return err
		}
		var s record.QueueStage
		if _, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: "stages/Ingest/" + url.PathEscape(string(name))}, &s); err != nil {
			return remote.Next(err, fmt.Sprintf("`farol item list --stage '%s'` shows its items; `farol pause '%s'` pauses it", name, name))
		}
		text := fmt.Sprintf("%s is removed.\n", s.Stage)
		if s.Parked > 0 {
			text += fmt.Sprintf("%s parked at it: farol plan requeue --stage '%s' --to STAGE\n", human.Count(s.Parked, "item is", "items are"), s.Stage)
		}
		return cli.Printf(c.Cmd, c.JSON, s, "%s", text)
	})
}
