package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/restore"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// wayBack has bags given back, one of them out of Glacier, and one deleted by two
// people, and looks at what came of it as a stranger would.
func (d *demo) wayBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	const film, charts, logbooks = lighthouse + "/survey-film", harbor + "/charts", lighthouse + "/logbooks"
	say(d.out, "\nThe way back: a bag of 96 MiB, one that is in Glacier, and a deletion that two people decide on.")
	began := time.Now()
	for _, object := range []string{film, charts} {
		if err := d.restore(ctx, object); err != nil {
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
	say(d.out, "All of it in %.1f s.", time.Since(began).Seconds())
	return nil
}

// restore asks for an object as farol restore does.
func (d *demo) restore(ctx context.Context, object string) error {
	q := requests.RestorationRequest{Identifier: object, Tier: "Standard", Days: 10}
	option, err := requests.In(d.registry).StorageOptionOf(ctx, q)
	if err != nil {
		return err
	}
	q.Class = restore.ArchiveClass(option, func(target string) string { return d.targets[target].Class() }, false)
	_, err = requests.In(d.registry).RequestRestoration(ctx, q)
	return err
}

// deleteObject has two people decide on a deletion. What was stored a moment ago must be
// kept for its time, so the demonstration makes it old.
func (d *demo) deleteObject(ctx context.Context, object string) error {
	people := []string{"first@" + lighthouse, "second@" + lighthouse}
	for _, email := range people {
		if _, err := d.registry.AddUser(ctx, registry.User{Email: email, Name: "An Archivist", Role: registry.RoleInstitutionalAdmin, Institution: lighthouse}); err != nil {
			return err
		}
	}
	_, _, err := requests.In(d.registry).RequestDeletion(ctx, people[0], []string{object})
	if !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("%s was stored a moment ago, and its deletion was not refused: %w", object, err)
	}
	say(d.out, "  %s asks too early: %v", people[0], err)
	for _, table := range []string{"intellectual_objects", "generic_files"} {
		if _, err := d.db.Exec(ctx, `UPDATE `+table+` SET created_at = now() - interval '1 year' WHERE identifier = $1 OR identifier LIKE $1 || '/%'`, object); err != nil {
			return fmt.Errorf("make %s older: %w", object, err)
		}
	}
	request, token, err := requests.In(d.registry).RequestDeletion(ctx, people[0], []string{object})
	if err != nil {
		return err
	}
	_, err = requests.In(d.registry).ApproveDeletion(ctx, request.ID, people[1], token)
	return err
}

// atRest waits until nothing is in work.
func (d *demo) atRest(ctx context.Context) error {
	for {
		items, err := d.registry.WorkItems(ctx, registry.ItemFilter{Limit: 10})
		if err != nil {
			return err
		}
		live := 0
		for _, item := range items {
			if item.Retry {
				live++
			}
		}
		if live == 0 {
			for _, item := range items {
				if item.Action != "Ingest" {
					fmt.Fprintln(d.out, cutTo(fmt.Sprintf("  %-8s %-15s %s", item.Status, item.Action, plain(firstFinding(item.Note))), terminalWidth(d.out)))
				}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d requests are still in work: %w", live, context.Cause(ctx))
		case err := <-d.Died():
			return fmt.Errorf("a server of the stack does not come back: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cameBack reads the bag that came back and judges it as any bag.
func (d *demo) cameBack(ctx context.Context, object string) error {
	institution, _, _ := strings.Cut(object, "/")
	bucket, err := d.receiving("aptrust.restore." + institution)
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
		return fmt.Errorf("%s came back as a bag that is not valid: %s", object, v.Errors[0].Message)
	}
	say(d.out, "%s came back: a valid bag of %s, read again from its bucket.", object, count(len(b.Files), "file", "files"))
	return nil
}

// isGone asks the buckets for every copy that the receipts name.
func (d *demo) isGone(ctx context.Context, object string) error {
	asked, err := requests.In(d.registry).DeletionRequests(ctx, lighthouse, 0, 1)
	if err != nil {
		return err
	}
	receipts, err := requests.In(d.registry).Receipts(ctx, asked[0].ID, mostReceipts)
	if err != nil {
		return err
	}
	for _, r := range receipts {
		if _, err := d.targets[r.Target].Head(ctx, r.Key); !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("%s of %s was deleted and is there: %w", r.Key, object, err)
		}
	}
	if len(receipts) == 0 {
		return fmt.Errorf("there is no receipt for %s", object)
	}
	say(d.out, "%s is gone: %s, and none of the copies answers.", object, count(len(receipts), "receipt", "receipts"))
	return nil
}
