// Package accounts has the commands that manage depositors, people and programs.
package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
)

// Institution is farol institution.
func Institution() *cobra.Command {
	return cli.Group("institution", "Register depositors", institutionAddCommand(), institutionSetCommand(), institutionListCommand(), institutionCORSCommand())
}

func institutionAddCommand() *cobra.Command {
	var in registry.Institution
	var create, asJSON bool
	c := &cobra.Command{
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
		Args: cli.OneArg("institution by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.Name == "" {
				return cli.Usage(errors.New("--name is missing"), "add --name 'Name of the institution'")
			}
			in.Identifier = args[0]
			in.ReceivingBucket = cmp.Or(in.ReceivingBucket, "aptrust.receiving."+in.Identifier)
			in.RestoreBucket = cmp.Or(in.RestoreBucket, "aptrust.restore."+in.Identifier)
			added, err := addInstitution(cmd.Context(), in, create)
			if err != nil {
				return err
			}
			return cli.Printf(cmd, asJSON, added, "%s is registered. It deposits into %s; restored bags go to %s.\n",
				added.Identifier, added.ReceivingBucket, added.RestoreBucket)
		},
	}
	c.Flags().StringVar(&in.Name, "name", "", "name of the institution (required)")
	c.Flags().StringVar(&in.ReceivingBucket, "receiving-bucket", "", "bucket that it deposits into")
	c.Flags().StringVar(&in.RestoreBucket, "restore-bucket", "", "bucket for its restored bags")
	c.Flags().BoolVar(&create, "create-buckets", false, "create both buckets unless they exist")
	cli.JSONFlag(c, &asJSON)
	return c
}

// addInstitution makes the buckets first: if we die between, a second run goes
// on, whereas a registered institution without buckets fails every reading.
func addInstitution(ctx context.Context, in registry.Institution, create bool) (registry.Institution, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !create {
		s, err := connect.Registry(ctx, "institution")
		if err != nil {
			return registry.Institution{}, err
		}
		defer s.Close()
		return register(ctx, s, in)
	}
	config, err := connect.Load(settings.ReadInstitution)
	if err != nil {
		return registry.Institution{}, err
	}
	s, err := connect.Open(ctx, "institution", connect.Needs{Database: &config.Database, S3: &config.S3})
	if err != nil {
		return registry.Institution{}, err
	}
	defer s.Close()
	for _, name := range []string{in.ReceivingBucket, in.RestoreBucket} {
		b, err := s.Receiving(name)
		if err == nil {
			err = b.Create(ctx)
		}
		if err != nil {
			return registry.Institution{}, cli.Failure{
				Code: cli.ExitFailed, Err: fmt.Errorf("create bucket %q: %w", name, err),
				Next: "check the FAROL_S3_… and AWS_… settings, or name other buckets with --receiving-bucket and --restore-bucket",
			}
		}
	}
	added, err := register(ctx, s, in)
	if origin := config.Site.Origin(); err == nil && origin != "" {
		err = allowUploads(ctx, s, added.ReceivingBucket, origin)
	}
	return added, err
}

func register(ctx context.Context, s *connect.Services, in registry.Institution) (registry.Institution, error) {
	entry := registry.AuditEntry{Operation: "institutions.add", SubjectType: "institution", SubjectID: in.Identifier}
	added, err := registry.Acted(ctx, s.Registry, registry.Actor{}, &entry, func(ctx context.Context) (registry.Institution, error) {
		added, err := s.Registry.AddInstitution(ctx, in)
		entry.Institution = added.ID
		return added, err
	})
	if errors.Is(err, registry.ErrRefused) {
		list, listErr := institutions(ctx, s.Registry)
		for _, old := range list {
			if old.Identifier == in.Identifier && old.Name == in.Name && old.ReceivingBucket == in.ReceivingBucket && old.RestoreBucket == in.RestoreBucket {
				return old, listErr
			}
		}
		err = cli.Failure{
			Code: cli.ExitFailed, Err: err,
			Next: "`farol institution list` shows which are taken; an identifier is a domain name in lower case, and each bucket has one owner",
		}
	}
	return added, err
}

// institutionSettings is the flags of farol institution set.
type institutionSettings struct {
	days         int
	wait         string
	asJSON       bool
	daysAre, set bool // whether each was given
}

func institutionSetCommand() *cobra.Command {
	var f institutionSettings
	c := &cobra.Command{
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
		Args: cli.OneArg("institution by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.daysAre, f.set = cmd.Flags().Changed("spot-restore-days"), cmd.Flags().Changed("deletion-wait")
			if !f.daysAre && !f.set {
				return cli.Usage(errors.New("nothing is to be set"), "add --spot-restore-days N or --deletion-wait TIME")
			}
			if err := cli.InRange("--spot-restore-days", f.days, 0, 3650); err != nil {
				return err
			}
			hours, err := waitIn(f.wait)
			if err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				in, err := f.change(ctx, r, args[0], hours)
				switch {
				case errors.Is(err, registry.ErrNotFound):
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol institution list` lists the institutions"}
				case err != nil:
					return err
				}
				return cli.Printf(cmd, f.asJSON, in, "%s", f.text(in))
			})
		},
	}
	c.Flags().IntVar(&f.days, "spot-restore-days", 0, "days between two test restorations; 0: none")
	c.Flags().StringVar(&f.wait, "deletion-wait", "", "time that an approved deletion waits before anything is removed; default: as the installation")
	cli.JSONFlag(c, &f.asJSON)
	return c
}

// waitIn reads how long deletions wait, in hours; nil: as long as the installation says.
func waitIn(text string) (*float64, error) {
	if text == "" || text == "default" {
		return nil, nil
	}
	const most = 90 * 24 * time.Hour
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return nil, cli.Usage(fmt.Errorf("--deletion-wait is %s", text), "give it a time from 0 to 2160h such as 48h, or default")
	}
	hours := d.Hours()
	return &hours, nil
}

// change sets what was given, all of it or nothing.
func (f institutionSettings) change(ctx context.Context, r *registry.Registry, identifier string, hours *float64) (registry.Institution, error) {
	detail := map[string]any{}
	if f.daysAre {
		detail["spot_restore_days"] = f.days
	}
	if f.set {
		detail["deletion_wait_hours"] = hours
	}
	entry := registry.AuditEntry{Operation: "institutions.set", SubjectType: "institution", SubjectID: identifier, Detail: detail}
	return registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (in registry.Institution, err error) {
		if f.daysAre {
			if in, err = r.SetSpotRestoreDays(ctx, identifier, f.days); err != nil {
				return in, err
			}
		}
		if f.set {
			in, err = r.SetDeletionWait(ctx, identifier, hours)
		}
		entry.Institution = in.ID
		return in, err
	})
}

// text says what holds now.
func (f institutionSettings) text(in registry.Institution) (text string) {
	switch {
	case f.daysAre && in.SpotRestoreDays == 0:
		text = fmt.Sprintf("No random objects of %s are restored.\n", in.Identifier)
	case f.daysAre:
		text = fmt.Sprintf("A random object of %s is restored every %s.\n", in.Identifier, human.Count(in.SpotRestoreDays, "day", "days"))
	}
	switch {
	case f.set && in.DeletionWait == nil:
		text += fmt.Sprintf("Approved deletions of %s wait as long as the installation says.\n", in.Identifier)
	case f.set:
		text += fmt.Sprintf("Approved deletions of %s wait for %g hours.\n", in.Identifier, *in.DeletionWait)
	}
	return text
}

func institutionListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List institutions",
		Example: `  farol institution list
  farol institution list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func(list []registry.Institution, err error) error {
				if err != nil {
					return err
				}
				return cli.PrintList(cmd, asJSON, list, "institutions", []string{"ID", "IDENTIFIER", "STATE", "RECEIVING BUCKET", "RESTORE BUCKET", "NAME"}, func(in registry.Institution) []string {
					return []string{
						fmt.Sprint(in.ID), in.Identifier, in.State, human.Line(in.ReceivingBucket), human.Line(in.RestoreBucket), human.Line(in.Name),
					}
				})
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				return show(remote.List[registry.Institution](ctx, s, "institutions", nil, math.MaxInt))
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error { return show(institutions(ctx, r)) })
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func institutions(ctx context.Context, r *registry.Registry) ([]registry.Institution, error) {
	const page = 500
	all := []registry.Institution{} // null is no list in JSON
	for after := int64(0); ; {
		list, err := r.Institutions(ctx, after, page, false)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if len(list) < page {
			return all, nil
		}
		after = list[len(list)-1].ID
	}
}
