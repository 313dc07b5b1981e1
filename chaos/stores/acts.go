package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/chaos/oracle"
	"github.com/farol-preservation/farol/chaos/rig"
)

// check counts the checks of farol check --write=all.
func (l *life) check(ctx context.Context) (right, want int, said string, err error) {
	out, err := l.Farol(ctx, l.Env(), "check", "--write=all", "--json")
	var report struct {
		Checks []struct{ Service, Check, State, Found string } `json:"checks"`
	}
	if jerr := json.NewDecoder(strings.NewReader(out)).Decode(&report); jerr != nil {
		return 0, 0, "", errors.Join(err, jerr)
	}
	var wrong tally
	for _, c := range report.Checks {
		if c.State == "failed" {
			wrong.add(c.Check+" failed", c.Service+": "+c.Found)
			continue
		}
		right++
	}
	return right, len(report.Checks), wrong.String(), nil
}

// ingest starts the processes and waits until all bags have ended.
func (l *life) ingest(ctx context.Context) (right, want int, said string, err error) {
	for i := range workers {
		l.processes = append(l.processes, l.Process(fmt.Sprintf("worker-%d", i+1), "work"))
	}
	l.processes = append(l.processes, l.Process("scheduler", "schedule", "--jobs", "read-buckets"))
	for _, p := range l.processes {
		err = errors.Join(err, p.Start())
	}
	if err = errors.Join(err, l.settle(ctx, "Ingest", len(l.Bags))); err != nil {
		return 0, len(l.Bags), "", err
	}
	return l.ended(ctx, "Ingest", l.Bags)
}

// ended counts the bags whose last item of an action is as it should be.
func (l *life) ended(ctx context.Context, action string, bags []oracle.Bag) (right, want int, said string, err error) {
	items, err := l.items(ctx, action)
	var wrong tally
	for _, b := range bags {
		i, found := items[b.Object()]
		switch should := map[bool]string{true: "Success", false: "Failed"}[b.Wrong == ""]; {
		case !found:
			wrong.add("never "+map[bool]string{true: "found", false: "ingested"}[action == "Ingest"], "")
		case i.Status != should:
			wrong.add(i.String(), b.Name+": "+i.Note)
		default:
			right++
		}
	}
	return right, len(bags), wrong.String(), err
}

// reingest uploads a bag again that was changed.
func (l *life) reingest(ctx context.Context) (right, want int, said string, err error) {
	d := l.deposits[len(l.deposits)-1]
	was := l.BagsDir
	l.BagsDir = filepath.Join(was, "changed")
	err = l.Upload(ctx, d.bag)
	l.BagsDir = was
	if err = errors.Join(err, l.settle(ctx, "Ingest", len(l.Bags)+1)); err != nil {
		return 0, 1, "", err
	}
	var items int
	if err := l.DB.QueryRow(ctx, `SELECT count(*) FROM work_items WHERE object_identifier = $1`, d.bag.Object()).Scan(&items); err != nil || items != 2 {
		return 0, 1, fmt.Sprintf("%d items of two uploads", items), err //nolint:wrapcheck // it says enough
	}
	return l.ended(ctx, "Ingest", []oracle.Bag{d.bag})
}

// current are the bags as they were uploaded last, without those that are invalid.
func (l *life) current() (list []oracle.Bag) {
	again := l.deposits[len(l.deposits)-1].bag
	for _, b := range l.Valid(len(l.Bags)) {
		if b.Object() == again.Object() {
			b = again
		}
		list = append(list, b)
	}
	return list
}

// request asks something of those bags that are on record, and returns for how many.
func (l *life) request(ctx context.Context, bags []oracle.Bag, ask func(oracle.Bag) error) (asked int, err error) {
	objects, err := l.objects(ctx)
	for _, b := range bags {
		if slices.Contains(objects, b.Object()) {
			err = errors.Join(err, ask(b))
			asked++
		}
	}
	return asked, err
}

// objects are the identifiers of those on record.
func (l *life) objects(ctx context.Context) ([]string, error) {
	rows, _ := l.DB.Query(ctx, `SELECT identifier FROM intellectual_objects WHERE state = 'A'`) // whose error is that of its rows
	return pgx.CollectRows(rows, pgx.RowTo[string])                                             //nolint:wrapcheck // it says enough
}

// restore asks for all objects.
func (l *life) restore(ctx context.Context) (right, want int, said string, err error) {
	bags := l.current()
	asked, err := l.request(ctx, bags, func(b oracle.Bag) error {
		_, err := l.Farol(ctx, l.Env(), "restore", "object", b.Object())
		return err //nolint:wrapcheck // it says what it was doing
	})
	if err = errors.Join(err, l.settle(ctx, "Restore Object", asked)); err != nil {
		return 0, len(bags), "", err
	}
	return l.ended(ctx, "Restore Object", bags)
}

// copies has the oracle judge everything, and counts the copies that have the bytes that were
// deposited. Of the bag that was uploaded twice only these are judged.
func (l *life) copies(ctx context.Context) (right, want int, said string, err error) {
	w, err := l.Collect(ctx)
	if err != nil {
		return 0, 0, "", err //nolint:wrapcheck // it says what it was reading
	}
	stored := map[string]oracle.Object{}
	for bucket, objects := range w.Buckets {
		for _, o := range objects {
			stored[bucket+"/"+o.Key] = o
		}
	}
	for _, b := range l.current() {
		for _, f := range b.Preserved() {
			for _, t := range w.Targets[b.Option] {
				want++
				if slices.ContainsFunc(w.Files[b.Object()+"/"+f.Path].Copies, func(c oracle.Copy) bool {
					return c.Target == t.Name && c.Bucket == t.Bucket && stored[c.Bucket+"/"+c.Key].SHA256 == f.Digests["sha256"]
				}) {
					right++
				}
			}
		}
	}
	again := l.deposits[len(l.deposits)-1].bag.Object()
	ours := map[string]bool{} // copies of the bag that was uploaded twice
	for identifier, row := range w.Files {
		for _, c := range row.Copies {
			ours[c.Bucket+"/"+c.Key] = strings.HasPrefix(identifier, again+"/")
		}
	}
	var wrong tally
	for _, v := range oracle.Judge(w, oracle.Promise{}) {
		at, _, _ := strings.Cut(v.Detail, " ")
		if !strings.HasSuffix(v.Bag, again) && !ours[at] {
			wrong.add(v.Kind, v.Bag+": "+v.Detail)
		}
	}
	return right, want, wrong.String(), nil
}

// fixity has every copy checked, and counts those that were found good.
func (l *life) fixity(ctx context.Context) (right, want int, said string, err error) {
	for _, t := range rig.TargetNames() {
		if _, err := l.Farol(ctx, l.Env(), "fixity", "policy", t, "--read"); err != nil {
			return 0, 0, "", err //nolint:wrapcheck // it says what it was doing
		}
	}
	for _, b := range l.current() {
		want += len(b.Preserved()) * len(l.Targets()[b.Option])
	}
	var began time.Time
	if err := l.DB.QueryRow(ctx, `SELECT now()`).Scan(&began); err != nil {
		return 0, want, "", err //nolint:wrapcheck // it says enough
	}
	objects, err := l.objects(ctx)
	if err == nil && len(objects) > 0 {
		_, err = l.Farol(ctx, l.Env(), append([]string{"fixity", "check", "--again"}, objects...)...)
	}
	if err != nil {
		return 0, want, "", err
	}
	open, bad, errs := 0, 0, ""
	last, moved := -1, time.Now()
	for time.Since(moved) < stuck {
		err := l.DB.QueryRow(ctx, `SELECT (SELECT count(*) FROM storage_records WHERE active AND last_fixity_at >= $1), (SELECT count(*) FROM fixity_checks),
			(SELECT count(*) FROM fixity_failures WHERE state = 'open'), (SELECT coalesce(min(nullif(error, '')), '') FROM fixity_checks)`, began).Scan(&right, &open, &bad, &errs)
		if err != nil {
			return 0, want, "", fmt.Errorf("read the fixity checks: %w", err)
		}
		if right >= want || open == 0 {
			break
		}
		if right != last {
			last, moved = right, time.Now()
		}
		time.Sleep(pause)
	}
	if bad > 0 || errs != "" {
		said = fmt.Sprintf("%d bad copies, %d open checks: %s", bad, open, shorten(errs))
	}
	return right, want, said, nil
}

// deletion has two people delete some objects. Where copies are locked, the deletions have to
// wait, with the reason, and nothing may be gone.
func (l *life) deletion(ctx context.Context) (right, want int, said string, err error) {
	if err := l.AddPeople(ctx); err != nil {
		return 0, deleted, "", err //nolint:wrapcheck // it says what it was doing
	}
	bags := l.current()
	chosen := slices.Concat(bags[:deleted-4], bags[len(bags)-4:])                                             // long names, and large files
	asked, err := l.request(ctx, chosen, func(b oracle.Bag) error { _, err := l.Delete(ctx, b); return err }) //nolint:wrapcheck // it says what it was doing
	if err = errors.Join(err, l.settle(ctx, "Delete", asked)); err != nil {
		return 0, len(chosen), "", err
	}
	items, err := l.items(ctx, "Delete")
	if err != nil {
		return 0, len(chosen), "", err
	}
	var wrong tally
	for _, b := range chosen {
		i, found := items[b.Object()]
		kept := l.store.locked && i.Status == "Pending" && strings.Contains(i.Note, keptWords)
		switch left, err := l.left(ctx, b); {
		case !found:
			wrong.add("never ingested", "")
		case !kept && (i.Status != "Success" || l.store.locked):
			wrong.add(i.String(), b.Name+": "+i.Note)
		case err != nil:
			wrong.add("not known to be gone", err.Error())
		case !kept && left > 0:
			wrong.add("copies or versions left", fmt.Sprintf("%s: %d", b.Name, left))
		default:
			right++
		}
	}
	return right, len(chosen), wrong.String(), nil
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
		versions, err := l.Store.Client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &c.Bucket, Prefix: aws.String(c.Key)})
		if err != nil {
			return 0, fmt.Errorf("list the versions of %s/%s: %w", c.Bucket, c.Key, err)
		}
		n += len(versions.Versions) + len(versions.DeleteMarkers)
	}
	return n, nil
}

// doctor counts the findings that need a person; there are to be none.
func (l *life) doctor(ctx context.Context) (right, want int, said string, err error) {
	for _, p := range l.processes {
		p.Stop()
	}
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
		return 0, 1, "", errors.Join(err, jerr)
	}
	var wrong tally
	for _, f := range report.Findings {
		if f.Person && f.Why != "open-review" { // the invalid bags wait for a person
			wrong.add(fmt.Sprintf("finding in %s: %d %s, %s", f.Store, f.Count, f.What, f.Why), strings.Join(f.Names[:min(1, len(f.Names))], ""))
		}
	}
	for _, u := range report.Unchecked {
		wrong.add("unchecked", u.Store+": "+u.Error)
	}
	if said = wrong.String(); said == "" {
		right = 1
	}
	return right, 1, said, nil
}
