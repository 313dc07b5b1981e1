package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// deletionApproval is the flags of farol delete approve.
type deletionApproval struct {
	by, token string
	care      cli.Caution
	asJSON    bool
}

func deleteApproveCommand() *cobra.Command {
	var f deletionApproval
	c := &cobra.Command{
		Use:   "approve REQUEST --token TOKEN --by EMAIL",
		Short: "Approve a deletion request",
		Long: `Approve a deletion that another institutional admin of the same institution has
requested, with the token that the request printed. The requester may approve it only if
the institution has no other institutional admin. Retention and pending work are checked
again: either everything that the request names goes into the queue, or nothing.

A deletion cannot be undone. On a terminal you are asked first; --dry-run shows whether
the approval would be refused, and changes nothing.`,
		Example: `  farol delete approve 3 --token HJ4ZVL4AYJ2QPYVRN4PZVK2LBM --by second@test.edu --dry-run
  farol delete approve 3 --token HJ4ZVL4AYJ2QPYVRN4PZVK2LBM --by second@test.edu`,
		Args: cli.OneArg("request by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestID(args[0])
			if err != nil {
				return err
			}
			if f.token == "" {
				return cli.Usage(errors.New("--token is missing"), "add --token with the token that `farol delete request` printed")
			}
			return runDelete(cmd, f.by, func(ctx context.Context, r *registry.Registry) error {
				return f.approve(ctx, cmd, r, id)
			})
		},
	}
	c.Flags().StringVar(&f.by, "by", "", "e-mail of the institutional admin who approves (required)")
	c.Flags().StringVar(&f.token, "token", "", "token that farol delete request printed (required)")
	f.care.Flags(c)
	cli.JSONFlag(c, &f.asJSON)
	return c
}

// approve finds out what would be refused before it asks, and again when it approves.
func (f deletionApproval) approve(ctx context.Context, cmd *cobra.Command, r *registry.Registry, id int64) error {
	d, err := requests.In(r).MayApproveDeletion(ctx, id, f.by, f.token)
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
	if d, err = requests.In(r).ApproveDeletion(ctx, id, f.by, f.token); err != nil {
		return err
	}
	return cli.Printf(cmd, f.asJSON, d, "Request %d is approved: %s in the queue. To see its progress: farol delete show %d\n",
		d.ID, human.Count(d.Items, "item is", "items are"), d.ID)
}
