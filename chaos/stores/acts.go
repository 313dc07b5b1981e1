package stores

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

const keptWords = "kept by the store until" // in the note of a deletion that waits for a lock

// deposit makes the buckets and uploads all bags.
func (l *life) deposit(ctx context.Context, o *outcome) error {
	o.Want = len(l.Bags)
	if err := errors.Join(l.AddInstitutions(ctx), l.makeBuckets(ctx)); err != nil {
		return err
	}
	for _, d := range l.deposits {
		upload := l.Upload
		switch {
		case d.again:
			continue
		case d.inParts:
			upload = l.uploadInParts
		}
		if err := upload(ctx, d.dir, d.bag); err != nil {
			o.wrong("refused", err.Error())
			continue
		}
		o.Right++
	}
	return nil
}

// check counts the checks of farol check --write=all.
func (l *life) check(ctx context.Context, o *outcome) error {
	out, err := l.Farol(ctx, l.Env(), "check", "--write=all", "--json")
	var report struct {
		Checks []struct{ Service, Check, State, Found string } `json:"checks"`
	}
	if jerr := json.NewDecoder(strings.NewReader(out)).Decode(&report); jerr != nil {
		return errors.Join(err, jerr)
	}
	for _, c := range report.Checks {
		if c.State == "failed" {
			o.wrong(c.Check+" failed", c.Service+": "+c.Found)
			continue
		}
		o.Right++
	}
	o.Want = len(report.Checks)
	return nil
}

// ingest starts the processes and waits until all bags have ended.
func (l *life) ingest(ctx context.Context, o *outcome) (err error) {
	for i := range workers {
		l.processes = append(l.processes, l.Process(fmt.Sprintf("worker-%d", i+1), "work"))
	}
	l.processes = append(l.processes, l.Process("scheduler", "schedule", "--jobs", "read-buckets"))
	for _, p := range l.processes {
		err = errors.Join(err, p.Start())
	}
	return errors.Join(err, l.settle(ctx, "Ingest", len(l.Bags)), l.ended(ctx, o, "Ingest", l.Bags))
}

// reingest uploads a bag again that was changed.
func (l *life) reingest(ctx context.Context, o *outcome) error {
	d := l.again()
	err := errors.Join(l.Upload(ctx, d.dir, d.bag), l.settle(ctx, "Ingest", len(l.Bags)+1), l.ended(ctx, o, "Ingest", []oracle.Bag{d.bag}))
	var items int
	if err := l.DB.QueryRow(ctx, `SELECT count(*) FROM work_items WHERE object_identifier = $1`, d.bag.Object()).Scan(&items); err != nil || items != 2 {
		o.Right = 0
		o.wrong("not found by the bucket reader", "")
	}
	return err
}

// restore asks for all objects. The oracle reads what comes of it with the copies.
func (l *life) restore(ctx context.Context, o *outcome) error {
	asked, err := l.request(ctx, l.current(), func(b oracle.Bag) error {
		_, err := l.Farol(ctx, l.Env(), "restore", "object", b.Object())
		return err
	})
	return errors.Join(err, l.settle(ctx, "Restore Object", asked), l.ended(ctx, o, "Restore Object", l.current()))
}

// copies has the oracle judge everything, and counts the copies that have the bytes that were
// deposited. Of the bag that was uploaded twice only these are judged.
func (l *life) copies(ctx context.Context, o *outcome) error {
	w, err := l.Collect(ctx)
	if err != nil {
		return err
	}
	l.compare(w, o)
	ours, again := map[string]bool{}, l.again().bag.Object()
	for identifier, row := range w.Files {
		for _, c := range row.Copies {
			ours[c.Bucket+"/"+c.Key] = strings.HasPrefix(identifier, again+"/")
		}
	}
	kept, err := l.replaced(ctx)
	if err != nil {
		return err
	}
	counted := []string{"valid-bag-", "invalid-bag-", "restoration-"} // by other acts
	for _, v := range oracle.Judge(w, oracle.Promise{}) {
		at, _, _ := strings.Cut(v.Detail, " ")
		if kept[at] && v.Kind == "copy-not-named" {
			continue
		}
		if !strings.HasSuffix(v.Bag, again) && !ours[at] && !slices.ContainsFunc(counted, func(kind string) bool { return strings.HasPrefix(v.Kind, kind) }) {
			o.wrong(v.Kind, v.Bag+": "+v.Detail)
		}
	}
	return nil
}

// replaced are the copies that the bag which came again has replaced and the store keeps:
// Farol has to remember them, since it can delete them only when their lock has ended.
func (l *life) replaced(ctx context.Context) (map[string]bool, error) {
	kept := map[string]bool{}
	if !l.store.locked {
		return kept, nil
	}
	rows, _ := l.DB.Query(ctx, `SELECT bucket, key FROM retired_copies`) // whose error is that of its rows
	copies, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Bucket, Key string }])
	if err != nil {
		return nil, err
	}
	for _, c := range copies {
		head, err := l.Store.Client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &c.Bucket, Key: &c.Key})
		if err != nil {
			return nil, fmt.Errorf("a replaced copy: %w", err)
		}
		kept[c.Bucket+"/"+c.Key] = time.Now().Before(aws.ToTime(head.ObjectLockRetainUntilDate))
	}
	return kept, nil
}

// compare counts the promised copies, and those on record whose bytes are in the store.
func (l *life) compare(w oracle.World, o *outcome) {
	stored := map[string]string{}
	for bucket, objects := range w.Buckets {
		for _, object := range objects {
			stored[bucket+"/"+object.Key] = object.SHA256
		}
	}
	for _, b := range l.current() {
		for _, f := range b.Preserved() {
			for _, t := range w.Targets[b.Option] {
				o.Want++
				if slices.ContainsFunc(w.Files[b.Object()+"/"+f.Path].Copies, func(c oracle.Copy) bool {
					return c.Target == t.Name && c.Bucket == t.Bucket && stored[c.Bucket+"/"+c.Key] == f.Digests["sha256"]
				}) {
					o.Right++
				}
			}
		}
	}
}

// fixity has every copy checked, and counts those that were found good.
func (l *life) fixity(ctx context.Context, o *outcome) (err error) {
	for _, t := range rig.TargetNames() {
		_, perr := l.Farol(ctx, l.Env(), "fixity", "policy", t, "--read")
		err = errors.Join(err, perr)
	}
	for _, b := range l.current() {
		o.Want += len(b.Preserved()) * len(l.Targets()[b.Option])
	}
	var began time.Time
	objects, oerr := l.objects(ctx)
	if err = errors.Join(err, oerr, l.DB.QueryRow(ctx, `SELECT now()`).Scan(&began)); err != nil || len(objects) == 0 {
		return err
	}
	if _, err := l.Farol(ctx, l.Env(), append([]string{"fixity", "check", "--again"}, objects...)...); err != nil {
		return err
	}
	var open, bad int
	var said string
	err = l.wait(ctx, func() (bool, int, error) {
		err := l.DB.QueryRow(ctx, `SELECT (SELECT count(*) FROM storage_records WHERE active AND last_fixity_at >= $1), (SELECT count(*) FROM fixity_checks),
			(SELECT count(*) FROM fixity_failures WHERE state = 'open'), (SELECT coalesce(min(nullif(error, '')), '') FROM fixity_checks)`, began).Scan(&o.Right, &open, &bad, &said)
		return open == 0, o.Right, err
	})
	for range bad {
		o.wrong("bad copies", "")
	}
	for range open {
		o.wrong("open checks", said)
	}
	return err
}

// deletion has two people delete some objects. Where copies are locked, the deletions have to
// wait, with the reason.
func (l *life) deletion(ctx context.Context, o *outcome) error {
	if err := l.AddPeople(ctx); err != nil {
		return err
	}
	bags := l.current()
	chosen := slices.Concat(bags[:5], bags[len(bags)-4:]) // long names, and large files
	asked, err := l.request(ctx, chosen, func(b oracle.Bag) error { _, err := l.Delete(ctx, b); return err })
	items, ierr := map[string]item(nil), error(nil)
	if err = errors.Join(err, l.settle(ctx, "Delete", asked)); err == nil {
		items, ierr = l.items(ctx, "Delete")
	}
	o.Want = len(chosen)
	for _, b := range chosen {
		i, found := items[b.Object()]
		kept := l.store.locked && i.Status == "Pending" && strings.Contains(i.Note, keptWords)
		switch left, err := l.left(ctx, b); {
		case !found:
			o.wrong("never in the queue", "")
		case !kept && (i.Status != "Success" || l.store.locked):
			o.wrong(i.String(), b.Name+": "+i.Note)
		case err != nil:
			o.wrong("not known to be gone", err.Error())
		case !kept && left > 0:
			o.wrong("with copies or versions left", fmt.Sprintf("%s: %d", b.Name, left))
		default:
			o.Right++
		}
	}
	return errors.Join(err, ierr)
}

// left counts what the store still has of an object that was deleted: copies with a receipt,
// and their versions.
func (l *life) left(ctx context.Context, b oracle.Bag) (n int, err error) {
	rows, _ := l.DB.Query(ctx, `SELECT r.target, r.bucket, r.key FROM deletion_receipts r JOIN generic_files f ON f.id = r.generic_file_id
		WHERE starts_with(f.identifier, $1 || '/')`, b.Object()) // whose error is that of its rows
	copies, err := pgx.CollectRows(rows, pgx.RowToStructByPos[oracle.Copy])
	if err != nil {
		return 0, fmt.Errorf("read the receipts: %w", err)
	}
	for _, c := range copies {
		out, err := l.Store.Client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &c.Bucket, Prefix: &c.Key})
		if err != nil {
			return 0, fmt.Errorf("list %s/%s: %w", c.Bucket, c.Key, err)
		}
		n += len(out.Contents)
		if !l.store.versions {
			continue
		}
		versions, err := l.Store.Client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &c.Bucket, Prefix: &c.Key})
		if err != nil {
			return 0, fmt.Errorf("list the versions of %s/%s: %w", c.Bucket, c.Key, err)
		}
		n += len(versions.Versions) + len(versions.DeleteMarkers)
	}
	return n, nil
}

// doctor is right if nothing needs a person but the invalid bags.
func (l *life) doctor(ctx context.Context, o *outcome) error {
	l.stop()
	o.Want = 1
	out, err := l.Farol(ctx, l.Env(), "doctor", "--json")
	var report struct {
		Findings []struct {
			Store, What, Why string
			Count            int
			Person           bool `json:"needs_person"`
			Names            []string
		}
		Unchecked []struct{ Store, Error string }
	}
	if jerr := json.NewDecoder(strings.NewReader(out)).Decode(&report); jerr != nil {
		return errors.Join(err, jerr)
	}
	for _, f := range report.Findings {
		for range f.Count {
			if f.Person && f.Why != "open-review" {
				o.wrong(f.Why+" "+f.What, fmt.Sprintf("%s: %v", f.Store, f.Names))
			}
		}
	}
	for _, u := range report.Unchecked {
		o.wrong("unchecked", u.Store+": "+u.Error)
	}
	if len(o.Wrong) == 0 {
		o.Right = 1
	}
	return nil
}
