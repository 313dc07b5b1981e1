package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Delete is farol delete.
func Delete() *cobra.Command {
	return cli.Group("delete", "Delete objects and files; needs two people", deleteRequestCommand(), deleteApproveCommand(), deleteCancelCommand(),
		deleteListCommand(), deleteShowCommand())
}

// mostNamed bounds a request: more are several.
const mostNamed = 100_000

func deleteRequestCommand() *cobra.Command {
	var names []string
	return op.Command{
		Args:  cobra.ArbitraryArgs,
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
		Flags: []op.Flag{
			{Name: "by", Kind: op.Person, Missing: byAdmin, Help: "e-mail of the institutional admin who requests it (required)"},
			{Name: "from", Help: "file with more identifiers, one on each line; - is standard input"},
		},
		Within: -1, // it may name many files
		Check: func(c *op.Call) error {
			more, err := namedIn(c.Text("from"), c.Cmd.InOrStdin())
			names = append(c.Args, more...)
			switch {
			case err != nil:
				return err
			case len(names) == 0:
				return cli.Usage(errors.New("nothing is named"), "name objects and files by their identifiers, or give --from FILE")
			case len(names) > mostNamed:
				return cli.Usage(fmt.Errorf("%d are named; one request may name %d", len(names), mostNamed), "make several requests")
			}
			return nil
		},
		Failed: undone("delete", "name an object as INSTITUTION/BAG and a file as INSTITUTION/BAG/PATH"),
	}.Make(func(ctx context.Context, c *op.Call) error {
		d, err := remote.Send[record.DeletionRequest](ctx, c.Server, http.MethodPost, "deletions", map[string]any{"identifiers": names})
		if err != nil {
			return err
		}
		how := " with a browser, at the server."
		if c.Here() {
			how = fmt.Sprintf(": farol delete approve %d --by EMAIL --on-paper REASON", d.ID)
		}
		return cli.Printf(c.Cmd, c.JSON, d, "Request %d names %s and %s. Nothing is deleted yet.\n%s\nAnother person approves it%s\n",
			d.ID, human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), human.Line(d.Ask), how)
	})
}

// byAdmin is what to do where nobody is named who decides.
const byAdmin = "add --by with the e-mail of an institutional admin"

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

// undone adds the next step to the error of what was asked for and not done. group is the command
// to read about it, and listed says where the names are.
func undone(group, listed string) func(error) error {
	return func(err error) error {
		next := listed
		switch {
		case errors.Is(err, registry.ErrNotFound):
		case errors.Is(err, registry.ErrRefused) && strings.Contains(err.Error(), "is in the queue"):
			next = "`farol item list` shows the items in progress"
		case errors.Is(err, registry.ErrRefused):
			next = "nothing was changed; see `farol " + group + " --help`"
		default:
			return err
		}
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: next}
	}
}

const requestsListed = "`farol delete list` lists the requests"

// oneRequest completes a command about one request.
func oneRequest(c op.Command) op.Command {
	c.Arg, c.Number, c.Where = "request by its ID", "a deletion request", requestsListed
	c.Within, c.Failed = -1, undone("delete", requestsListed)
	return c
}

func deleteCancelCommand() *cobra.Command {
	return op.Change(oneRequest(op.Command{
		Use:   "cancel REQUEST --by EMAIL",
		Short: "Cancel a deletion request, or stop an approved deletion",
		Long: `Cancel a deletion request. One that is approved is stopped: its items end as Cancelled, and
what they have not removed stays. What was removed is gone, and the answer says so.

Any institutional admin of the institution may cancel it, and any admin of the archive. A
cancelled request cannot be approved, and its items cannot be requeued: make a new one.`,
		Example: `  farol delete cancel 4 --by second@test.edu
  farol delete cancel 4 --by second@test.edu --reason 'the wrong objects'`,
		Flags: []op.Flag{
			{Name: "by", Kind: op.Person, Missing: byAdmin, Help: "e-mail of an institutional admin, or of an admin of the archive (required)"},
			{Name: "reason", Param: "reason", Help: "why, which the institution reads"},
		},
	}), http.MethodPost, "deletions/{}/cancel", "", func(d record.DeletionRequest) string {
		return fmt.Sprintf("Request %d is cancelled. %s\n", d.ID, removedBefore(d))
	})
}

func deleteListCommand() *cobra.Command {
	return op.List[record.DeletionRequest]{
		Path: "deletions", What: "deletion requests", Before: func(d record.DeletionRequest) int64 { return d.ID },
		Empty:  op.KnownInstitution,
		Header: []string{"ID", "INSTITUTION", "STATE", "OBJECTS", "FILES", "REQUESTED BY", "AT"},
		Row: func(d record.DeletionRequest) []string {
			return []string{
				fmt.Sprint(d.ID), d.Institution, stateOfDeletion(d), fmt.Sprint(d.Objects), fmt.Sprint(d.Files), human.Line(d.RequestedBy), human.Time(d.RequestedAt),
			}
		},
	}.Command(op.Command{
		Use:   "list",
		Short: "List deletion requests, newest first",
		Example: `  farol delete list
  farol delete list --institution test.edu --json
  farol delete list --limit 20 --before 100`,
		Flags:  []op.Flag{{Name: "institution", Param: "institution", Help: "only requests of this institution, by its identifier"}},
		Within: -1,
	})
}

// removedBefore says what a cancelled request had removed.
func removedBefore(d record.DeletionRequest) string {
	if d.Removed {
		return fmt.Sprintf("Copies had been removed before: `farol delete show %d` lists them.", d.ID)
	}
	return "Nothing was deleted."
}

func stateOfDeletion(d record.DeletionRequest) string {
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
	return oneRequest(op.Command{
		Use:   "show REQUEST",
		Short: "Show a deletion request and its receipts",
		Example: `  farol delete show 3
  farol delete show 3 --json`,
	}).Make(func(ctx context.Context, c *op.Call) error {
		d, err := remote.Get[record.DeletionRequest](ctx, c.Server, c.Path("deletions/{}"), nil)
		if err != nil {
			return err
		}
		receipts, err := remote.List[record.DeletedCopy](ctx, c.Server, c.Path("deletions/{}/receipts"), nil, mostReceipts)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, deletionPage{d, receipts}, writeDeletion)
	})
}

// mostReceipts is how many copies are shown; the table deletion_receipts has all.
const mostReceipts = 10_000

// deletionPage is a request with its receipts.
type deletionPage struct {
	record.DeletionRequest

	Receipts []record.DeletedCopy `json:"receipts"`
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
	return printSection(out, "", []string{"ITEM", "TARGET", "DELETED", "SEEN TO BE GONE", "FILE"}, d.Receipts, receiptRow)
}

// receiptRow is a receipt as a row of a table.
func receiptRow(r record.DeletedCopy) []string {
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
func wasKept(r record.DeletedCopy) string {
	if r.KeptByStore == "" {
		return ""
	}
	return ", was " + human.Line(r.KeptByStore)
}

// onPaper is what to do where nothing says when the person has decided.
const onPaper = "add --on-paper with where and when that person has approved it on paper: a command does not know who runs it"

func deleteApproveCommand() *cobra.Command {
	return oneRequest(op.Command{
		Use:   "approve REQUEST --by EMAIL --on-paper REASON",
		Short: "Enter the approval of a deletion request",
		Long: `Enter the approval of a deletion for the person who has given it on paper. That person is
an institutional admin of the same institution, and never the requester. Two accounts count
as one person for seven days after one has made or changed the other. Where the institution
has had no other active admin for seven days, an admin of the archive approves. The approval
is recorded with the reason and with your name. Retention and pending work are checked
again: either everything that the request names goes into the queue, or nothing.

The deletion begins after the wait of the institution, 24 hours unless it was set otherwise.
Until then, farol delete cancel stops it. What it has removed is gone. On a terminal you are
asked first; --dry-run shows whether the approval would be refused, and changes nothing.`,
		Example: `  farol delete approve 3 --by second@test.edu --on-paper 'signed form of 24 November' --dry-run
  farol delete approve 3 --by second@test.edu --on-paper 'signed form of 24 November'`,
		Flags: []op.Flag{
			{Name: "on-paper", Kind: op.Paper, Missing: onPaper, Help: "where and when that person has approved it (required)"},
			{Name: "by", Kind: op.Person, Missing: byAdmin, Help: "e-mail of the person who approves (required)"},
		},
		Check: func(c *op.Call) error {
			if remote.From(c.Cmd.Context()) != nil {
				return cli.Usage(errors.New("a deletion is approved with a browser, and with a fresh proof of who you are"), "sign in at the server; or leave --server out, and enter an approval on paper")
			}
			return nil
		},
		Asks: true,
	}).Make(approve)
}

// approve finds out what would be refused before it asks, and again when it approves.
func approve(ctx context.Context, c *op.Call) error {
	path := c.Path("deletions/{}/approve")
	d, err := remote.Send[record.DeletionRequest](ctx, c.Server, http.MethodPost, path+"/check", nil)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s and %s of %s", human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), d.Institution)
	does, err := c.Care.Allows(c.Cmd, "Delete "+what+" for good", true)
	if err != nil {
		return err
	}
	if !does {
		return errors.Join(cli.Printf(c.Cmd, c.JSON, d, "Request %d may be approved: it deletes %s, which cannot be undone.\n", d.ID, what), cli.Unchanged(c.Cmd))
	}
	if d, err = remote.Send[record.DeletionRequest](ctx, c.Server, http.MethodPost, path, nil); err != nil {
		return err
	}
	begins := ""
	if d.Waits(time.Now()) {
		begins = fmt.Sprintf("It begins at %s. To stop it: farol delete cancel %d --by EMAIL\n", human.Time(*d.BeginsAt), d.ID)
	}
	return cli.Printf(c.Cmd, c.JSON, d, "Request %d is approved: %s in the queue. To see its progress: farol delete show %d\n%s",
		d.ID, human.Count(d.Items, "item is", "items are"), d.ID, begins)
}
