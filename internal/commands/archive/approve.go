package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// deletionApproval is the flags of farol delete approve.
type deletionApproval struct {
	by, onPaper string
	care        cli.Caution
	asJSON      bool
}

func deleteApproveCommand() *cobra.Command {
	var f deletionApproval
	c := &cobra.Command{
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
		Args: cli.OneArg("request by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestID(args[0])
			if err != nil {
				return err
			}
			if remote.From(cmd.Context()) != nil {
				return cli.Usage(errors.New("a deletion is approved with a browser, and with a fresh proof of who you are"), "sign in at the server; or leave --server out, and enter an approval on paper")
			}
			if err := onPaper(f.onPaper); err != nil {
				return err
			}
			return runDelete(cmd, f.by, func(ctx context.Context, r *registry.Registry) error {
				return f.approve(ctx, cmd, r, id)
			})
		},
	}
	c.Flags().StringVar(&f.by, "by", "", "e-mail of the person who approves (required)")
	c.Flags().StringVar(&f.onPaper, "on-paper", "", "where and when that person has approved it (required)")
	f.care.Flags(c)
	cli.JSONFlag(c, &f.asJSON)
	return c
}

// onPaper refuses an approval that a command enters for a person without saying why.
func onPaper(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return cli.Usage(errors.New("--on-paper is missing"),
			"add --on-paper with where and when that person has approved it on paper: a command does not know who runs it")
	}
	return nil
}

// approve finds out what would be refused before it asks, and again when it approves.
func (f deletionApproval) approve(ctx context.Context, cmd *cobra.Command, r *registry.Registry, id int64) error {
	d, err := requests.In(r).MayApproveDeletion(ctx, id, f.by, f.onPaper)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s and %s of %s", human.Count(d.Objects, "object", "objects"), human.Count(d.Files, "file", "files"), d.Institution)
	does, err := f.care.Allows(cmd, "Delete "+what+" for good", true)
	if err != nil {
		return err
	}
	if !does {
		return errors.Join(cli.Printf(cmd, f.asJSON, d, "Request %d may be approved: it deletes %s, which cannot be undone.\n", d.ID, what), cli.Unchanged(cmd))
	}
	entry := registry.AuditEntry{
		Operation: "deletions.approve", SubjectType: "deletion", SubjectID: fmt.Sprint(id), OnBehalfOf: f.by, Detail: map[string]any{"on_paper": f.onPaper},
	}
	d, err = registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (requests.DeletionRequest, error) {
		return requests.In(r).ApproveDeletion(ctx, id, f.by, f.onPaper)
	})
	if err != nil {
		return err
	}
	begins := ""
	if d.Waits(time.Now()) {
		begins = fmt.Sprintf("It begins at %s. To stop it: farol delete cancel %d --by EMAIL\n", human.Time(*d.BeginsAt), d.ID)
	}
	return cli.Printf(cmd, f.asJSON, d, "Request %d is approved: %s in the queue. To see its progress: farol delete show %d\n%s",
		d.ID, human.Count(d.Items, "item is", "items are"), d.ID, begins)
}
