package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// wayBack has bags given back, one of them out of Glacier, and one deleted by two
// people, and checks the results from outside.
func (d *demo) wayBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	const film, charts, logbooks = lighthouse + "/survey-film", harbor + "/charts", lighthouse + "/logbooks"
	cli.Say(d.out, "\nNow restore a bag of 96 MiB and one that is in Glacier, and delete a bag, which needs two people.")
	began := time.Now()
	for _, object := range []string{film, charts} {
		if _, err := d.call(ctx, "restore", "object", object); err != nil {
			return err
		}
	}
	if err := d.deleteObject(ctx, logbooks); err != nil {
		return err
	}
	if err := d.atRest(ctx); err != nil {
		return err
	}
	for _, object := range []string{film, charts} {
		if err := d.cameBack(ctx, object); err != nil {
			return err
		}
	}
	if err := d.isGone(ctx, logbooks); err != nil {
		return err
	}
	cli.Say(d.out, "That took %.1f s.", time.Since(began).Seconds())
	return nil
}

// deleteObject has two people decide on a deletion. What was stored a moment ago must be
// kept for its time, so the demonstration makes it old.
func (d *demo) deleteObject(ctx context.Context, object string) error {
	people := []string{"first@" + lighthouse, "second@" + lighthouse}
	for _, email := range people {
		if _, err := d.registry.AddUser(ctx, record.User{Email: email, Name: "An Archivist", Role: registry.RoleInstitutionalAdmin, Institution: lighthouse}); err != nil {
			return err
		}
	}
	_, err := requests.In(d.registry).RequestDeletion(ctx, people[0], []string{object})
	if !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("%s was stored a moment ago, and its deletion was not refused: %w", object, err)
	}
	cli.Say(d.out, "  %s requests it too early: %v", people[0], err)
	for _, table := range []string{"intellectual_objects", "generic_files"} {
		if _, err := d.db.Exec(ctx, `UPDATE `+table+` SET created_at = now() - interval '1 year' WHERE identifier = $1 OR identifier LIKE $1 || '/%'`, object); err != nil {
			return fmt.Errorf("make %s older: %w", object, err)
		}
	}
	request, err := requests.In(d.registry).RequestDeletion(ctx, people[0], []string{object})
	if err != nil {
		return err
	}
	_, err = requests.In(d.registry).ApproveDeletion(ctx, request.ID, people[1], "demonstration")
	return err
}

// atRest waits until no item is live.
func (d *demo) atRest(ctx context.Context) error {
	items, err := d.rest(ctx, "requests", 10, func(record.WorkItem) {})
	for _, item := range items {
		if item.Action != "Ingest" {
			fmt.Fprintln(d.out, cli.CutTo(fmt.Sprintf("  %-8s %-15s %s", item.Status, item.Action, human.Line(explain.FirstFinding(item.Note))), cli.TerminalWidth(d.out)))
		}
	}
	return err
}

// cameBack reads the restored bag and validates it like any bag.
func (d *demo) cameBack(ctx context.Context, object string) error {
	institution, _, _ := strings.Cut(object, "/")
	bucket, err := d.bucket("aptrust.restore." + institution)
	if err != nil {
		return err
	}
	tar, err := bucket.Get(ctx, object+".tar", storage.Range{Length: -1})
	if err != nil {
		return fmt.Errorf("%s did not come back: %w", object, err)
	}
	defer tar.Close() //nolint:errcheck // it was read to its end, or the error says more
	b, err := bag.Read(ctx, tar, bag.ReadOptions{})
	if err != nil {
		return fmt.Errorf("read %s as it came back: %w", object, err)
	}
	if v := b.Validate(nil); !v.Valid {
		return fmt.Errorf("%s was restored as a bag that is not valid: %s", object, v.Errors[0].Message)
	}
	cli.Say(d.out, "%s was restored: a valid bag of %s, read from its bucket.", object, human.Count(len(b.Files), "file", "files"))
	return nil
}

// isGone asks the buckets for every copy that the receipts name.
func (d *demo) isGone(ctx context.Context, object string) error {
	asked, err := requests.In(d.registry).DeletionRequests(ctx, lighthouse, 0, 1)
	if err != nil {
		return err
	}
	receipts, err := requests.In(d.registry).Receipts(ctx, asked[0].ID, 100_000)
	if err != nil {
		return err
	}
	for _, r := range receipts {
		bucket, err := d.target(r.Target)
		if err != nil {
			return err
		}
		if _, err := bucket.Head(ctx, r.Key); !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("%s of %s was deleted and is there: %w", r.Key, object, err)
		}
	}
	if len(receipts) == 0 {
		return fmt.Errorf("there is no receipt for %s", object)
	}
	cli.Say(d.out, "%s is deleted: %s, and no copy is left.", object, human.Count(len(receipts), "receipt", "receipts"))
	return nil
}
