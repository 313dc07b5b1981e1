package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline/restore"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// Restore is farol restore.
func Restore() *cobra.Command {
	return cli.Group("restore", "Restore objects and files", restoreOneCommand("object"), restoreOneCommand("file"), restoreApproveCommand())
}

// restoreFlags say how something is to be given back.
type restoreFlags struct {
	by, tier                    string
	days, priority              int
	fromArchive, dryRun, asJSON bool
}

// Tiers are the ways in which archived copies are made readable.
func Tiers() []string { return []string{"Expedited", "Standard", "Bulk"} }

func restoreOneCommand(what string) *cobra.Command {
	var f restoreFlags
	how := map[string]string{
		"object": "An object comes back as a bag in one tar, IDENTIFIER.tar, in its institution's\nrestoration bucket.",
		"file":   "A file comes back under its identifier in its institution's restoration bucket.",
	}[what]
	example := map[string]string{"object": "test.edu/photographs", "file": "test.edu/photographs/data/1.jpg"}[what]
	c := &cobra.Command{
		Use:   what + " IDENTIFIER",
		Short: "Restore one " + what,
		Long: how + ` It appears there only after its bytes were verified
against the record.

If all copies are in archive classes, the provider first makes one readable, which takes
hours and costs money: --dry-run shows the price, from the table retrieval_prices. A
restoration that costs more than the cap in request_settings waits for approval: farol
restore approve.

It is refused while other work on the same ` + what + ` is in progress.`,
		Example: "  farol restore " + what + " " + example + `
  farol restore ` + what + ` ` + example + ` --dry-run
  farol restore ` + what + ` ` + example + ` --tier Bulk --by reader@test.edu --json`,
		Args: cli.OneArg(what + " by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRestore(cmd, what, args[0], f)
		},
	}
	c.Flags().StringVar(&f.by, "by", "", "e-mail of the user who requests it (default: the archive itself)")
	c.Flags().StringVar(&f.tier, "tier", "Standard", "how quickly archived copies are made readable: Expedited, Standard or Bulk")
	c.Flags().IntVar(&f.days, "days", 10, "days for which they stay readable")
	c.Flags().IntVar(&f.priority, "priority", 0, "from -100, which goes first, to 100")
	c.Flags().BoolVar(&f.fromArchive, "from-archive", false, "restore from the archived copy, for example if the others are bad")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and change nothing")
	cli.JSONFlag(c, &f.asJSON)
	return c
}

// check refuses what no restoration can be.
func (f *restoreFlags) check() (err error) {
	if f.tier, err = cli.OneOf("--tier", f.tier, Tiers()); err != nil {
		return err
	}
	return errors.Join(cli.InRange("--days", f.days, 1, 365), cli.InRange("--priority", f.priority, -100, 100))
}

func runRestore(cmd *cobra.Command, what, identifier string, f restoreFlags) error {
	ctx := cmd.Context()
	if err := f.check(); err != nil {
		return err
	}
	if err := remote.RefuseFlags(cmd, "by", "priority"); err != nil {
		return err
	}
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error { return f.remotely(ctx, cmd, s, what, identifier) })
	if done || err != nil {
		return err
	}
	config, err := connect.Load(settings.ReadRestore)
	if err != nil {
		return err
	}
	s, err := connect.Open(ctx, "restore", connect.Needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	q := requests.RestorationRequest{
		By: f.by, Identifier: identifier, File: what == "file", Tier: f.tier, Days: f.days, Priority: f.priority,
	}
	option, err := requests.In(s.Registry).StorageOptionOf(ctx, q)
	if err != nil {
		return unrestorable(what, err)
	}
	if q.Class = restore.ArchiveClass(option, config.ClassOf, f.fromArchive); f.fromArchive && q.Class == "" {
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no archived copy: it is kept under %s", identifier, option), Next: "leave --from-archive out"}
	}
	if f.dryRun {
		quote, err := requests.In(s.Registry).Quote(ctx, q)
		if err != nil {
			return unrestorable(what, err)
		}
		return cli.Print(cmd, f.asJSON, quote, func(out io.Writer, q requests.Quote) error { return writeQuote(out, identifier, q) })
	}
	entry := registry.AuditEntry{Operation: "restorations.request", SubjectType: "item", OnBehalfOf: f.by, Detail: map[string]any{"identifier": identifier}}
	made, err := registry.Acted(ctx, s.Registry, registry.Actor{}, &entry, func(ctx context.Context) (requests.Restoration, error) {
		made, err := requests.In(s.Registry).RequestRestoration(ctx, q)
		entry.SubjectID = fmt.Sprint(made.Item.ID)
		return made, err
	})
	if err != nil {
		return unrestorable(what, err)
	}
	return cli.Print(cmd, f.asJSON, made, func(out io.Writer, r requests.Restoration) error {
		return writeRestoration(out, identifier, " --by EMAIL --on-paper REASON", r)
	})
}

func unrestorable(what string, err error) error {
	switch {
	case errors.Is(err, registry.ErrNotFound):
		if what == "" {
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol item list --needs-review` shows the items that wait"}
		}
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol restore object INSTITUTION/BAG` restores an object, `farol restore file INSTITUTION/BAG/PATH` a file"}
	case errors.Is(err, registry.ErrRefused) && strings.Contains(err.Error(), "is in the queue"):
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol item list` shows the items in progress"}
	case errors.Is(err, registry.ErrRefused):
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "nothing was changed; see `farol restore --help`"}
	}
	return err
}

func writeQuote(out io.Writer, identifier string, q requests.Quote) error {
	fmt.Fprintf(out, "%s: %s, %s\n", human.Line(identifier), human.Count(q.Files, "file", "files"), human.Bytes(q.Bytes))
	if q.Class == "" {
		_, err := fmt.Fprintln(out, "It can be read at any time, which costs nothing but the transfer.")
		return err
	}
	fmt.Fprintf(out, "Tier %s of %s: $%s, within %s; the copies stay readable for %s.\n", q.Tier, q.Class, q.Price, human.Duration(q.Takes), human.Count(q.Days, "day", "days"))
	_, err := fmt.Fprintln(out, approval(q))
	return err
}

func approval(q requests.Quote) string {
	if q.NeedsApproval {
		return fmt.Sprintf("That is more than $%s: it needs approval.", q.Cap)
	}
	return fmt.Sprintf("That is within the cap of $%s.", q.Cap)
}

// writeRestoration says what came of a request. entered are the flags with which an approval
// is entered.
func writeRestoration(out io.Writer, identifier, entered string, r requests.Restoration) error {
	if r.Quote.NeedsApproval {
		_, err := fmt.Fprintf(out, "Item %d waits: it costs about $%s, which is more than $%s.\nAn admin approves it: farol restore approve %d%s\n",
			r.Item.ID, r.Quote.Price, r.Quote.Cap, r.Item.ID, entered)
		return err
	}
	if r.Quote.Class != "" {
		fmt.Fprintf(out, "It is made readable first, by %s for about $%s, within %s.\n", r.Quote.Tier, r.Quote.Price, human.Duration(r.Quote.Takes))
	}
	_, err := fmt.Fprintf(out, "Item %d restores %s. To follow it: farol item watch %d\n", r.Item.ID, human.Line(identifier), r.Item.ID)
	return err
}

// remotely requests a restoration of a server, or asks it what one costs.
func (f restoreFlags) remotely(ctx context.Context, cmd *cobra.Command, s *remote.Server, what, identifier string) error {
	q := map[string]any{what: identifier, "tier": f.tier, "days": f.days, "from_archive": f.fromArchive}
	if f.dryRun {
		quote, err := remote.Send[requests.Quote](ctx, s, http.MethodPost, "restorations/quote", q)
		if err != nil {
			return unrestorable(what, err)
		}
		return cli.Print(cmd, f.asJSON, quote, func(out io.Writer, q requests.Quote) error { return writeQuote(out, identifier, q) })
	}
	made, err := remote.Send[requests.Restoration](ctx, s, http.MethodPost, "restorations", q)
	if err != nil {
		return unrestorable(what, err)
	}
	return cli.Print(cmd, f.asJSON, made, func(out io.Writer, r requests.Restoration) error { return writeRestoration(out, identifier, "", r) })
}

func restoreApproveCommand() *cobra.Command {
	var by, reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "approve ITEM --by EMAIL --on-paper REASON",
		Short: "Enter the approval of a restoration that exceeds the cost cap",
		Long: `Enter the approval of a restoration from an archive class that costs more than the cap,
for the person who has given it on paper: an admin, or an institutional admin of the same
institution other than the requester. The approval is recorded with the reason and with
your name.`,
		Example: `  farol restore approve 7 --by admin@test.edu --on-paper 'e-mail of 24 November'`,
		Args:    cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0], "an item", "`farol item list --needs-review` lists the items that wait")
			if err != nil {
				return err
			}
			if err := remote.RefuseFlags(cmd, "by", "on-paper"); err != nil {
				return err
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				r, err := remote.Send[struct{ Item registry.WorkItem }](ctx, s, http.MethodPost, remote.About("restorations", id, "/approve"), nil)
				if err != nil {
					return unrestorable("", err)
				}
				return cli.Printf(cmd, asJSON, r.Item, "Item %d is in the queue. To follow it: farol item watch %d\n", r.Item.ID, r.Item.ID)
			})
			if done || err != nil {
				return err
			}
			if by == "" {
				return cli.Usage(errors.New("--by is missing"), "add --by with the e-mail of the person who approves")
			}
			if err := onPaper(reason); err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{
					Operation: "restorations.approve", SubjectType: "item", SubjectID: fmt.Sprint(id), OnBehalfOf: by, Detail: map[string]any{"on_paper": reason},
				}
				item, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.WorkItem, error) {
					return requests.In(r).ApproveRetrieval(ctx, id, by)
				})
				if err != nil {
					return unrestorable("", err)
				}
				return cli.Printf(cmd, asJSON, item, "Item %d is in the queue. To follow it: farol item watch %d\n", item.ID, item.ID)
			})
		},
	}
	c.Flags().StringVar(&by, "by", "", "e-mail of the person who approves (required)")
	c.Flags().StringVar(&reason, "on-paper", "", "where and when that person has approved it (required)")
	cli.JSONFlag(c, &asJSON)
	return c
}
