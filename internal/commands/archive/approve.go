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
asked for, with the token that was printed then. Only where there is no other may
it be the same person. Retention and pending work are looked at once more: either
all that the request names goes into the queue, or nothing.

What is deleted does not come back. At a terminal you are asked first; --dry-run
says whether the approval would be refused, and changes nothing.`,
		Example: `  farol delete approve 3 --token HJ4ZVL4AYJ2QPYVRN4PZVK2LBM --by second@test.edu --dry-run
  farol delete approve 3 --token HJ4ZVL4AYJ2QPYVRN4PZVK2LBM --by second@test.edu`,
		Args: cli.OneArg("request by its number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestID(args[0])
			if err != nil {
				return err
			}
			if f.token == "" {
				return cli.Usage(errors.New("--token is missing"), "add --token with what `farol delete request` has printed")
			}
			return runDelete(cmd.Context(), f.by, func(ctx context.Context, r *registry.Registry) error {
				return f.approve(ctx, cmd, r, id)
			})
		},
	}
	c.Flags().StringVar(&f.by, "by", "", "e-mail of the institutional admin who approves (required)")
	c.Flags().StringVar(&f.token, "token", "", "what farol delete request has printed (required)")
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
		text := fmt.Sprintf("Request %d may be approved: it deletes %s, which do not come back.", d.ID, what)
		return errors.Join(writeDeletion(cmd.OutOrStdout(), d, f.asJSON, text), cli.Unchanged(cmd))
	}
	if d, err = requests.In(r).ApproveDeletion(ctx, id, f.by, f.token); err != nil {
		return err
	}
	return writeDeletion(cmd.OutOrStdout(), d, f.asJSON, fmt.Sprintf("Request %d is approved: %s in the queue. To see what became of it: farol delete show %d",
		d.ID, human.Count(d.Items, "item is", "items are"), d.ID))
}
