package archive

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// Restore is farol restore.
func Restore() *cobra.Command {
	return cli.Group("restore", "Restore objects and files", restoreOneCommand("object"), restoreOneCommand("file"), restoreApproveCommand())
}

// Tiers are the ways in which archived copies are made readable.
func Tiers() []string { return []string{"Expedited", "Standard", "Bulk"} }

func restoreOneCommand(what string) *cobra.Command {
	how := map[string]string{
		"object": "An object comes back as a bag in one tar, IDENTIFIER.tar, in its institution's\nrestoration bucket.",
		"file":   "A file comes back under its identifier in its institution's restoration bucket.",
	}[what]
	example := map[string]string{"object": "test.edu/photographs", "file": "test.edu/photographs/data/1.jpg"}[what]
	return op.Command{
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
		Arg:   what + " by its identifier",
		Param: what,
		Flags: []op.Flag{
			{Name: "by", Kind: op.Person, Help: "e-mail of the user who requests it (default: the archive itself)"},
			{Name: "tier", Param: "tier", Among: Tiers, Quiet: true, Default: "Standard", Help: "how quickly archived copies are made readable: Expedited, Standard or Bulk"},
			{Name: "days", Param: "days", Kind: op.Number, Default: 10, Least: 1, Most: 365, Help: "days for which they stay readable"},
			{Name: "priority", Param: "priority", Kind: op.Number, Least: -100, Most: 100, Help: "from -100, which goes first, to 100"},
			{Name: "from-archive", Param: "from_archive", Kind: op.Truth, Help: "restore from the archived copy, for example if the others are bad"},
			{Name: "dry-run", Kind: op.Truth, Help: "show what would be done, and change nothing"},
		},
		Within: -1,
		Check:  func(c *op.Call) error { return remote.RefuseFlags(c.Cmd, "priority") },
		Failed: undone("restore", "`farol restore object INSTITUTION/BAG` restores an object, `farol restore file INSTITUTION/BAG/PATH` a file"),
	}.Make(func(ctx context.Context, c *op.Call) error {
		if c.Given("dry-run") {
			quote, err := remote.Send[record.Quote](ctx, c.Server, http.MethodPost, "restorations/quote", c.Body())
			if err != nil {
				return err
			}
			return cli.Print(c.Cmd, c.JSON, quote, func(out io.Writer, q record.Quote) error { return writeQuote(out, c.Arg, q) })
		}
		made, err := remote.Send[record.Restoration](ctx, c.Server, http.MethodPost, "restorations", c.Body())
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, made, func(out io.Writer, r record.Restoration) error { return writeRestoration(out, c, r) })
	})
}

func writeQuote(out io.Writer, identifier string, q record.Quote) error {
	fmt.Fprintf(out, "%s: %s, %s\n", human.Line(identifier), human.Count(q.Files, "file", "files"), human.Bytes(q.Bytes))
	if q.Class == "" {
		_, err := fmt.Fprintln(out, "It can be read at any time, which costs nothing but the transfer.")
		return err
	}
	fmt.Fprintf(out, "Tier %s of %s: $%s, within %s; the copies stay readable for %s.\n", q.Tier, q.Class, q.Price, human.Duration(q.Takes), human.Count(q.Days, "day", "days"))
	_, err := fmt.Fprintln(out, approval(q))
	return err
}

func approval(q record.Quote) string {
	if q.NeedsApproval {
		return fmt.Sprintf("That is more than $%s: it needs approval.", q.Cap)
	}
	return fmt.Sprintf("That is within the cap of $%s.", q.Cap)
}

// writeRestoration says what came of a request.
func writeRestoration(out io.Writer, c *op.Call, r record.Restoration) error {
	if r.Quote.NeedsApproval {
		entered := ""
		if c.Here() {
			entered = " --by EMAIL --on-paper REASON"
		}
		_, err := fmt.Fprintf(out, "Item %d waits: it costs about $%s, which is more than $%s.\nAn admin approves it: farol restore approve %d%s\n",
			r.Item.ID, r.Quote.Price, r.Quote.Cap, r.Item.ID, entered)
		return err
	}
	if r.Quote.Class != "" {
		fmt.Fprintf(out, "It is made readable first, by %s for about $%s, within %s.\n", r.Quote.Tier, r.Quote.Price, human.Duration(r.Quote.Takes))
	}
	_, err := fmt.Fprintf(out, "Item %d restores %s. To follow it: farol item watch %d\n", r.Item.ID, human.Line(c.Arg), r.Item.ID)
	return err
}

func restoreApproveCommand() *cobra.Command {
	const listed = "`farol item list --needs-review` lists the items that wait"
	return op.Command{
		Use:   "approve ITEM --by EMAIL --on-paper REASON",
		Short: "Enter the approval of a restoration that exceeds the cost cap",
		Long: `Enter the approval of a restoration from an archive class that costs more than the cap,
for the person who has given it on paper: an admin, or an institutional admin of the same
institution other than the requester. The approval is recorded with the reason and with
your name.`,
		Example: `  farol restore approve 7 --by admin@test.edu --on-paper 'e-mail of 24 November'`,
		Arg:     "item by its ID", Number: "an item", Where: listed,
		Flags: []op.Flag{
			{Name: "by", Kind: op.Person, Missing: "add --by with the e-mail of the person who approves", Help: "e-mail of the person who approves (required)"},
			{Name: "on-paper", Kind: op.Paper, Missing: onPaper, Help: "where and when that person has approved it (required)"},
		},
		Within: -1,
		Failed: undone("restore", listed),
	}.Make(func(ctx context.Context, c *op.Call) error {
		r, err := remote.Send[struct{ Item record.WorkItem }](ctx, c.Server, http.MethodPost, c.Path("restorations/{}/approve"), nil)
		if err != nil {
			return err
		}
		return cli.Printf(c.Cmd, c.JSON, r.Item, "Item %d is in the queue. To follow it: farol item watch %d\n", r.Item.ID, r.Item.ID)
	})
}
