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

func institutionSetCommand() *cobra.Command {
	var days int
	var asJSON bool
	c := &cobra.Command{
		Use:   "set IDENTIFIER --spot-restore-days N",
		Short: "Set how often a random object of an institution is restored as a test",
		Long: `Have ` + "`farol schedule`" + ` restore a random object of an institution every N days, as a
test. The institution gets an alert with the result, and the bag in its restore bucket.
0 disables it.`,
		Example: `  farol institution set example.edu --spot-restore-days 30
  farol institution set example.edu --spot-restore-days 0`,
		Args: cli.OneArg("institution by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("spot-restore-days") {
				return cli.Usage(errors.New("--spot-restore-days is missing"), "add --spot-restore-days N")
			}
			if err := cli.InRange("--spot-restore-days", days, 0, 3650); err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{
					Operation: "institutions.set", SubjectType: "institution", SubjectID: args[0], Detail: map[string]any{"spot_restore_days": days},
				}
				in, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.Institution, error) {
					in, err := r.SetSpotRestoreDays(ctx, args[0], days)
					entry.Institution = in.ID
					return in, err
				})
				switch {
				case errors.Is(err, registry.ErrNotFound):
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol institution list` lists the institutions"}
				case err != nil:
					return err
				}
				text := fmt.Sprintf("A random object of %s is restored every %s.", in.Identifier, human.Count(in.SpotRestoreDays, "day", "days"))
				if in.SpotRestoreDays == 0 {
					text = fmt.Sprintf("No random objects of %s are restored.", in.Identifier)
				}
				return cli.Printf(cmd, asJSON, in, "%s\n", text)
			})
		},
	}
	c.Flags().IntVar(&days, "spot-restore-days", 0, "days between two test restorations; 0: none (required)")
	cli.JSONFlag(c, &asJSON)
	return c
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
