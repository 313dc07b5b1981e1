package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/pipeline/upkeep/reconcile"
	"github.com/farol-preservation/farol/registry/upkeep"
)

func reconcileCommand() *cobra.Command {
	return op.Command{
		Use:   "reconcile",
		Short: "Bring a registry up to date that was restored from a backup",
		Long: `Compare a registry that was restored from a backup with the buckets, which are ahead of
it, and take back up what their copies prove. When the first process connects to such a
database, all stages and the janitor are paused, approved deletions that have not ended are
cancelled, and people are signed out.

A bag that was ingested since the backup is made again from its copies in preservation, in
the receiving bucket of its institution; its ingest takes the copies over, and stores
nothing twice. Ingests that were at their end have their copies verified once more. The
rest is listed for people. Nothing is removed. Then work goes on.

Run it first with --dry-run, while the pause keeps everything as it is. If it is stopped,
run it again.

Exit codes: 0 nothing is left for people; 1 something is, or not all could be done; 2 a server
or bucket could not be checked, and the pause goes on.`,
		Example: `  farol reconcile --dry-run
  farol reconcile --yes
  farol reconcile --restored --yes
  farol reconcile --dry-run --json`,
		Asks: true,
		Flags: []op.Flag{
			{Name: "restored", Kind: op.Truth, Help: "say that the database comes from a backup that does not show in it, such as a snapshot of a disk"},
		},
	}.Alone(runReconcile)
}

// mostFound bounds the memory that reconcile needs, to about 300 MB.
const mostFound = 1_000_000

func runReconcile(c *op.Call) error {
	ctx := c.Cmd.Context()
	does, err := c.Care.Allows(c.Cmd, "Take back up what the buckets prove, and let work go on", false)
	if err != nil {
		return err
	}
	d, profiles, done, err := connectStores(ctx, "reconcile")
	if err != nil {
		return err
	}
	defer done()
	if does && c.Given("restored") {
		if err := upkeep.In(d.Registry).NoteRestore(ctx); err != nil {
			return err
		}
	}
	r := &reconcile.Reconciler{Doctor: d, Profiles: profiles, Most: mostFound, Said: func(line string) {
		fmt.Fprintln(c.Cmd.ErrOrStderr(), human.Line(line))
	}}
	found, err := r.Look(ctx)
	if err != nil {
		return err
	}
	if does {
		err = r.Do(ctx, found)
	}
	if failed := cli.Print(c.Cmd, c.JSON, found, writeReconciliation); failed != nil {
		return errors.Join(err, failed)
	}
	if err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "run it again: it does the rest"}
	}
	if !does {
		if err := cli.Unchanged(c.Cmd); err != nil {
			return err
		}
	}
	return reconciled(ctx, found)
}

// reconciled is the exit code.
func reconciled(ctx context.Context, found *reconcile.Result) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(found.Unchecked) > 0:
		return cli.Failure{Code: cli.ExitUsage, Err: errors.New("not everything could be checked, so the pause goes on"), Next: "fix what is named above, and run it again"}
	case found.More:
		return cli.Failure{Code: cli.ExitFailed, Err: errors.New("there are more copies than fit into memory, so the pause goes on"), Next: "run it again for the next ones"}
	case found.ForPeople():
		return cli.Failure{Code: cli.ExitFailed, Next: "see \"After a restore\" in docs/operators.md"}
	}
	return nil
}

func writeReconciliation(out io.Writer, v *reconcile.Result) error {
	var b strings.Builder
	if restore := v.Restore; restore == nil {
		b.WriteString("The database does not show that it was restored from a backup. If it was, add --restored.\n")
	} else {
		since := "at an unknown time"
		if restore.LastChange != nil {
			since = human.Time(*restore.LastChange)
		}
		fmt.Fprintf(&b, "The registry was restored from a backup: this was found out %s. The last sign of a worker in it is of %s.\nItems of approved deletions that were cancelled: %d.\n",
			human.Time(restore.NotedAt), since, restore.DeletionsStopped)
	}
	for _, bag := range v.Bags {
		does := map[string]string{
			reconcile.Takes: "  made again from its copies, and ingested", reconcile.Waits: "  in the receiving bucket: its ingest takes the copies over",
			reconcile.Person: "! for a person: " + human.Line(bag.Why),
		}[bag.Does]
		fmt.Fprintf(&b, "%s\n    %s without a record, %s: %s\n", does, human.Count(int64(bag.Files), "file", "files"), human.Bytes(bag.Bytes), human.Line(bag.Object))
	}
	for _, item := range v.Items {
		fmt.Fprintf(&b, "  item %d of %s, at %s: its copies are verified again\n", item.ID, human.Line(item.Object), item.Stage)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	return writeFindings(out, v.Report)
}
