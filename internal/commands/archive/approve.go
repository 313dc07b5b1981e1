package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry/requests"
)

// onPaper is what to do where nothing says when the person has decided.
const onPaper = "add --on-paper with where and when that person has approved it on paper: a command does not know who runs it"

func deleteApproveCommand() *cobra.Command {
	var care cli.Caution
	c := oneRequest(op.Command{
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
	}).Make(func(ctx context.Context, c *op.Call) error { return approve(ctx, c, care) })
	care.Flags(c)
	return c
}

// approve finds out what would be refused before it asks, and again when it approves.
func approve(ctx context.Context, c *op.Call, care cli.Caution) error {
	path := c.Path("deletions/{}/approve")
	d, err := remote.Send[requests.DeletionRequest](ctx, c.Server, http.MethodPost, path+"/check", nil)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s and %s of %s", human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), d.Institution)
	does, err := care.Allows(c.Cmd, "Delete "+what+" for good", true)
	if err != nil {
		return err
	}
	if !does {
		return errors.Join(cli.Printf(c.Cmd, c.JSON, d, "Request %d may be approved: it deletes %s, which cannot be undone.\n", d.ID, what), cli.Unchanged(c.Cmd))
	}
	if d, err = remote.Send[requests.DeletionRequest](ctx, c.Server, http.MethodPost, path, nil); err != nil {
		return err
	}
	begins := ""
	if d.Waits(time.Now()) {
		begins = fmt.Sprintf("It begins at %s. To stop it: farol delete cancel %d --by EMAIL\n", human.Time(*d.BeginsAt), d.ID)
	}
	return cli.Printf(c.Cmd, c.JSON, d, "Request %d is approved: %s in the queue. To see its progress: farol delete show %d\n%s",
		d.ID, human.Count(d.Items, "item is", "items are"), d.ID, begins)
}
