package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// Delete is farol delete.
func Delete() *cobra.Command {
	return cli.Group("delete", "Delete objects and files; needs two people", deleteRequestCommand(), deleteApproveCommand(), deleteCancelCommand(),
		deleteListCommand(), deleteShowCommand())
}

// mostNamed bounds a request: more are several.
const mostNamed = 100_000

func deleteRequestCommand() *cobra.Command {
	var by, from string
	var asJSON bool
	c := &cobra.Command{
		Use:   "request IDENTIFIER... --by EMAIL",
		Short: "Request the deletion of objects and files",
		Long: `Request the deletion of objects and files, by their identifiers. Nothing is deleted
before another person approves the request: farol delete approve.

The requester is an institutional admin, and everything named belongs to the same
institution. If an object has not been stored for the minimum time of its storage option
(the table storage_options), or has work in progress, the whole request is refused.`,
		Example: `  farol delete request test.edu/photographs --by first@test.edu
  farol delete request test.edu/photographs/data/1.jpg test.edu/maps --by first@test.edu
  farol delete request --from objects.txt --by first@test.edu --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := namedIn(from, cmd.InOrStdin())
			if err != nil {
				return err
			}
			names = append(args, names...)
			switch {
			case len(names) == 0:
				return cli.Usage(errors.New("nothing is named"), "name objects and files by their identifiers, or give --from FILE")
			case len(names) > mostNamed:
				return cli.Usage(fmt.Errorf("%d are named; one request may name %d", len(names), mostNamed), "make several requests")
			}
			show := func(d requests.DeletionRequest) error {
				how := fmt.Sprintf(": farol delete approve %d --by EMAIL --on-paper REASON", d.ID)
				if remote.From(cmd.Context()) != nil {
					how = " with a browser, at the server."
				}
				return cli.Printf(cmd, asJSON, d, "Request %d names %s and %s. Nothing is deleted yet.\n%s\nAnother person approves it%s\n",
					d.ID, human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), human.Line(d.Ask), how)
			}
			if done, err := deleteRemotely(cmd, "deletions", map[string]any{"identifiers": names}, show); done || err != nil {
				return err
			}
			return runDelete(cmd, by, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{Operation: "deletions.request", SubjectType: "deletion", OnBehalfOf: by, Detail: map[string]any{"named": len(names)}}
				d, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (requests.DeletionRequest, error) {
					d, err := requests.In(r).RequestDeletion(ctx, by, names)
					entry.SubjectID = fmt.Sprint(d.ID)
					return d, err
				})
				if err != nil {
					return err
				}
				return show(d)
			})
		},
	}
	c.Flags().StringVar(&by, "by", "", "e-mail of the institutional admin who requests it (required)")
	c.Flags().StringVar(&from, "from", "", "file with more identifiers, one on each line; - is standard input")
	cli.JSONFlag(c, &asJSON)
	return c
}

// namedIn reads identifiers from a file, one a line.
func namedIn(file string, stdin io.Reader) (names []string, err error) {
	if file == "" {
		return nil, nil
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, cli.Usage(err, "give --from the path of a file with an identifier in each line")
		}
		defer f.Close() //nolint:errcheck // only read from
		in = f
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if name := strings.TrimSpace(lines.Text()); name != "" {
			names = append(names, name)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, cli.Usage(fmt.Errorf("read %s after line %d: %w", file, len(names), err), "give --from the path of a file with an identifier in each line")
	}
	return names, nil
}

// runDelete does something in the name of a person. It has no timeout: a request may
// name many files.
func runDelete(cmd *cobra.Command, by string, do func(ctx context.Context, r *registry.Registry) error) error {
	if by == "" {
		return cli.Usage(errors.New("--by is missing"), "add --by with the e-mail of an institutional admin")
	}
	return undeletable(connect.WithRegistryFor(cmd, 0, do))
}

func undeletable(err error) error {
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol delete list` lists the requests; name an object as INSTITUTION/BAG and a file as INSTITUTION/BAG/PATH"}
	case errors.Is(err, registry.ErrRefused):
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "nothing was changed; see `farol delete --help`"}
	}
	return err
}

func requestID(text string) (int64, error) {
	return cli.ParseID(text, "a deletion request", "`farol delete list` lists the requests")
}

func deleteCancelCommand() *cobra.Command {
	var by, reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "cancel REQUEST --by EMAIL",
		Short: "Cancel a deletion request, or stop an approved deletion",
		Long: `Cancel a deletion request. One that is approved is stopped: its items end as Cancelled, and
what they have not removed stays. What was removed is gone, and the answer says so.

Any institutional admin of the institution may cancel it, and any admin of the archive. A
cancelled request cannot be approved, and its items cannot be requeued: make a new one.`,
		Example: `  farol delete cancel 4 --by second@test.edu
  farol delete cancel 4 --by second@test.edu --reason 'the wrong objects'`,
		Args: cli.OneArg("request by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestID(args[0])
			if err != nil {
				return err
			}
			show := func(d requests.DeletionRequest) error {
				return cli.Printf(cmd, asJSON, d, "Request %d is cancelled. %s\n", d.ID, removedBefore(d))
			}
			if done, err := deleteRemotely(cmd, remote.About("deletions", id, "/cancel"), map[string]string{"reason": reason}, show); done || err != nil {
				return err
			}
			return runDelete(cmd, by, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{Operation: "deletions.cancel", SubjectType: "deletion", SubjectID: fmt.Sprint(id), OnBehalfOf: by, Detail: map[string]any{"reason": reason}}
				d, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (requests.DeletionRequest, error) {
					return requests.In(r).CancelDeletion(ctx, id, by, reason)
				})
				if err != nil {
					return err
				}
				return show(d)
			})
		},
	}
	c.Flags().StringVar(&by, "by", "", "e-mail of an institutional admin, or of an admin of the archive (required)")
	c.Flags().StringVar(&reason, "reason", "", "why, which the institution reads")
	cli.JSONFlag(c, &asJSON)
	return c
}

func deleteListCommand() *cobra.Command {
	var institution string
	var before int64
	var limit int
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List deletion requests, newest first",
		Example: `  farol delete list
  farol delete list --institution test.edu --json
  farol delete list --limit 20 --before 100`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cli.CheckPage(limit, before, 0), values.InstitutionThere(cmd.Context(), institution)); err != nil {
				return err
			}
			done, err := remote.Page(cmd, "deletions", remote.Query("institution", institution, "before", remote.ID(before)), limit, func(list []requests.DeletionRequest) error {
				return printDeletions(cmd, asJSON, list)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, institution); err != nil {
					return err
				}
				list, err := requests.In(r).DeletionRequests(ctx, institution, before, limit)
				if err != nil {
					return err
				}
				return printDeletions(cmd, asJSON, list)
			})
		},
	}
	c.Flags().StringVar(&institution, "institution", "", "only requests of this institution, by its identifier")
	c.Flags().Int64Var(&before, "before", 0, "only requests with a lower ID, for the next page")
	c.Flags().IntVar(&limit, "limit", 50, "how many at most")
	cli.JSONFlag(c, &asJSON)
	return c
}

func printDeletions(cmd *cobra.Command, asJSON bool, list []requests.DeletionRequest) error {
	return cli.PrintList(cmd, asJSON, list, "deletion requests", []string{"ID", "INSTITUTION", "STATE", "OBJECTS", "FILES", "REQUESTED BY", "AT"}, func(d requests.DeletionRequest) []string {
		return []string{
			fmt.Sprint(d.ID), d.Institution, stateOfDeletion(d), fmt.Sprint(d.Objects), fmt.Sprint(d.Files), human.Line(d.RequestedBy), human.Time(d.RequestedAt),
		}
	})
}

// removedBefore says what a cancelled request had removed.
func removedBefore(d requests.DeletionRequest) string {
	if d.Removed {
		return fmt.Sprintf("Copies had been removed before: `farol delete show %d` lists them.", d.ID)
	}
	return "Nothing was deleted."
}

func stateOfDeletion(d requests.DeletionRequest) string {
	switch {
	case d.CancelledAt != nil && d.Removed:
		return fmt.Sprintf("cancelled when %d of %d were done", d.Done, d.Items)
	case d.CancelledAt != nil:
		return "cancelled"
	case d.ApprovedAt == nil:
		return "not approved"
	case d.Waits(time.Now()):
		return "begins in " + human.Duration(time.Until(*d.BeginsAt))
	case d.Done == d.Items:
		return "done"
	case d.Done+d.Cancelled == d.Items:
		return fmt.Sprintf("%d of %d done, %d cancelled", d.Done, d.Items, d.Cancelled)
	case d.Kept != "" && d.Failed == 0:
		return fmt.Sprintf("%d of %d done, waits for a store", d.Done, d.Items)
	case d.Failed > 0:
		return fmt.Sprintf("%d of %d done, %d need a person", d.Done, d.Items, d.Failed)
	}
	return fmt.Sprintf("%d of %d done", d.Done, d.Items)
}

func deleteShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show REQUEST",
		Short: "Show a deletion request and its receipts",
		Example: `  farol delete show 3
  farol delete show 3 --json`,
		Args: cli.OneArg("request by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestID(args[0])
			if err != nil {
				return err
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				d, err := remote.Get[requests.DeletionRequest](ctx, s, remote.About("deletions", id, ""), nil)
				if err != nil {
					return undeletable(err)
				}
				receipts, err := remote.List[requests.DeletedCopy](ctx, s, remote.About("deletions", id, "/receipts"), nil, mostReceipts)
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, deletionPage{d, receipts}, writeDeletion)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				d, err := requests.In(r).DeletionRequest(ctx, id)
				if err != nil {
					return undeletable(err)
				}
				receipts, err := requests.In(r).Receipts(ctx, id, mostReceipts)
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, deletionPage{d, receipts}, writeDeletion)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// mostReceipts is how many copies are shown; the table deletion_receipts has all.
const mostReceipts = 10_000

// deletionPage is a request with its receipts.
type deletionPage struct {
	requests.DeletionRequest

	Receipts []requests.DeletedCopy `json:"receipts"`
}

func writeDeletion(out io.Writer, d deletionPage) error {
	fmt.Fprintf(out, "Request %d of %s: %s and %s, %s\n", d.ID, d.Institution, human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), stateOfDeletion(d.DeletionRequest))
	fmt.Fprintf(out, "Requested by %s at %s\n", human.Line(d.RequestedBy), human.Time(d.RequestedAt))
	if d.ApprovedAt != nil {
		fmt.Fprintf(out, "Approved by %s at %s\n", human.Line(d.ApprovedBy), human.Time(*d.ApprovedAt))
		if d.OnPaper != "" {
			fmt.Fprintf(out, "Entered by %s, on paper: %s\n", human.Line(d.ApprovedAs), human.Line(d.OnPaper))
		}
	}
	if d.Waits(time.Now()) {
		fmt.Fprintf(out, "Begins at %s. Nothing is removed before; `farol delete cancel %d` stops it\n", human.Time(*d.BeginsAt), d.ID)
	}
	for _, line := range []string{d.Kept, d.Ask} {
		if line != "" {
			fmt.Fprintln(out, human.Line(line))
		}
	}
	if d.CancelledAt != nil {
		fmt.Fprintf(out, "Cancelled by %s at %s. %s\n", human.Line(d.CancelledBy), human.Time(*d.CancelledAt), removedBefore(d.DeletionRequest))
		if d.Reason != "" {
			fmt.Fprintf(out, "Reason: %s\n", human.Line(d.Reason))
		}
	}
	if len(d.Receipts) == 0 {
		return nil
	}
	var rows [][]string
	for _, r := range d.Receipts {
		rows = append(rows, receiptRow(r))
	}
	fmt.Fprintln(out)
	return cli.WriteTable(out, []string{"ITEM", "TARGET", "DELETED", "SEEN TO BE GONE", "FILE"}, rows)
}

// receiptRow is a receipt as a row of a table.
func receiptRow(r requests.DeletedCopy) []string {
	gone := "not seen yet"
	switch {
	case r.Kept != "":
		gone = "kept: " + human.Line(r.Kept)
	case r.AbsentAt != nil:
		gone = human.Time(*r.AbsentAt)
	}
	deleted := "-"
	switch {
	case r.RemovedAt != nil:
		deleted = human.Time(*r.RemovedAt) + wasKept(r)
	case r.Missing && r.AcceptedBy != "":
		deleted = "found missing, accepted by " + human.Line(r.AcceptedBy)
	case r.Missing:
		deleted = "found missing"
	case r.KeptByStore != "":
		deleted = human.Line(r.KeptByStore)
	}
	return []string{fmt.Sprint(r.Item), r.Target, deleted, gone, human.Line(r.Identifier)}
}

// wasKept says of a copy that was removed until when its store had kept it.
func wasKept(r requests.DeletedCopy) string {
	if r.KeptByStore == "" {
		return ""
	}
	return ", was " + human.Line(r.KeptByStore)
}
