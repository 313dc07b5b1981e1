// Package accounts has the commands that manage depositors, people and programs.
package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage/setup"
)

// Institution is farol institution.
func Institution() *cobra.Command {
	return cli.Group("institution", "Register depositors", institutionAddCommand(), institutionSetCommand(), institutionListCommand(), institutionCORSCommand())
}

func institutionAddCommand() *cobra.Command {
	var config settings.Institution
	return op.Command{
		Use:   "add IDENTIFIER --name NAME",
		Short: "Register an institution and its buckets",
		Long: `Register an institution by its domain name, so that its receiving bucket is read.

By default the buckets are aptrust.receiving.IDENTIFIER and
aptrust.restore.IDENTIFIER. Whether they exist is not checked: create them, or add
--create-buckets; "farol check" reports missing ones. If FAROL_WEB_URL is set,
--create-buckets also allows uploads with a browser, as "institution cors" does.
Registering the same institution again changes nothing.`,
		Example: `  farol institution add example.edu --name 'Example University' --create-buckets
  farol institution add library.org --name 'A Library' --receiving-bucket library-in --restore-bucket library-out`,
		Arg:  "institution by its identifier",
		Here: true,
		Flags: []op.Flag{
			{Name: "name", Help: "name of the institution (required)"},
			{Name: "receiving-bucket", Help: "bucket that it deposits into"},
			{Name: "restore-bucket", Help: "bucket for its restored bags"},
			{Name: "create-buckets", Kind: op.Truth, Help: "create both buckets unless they exist"},
		},
		Check: func(c *op.Call) (err error) {
			if !c.Given("name") {
				return cli.Usage(errors.New("--name is missing"), "add --name 'Name of the institution'")
			}
			if c.Given("create-buckets") {
				config, err = connect.Load(settings.Institution{})
			}
			return err
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		in := record.Institution{
			Identifier: c.Arg, Name: c.Text("name"),
			ReceivingBucket: cmp.Or(c.Text("receiving-bucket"), "aptrust.receiving."+c.Arg),
			RestoreBucket:   cmp.Or(c.Text("restore-bucket"), "aptrust.restore."+c.Arg),
		}
		register := registerInstitution
		if c.Given("create-buckets") {
			register = func(ctx context.Context, c *op.Call, in record.Institution) (record.Institution, error) {
				return createAndRegister(ctx, c, in, config)
			}
		}
		added, err := register(ctx, c, in)
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, added, "%s is registered. It deposits into %s; restored bags go to %s.\n",
			added.Identifier, added.ReceivingBucket, added.RestoreBucket)
	})
}

// createAndRegister makes the buckets first: if we die between, a second run goes
// on, whereas a registered institution without buckets fails every reading.
func createAndRegister(ctx context.Context, c *op.Call, in record.Institution, config settings.Institution) (record.Institution, error) {
	s, err := connect.Open(ctx, "institution", connect.Needs{Database: &config.Database, S3: &config.S3})
	if err != nil {
		return in, err
	}
	defer s.Close()
	for _, name := range []string{in.ReceivingBucket, in.RestoreBucket} {
		b, err := s.Receiving(name)
		if err == nil {
			err = b.Create(ctx)
		}
		if err != nil {
			return in, cli.Failure{
				Code: cli.ExitFailed, Err: fmt.Errorf("create bucket %q: %w", name, err),
				Next: "check the FAROL_S3_… and AWS_… settings, or name other buckets with --receiving-bucket and --restore-bucket",
			}
		}
	}
	added, err := registerInstitution(ctx, c, in)
	if origin := config.Site.Origin(); err == nil && origin != "" {
		err = allowUploads(ctx, s, added.ReceivingBucket, origin)
	}
	return added, err
}

func registerInstitution(ctx context.Context, c *op.Call, in record.Institution) (record.Institution, error) {
	added, err := remote.Send[record.Institution](ctx, c.Server, http.MethodPost, "institutions", map[string]string{
		"identifier": in.Identifier, "name": in.Name, "receiving_bucket": in.ReceivingBucket, "restore_bucket": in.RestoreBucket,
	})
	if errors.Is(err, registry.ErrRefused) {
		if old, _ := institutionOf(ctx, c); old.Name == in.Name && old.ReceivingBucket == in.ReceivingBucket && old.RestoreBucket == in.RestoreBucket {
			return old, nil
		}
	}
	return added, remote.Next(err, "`farol institution list` shows which are taken; an identifier is a domain name in lower case, and each bucket has one owner")
}

func institutions(ctx context.Context, c *op.Call) ([]record.Institution, error) {
	return remote.List[record.Institution](ctx, c.Server, "institutions", nil, math.MaxInt)
}

// institutionOf is the one that a command names.
func institutionOf(ctx context.Context, c *op.Call) (record.Institution, error) {
	list, err := institutions(ctx, c)
	if i := slices.IndexFunc(list, func(in record.Institution) bool { return in.Identifier == c.Arg }); i >= 0 {
		return list[i], err
	}
	return record.Institution{}, remote.Next(cmp.Or(err, fmt.Errorf("look up institution %q: %w", c.Arg, registry.ErrNotFound)), "`farol institution list` lists the institutions")
}

func institutionSetCommand() *cobra.Command {
	var hours float64
	return op.Command{
		Use:   "set IDENTIFIER [--spot-restore-days N] [--deletion-wait TIME]",
		Short: "Set the test restorations of an institution, and how long its deletions wait",
		Long: `Have ` + "`farol schedule`" + ` restore a random object of an institution every N days, as a
test. The institution gets an alert with the result, and the bag in its restore bucket.
0 disables it.

Have approved deletions of the institution wait before anything is removed. TIME is such as
48h, 0 or 90m, up to 2160h; default returns to the time of the installation. Deletions that
are approved keep the time at which they begin.`,
		Example: `  farol institution set example.edu --spot-restore-days 30
  farol institution set example.edu --spot-restore-days 0
  farol institution set example.edu --deletion-wait 72h
  farol institution set example.edu --deletion-wait default`,
		Arg:  "institution by its identifier",
		Here: true,
		Flags: []op.Flag{
			{Name: "spot-restore-days", Param: "spot_restore_days", Kind: op.Number, Least: 0, Most: 3650, Help: "days between two test restorations; 0: none"},
			{Name: "deletion-wait", Kind: op.Exact, Help: "time that an approved deletion waits before anything is removed; default: as the installation"},
		},
		Check: func(c *op.Call) (err error) {
			if !c.Given("spot-restore-days") && !c.Given("deletion-wait") {
				return cli.Usage(errors.New("nothing is to be set"), "add --spot-restore-days N or --deletion-wait TIME")
			}
			hours, err = waitIn(c.Text("deletion-wait"))
			return err
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		in, err := institutionOf(ctx, c)
		if err != nil {
			return err
		}
		body := c.Body()
		if c.Given("deletion-wait") {
			body["deletion_wait_hours"] = hours
		}
		if in, err = remote.Send[record.Institution](ctx, c.Server, http.MethodPatch, remote.About("institutions", in.ID, ""), body); err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, in, "%s", settingsOf(c, in))
	})
}

// waitIn reads how long deletions wait, in hours; below 0: as long as the installation says.
func waitIn(text string) (float64, error) {
	if text == "" || text == "default" {
		return -1, nil
	}
	const most = 90 * 24 * time.Hour
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, cli.Usage(fmt.Errorf("--deletion-wait is %s", text), "give it a time from 0 to 2160h such as 48h, or default")
	}
	return d.Hours(), nil
}

// settingsOf says what holds now of what was given.
func settingsOf(c *op.Call, in record.Institution) (text string) {
	switch {
	case c.Given("spot-restore-days") && in.SpotRestoreDays == 0:
		text = fmt.Sprintf("No random objects of %s are restored.\n", in.Identifier)
	case c.Given("spot-restore-days"):
		text = fmt.Sprintf("A random object of %s is restored every %s.\n", in.Identifier, human.Count(in.SpotRestoreDays, "day", "days"))
	}
	switch {
	case c.Given("deletion-wait") && in.DeletionWait == nil:
		text += fmt.Sprintf("Approved deletions of %s wait as long as the installation says.\n", in.Identifier)
	case c.Given("deletion-wait"):
		text += fmt.Sprintf("Approved deletions of %s wait for %g hours.\n", in.Identifier, *in.DeletionWait)
	}
	return text
}

func institutionListCommand() *cobra.Command {
	return op.Command{
		Use:   "list",
		Short: "List institutions",
	}.Make(func(ctx context.Context, c *op.Call) error {
		list, err := institutions(ctx, c)
		if err != nil {
			return err
		}
		header := []string{"ID", "IDENTIFIER", "STATE", "RECEIVING BUCKET", "RESTORE BUCKET", "NAME"}
		return cli.PrintList(c.Cmd, c.JSON, list, "institutions", header, func(in record.Institution) []string {
			return []string{
				fmt.Sprint(in.ID), in.Identifier, in.State, human.Line(in.ReceivingBucket), human.Line(in.RestoreBucket), human.Line(in.Name),
			}
		})
	})
}

func institutionCORSCommand() *cobra.Command {
	var config settings.Institution
	return op.Command{
		Use:   "cors IDENTIFIER",
		Short: "Allow uploads with a browser to the receiving bucket of an institution",
		Long: `Add a rule to the CORS configuration of the receiving bucket, by which pages of
FAROL_WEB_URL may send the parts of bags that people deposit with a browser. Other rules
stay. "institution add --create-buckets" does the same; "farol check" reports buckets
without it.`,
		Example: `  farol institution cors example.edu
  farol institution cors example.edu --json`,
		Arg:  "institution by its identifier",
		Here: true,
		Check: func(*op.Call) (err error) {
			if config, err = connect.Load(settings.Institution{}); err == nil && config.Site.Origin() == "" {
				err = cli.Usage(errors.New("FAROL_WEB_URL is not set, so the origin of the pages is not known"), "set FAROL_WEB_URL to the URL that people use")
			}
			return err
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		in, err := institutionOf(ctx, c)
		if err != nil {
			return err
		}
		s, err := connect.Open(ctx, "institution", connect.Needs{Database: &config.Database, S3: &config.S3})
		if err != nil {
			return err
		}
		defer s.Close()
		origin := config.Site.Origin()
		if err := allowUploads(ctx, s, in.ReceivingBucket, origin); err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, map[string]string{"bucket": in.ReceivingBucket, "origin": origin}, "Pages of %s may upload to %s.\n", origin, in.ReceivingBucket)
	})
}

// allowUploads lets pages of an origin send to a receiving bucket.
func allowUploads(ctx context.Context, s *connect.Services, bucket, origin string) error {
	b, err := s.Receiving(bucket)
	if err == nil {
		err = setup.AllowUploads(ctx, b.Conn(), origin)
	}
	if err != nil {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("allow uploads from %s to bucket %q: %w", origin, bucket, err),
			Next: "allow PutBucketCORS and GetBucketCORS to the key in AWS_ACCESS_KEY_ID, or add the rule with the tools of your S3 service",
		}
	}
	return nil
}
