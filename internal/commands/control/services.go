package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// Services is farol services.
func Services() *cobra.Command {
	list := op.Command{
		Use:   "services",
		Short: "List the services that items need; hold or release one",
		Long: `List the services that workers need: Redis, every bucket, the virus scanner, and the
disk and settings of each process.

ok       no worker sees it fail
failing  it fails for the named workers, which claim nothing that needs it
held     it fails for most workers, or a person holds it: no worker claims what needs it

Waiting items spend no attempt, and work resumes automatically: each worker probes the
service, then tries one item, then all.

Exit codes: 0 all services are ok; 1 a service is not ok.`,
		Example: `  farol services
  farol services --failing
  farol services --json
  farol services hold s3:Wasabi-OR --reason 'Maintenance until noon.'
  farol services release s3:Wasabi-OR`,
		Flags: []op.Flag{{Name: "failing", Kind: op.Truth, Help: "only services that are not ok"}},
	}.Make(func(ctx context.Context, c *op.Call) error {
		list, err := remote.All[record.Service](ctx, c.Server, "services")
		if err != nil {
			return err
		}
		ok := func(s record.Service) bool { return s.State == "ok" }
		all := len(list)
		working := len(slices.DeleteFunc(slices.Clone(list), func(s record.Service) bool { return !ok(s) }))
		if c.Given("failing") {
			list = slices.DeleteFunc(list, ok)
		}
		if err := printServices(c, list); err != nil || working == all {
			return err
		}
		return cli.Failure{Code: cli.ExitFailed} // the list has said it
	})
	list.AddCommand(
		changesService(op.Command{
			Use:   "hold SERVICE",
			Short: "Hold a service: stop claims of items that need it",
			Long: `Hold a service: stop claims of items that need it, until it is released. Running items
and items that do not need it continue. farol services lists the names.`,
			Example: `  farol services hold s3:Wasabi-OR --reason 'Maintenance until noon.'
  farol services hold redis`,
			Flags: []op.Flag{{Name: "reason", Param: "reason", Kind: op.Reason, Help: "the reason, which why-not shows for items that wait"}},
		}),
		changesService(op.Command{
			Use:   "release SERVICE",
			Short: "Release a held service, and retry it now",
			Long: `Release a hold. Workers for which the service fails try one item now instead of at their
next probe; if that fails too, they hold the service again.`,
			Example: `  farol services release s3:Wasabi-OR`,
		}))
	return list
}

// changesService is a command that does to a service what it is called.
func changesService(c op.Command) *cobra.Command {
	c.Arg = "service"
	return c.Make(func(ctx context.Context, c *op.Call) error {
		var v struct{ Items []record.Service }
		if _, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: c.Path("services/{}/") + c.Cmd.Name(), Body: c.Body()}, &v); err != nil {
			return remote.Next(err, "`farol services` lists the services")
		}
		if err := printServices(c, v.Items); err != nil || c.Cmd.Name() == "hold" {
			return err
		}
		if slices.ContainsFunc(v.Items, func(s record.Service) bool { return s.Service == c.Arg && s.HeldBy != nil }) {
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still held by others", c.Arg), Next: "`farol resume --pause ID` ends one hold, no matter who made it"}
		}
		return nil
	})
}

func printServices(c *op.Call, list []record.Service) error {
	header := []string{"SERVICE", "STATE", "SINCE", "FAILING", "WAITING", ""}
	return cli.PrintList(c.Cmd, c.JSON, list, "services", header, func(s record.Service) []string {
		since, waiting := "", ""
		if s.Since != nil {
			since = human.Time(*s.Since)
		}
		if s.State != "ok" {
			waiting = strconv.FormatInt(s.Waiting, 10)
		}
		return []string{human.Line(s.Service), s.State, since, fmt.Sprintf("%d/%d", s.Failing, s.Workers), waiting, human.Line(s.Text)}
	})
}
