package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/chaos/oracle"
	"github.com/farol-preservation/farol/chaos/rig"
)

const (
	limit   = 12 * time.Minute // of one store; then it is given up
	patient = 4 * time.Minute  // of one act
	stuck   = 40 * time.Second // without anything that moves, an act is given up
	deleted = 9                // bags that two people delete
	pause   = 200 * time.Millisecond
	workers = 2

	keptWords = "kept by the store until" // in the note of a deletion that waits for a lock
)

// A life is a Farol on one store, from its buckets to its doctor.
type life struct {
	*rig.Site

	store     store
	deposits  []deposit
	processes []*rig.Process
}

// newLife makes a database, and no buckets yet.
func newLife(ctx context.Context, srv *rig.Servers, at rig.Store, s store, deposits []deposit) (*life, error) {
	site, err := rig.NewSite(ctx, srv, at, "s_"+strings.ReplaceAll(s.name, "-", "_"))
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was making
	}
	l := &life{Site: site, store: s, deposits: slices.Clone(deposits)}
	l.BagsDir, l.Settings = filepath.Join(filepath.Dir(srv.Dir), "bags"), map[string]string{"FAROL_FIXITY_SLOTS": "4"}
	for _, t := range rig.TargetNames() { // stores of one's own have no archive class
		l.Settings[rig.Setting(t, "STORAGE_CLASS")] = "STANDARD"
	}
	for i := range l.deposits {
		d := &l.deposits[i]
		for _, in := range l.Institutions {
			if in.Identifier == d.bag.Institution {
				d.bag.Bucket = in.Receiving
			}
		}
		if !d.changed {
			l.Bags = append(l.Bags, d.bag)
		}
	}
	// Attempts that cannot succeed are over within seconds.
	return l, l.Exec(ctx, `UPDATE stage_settings SET backoff_first = '500 ms', backoff_factor = 2, backoff_most = '2 s'`) //nolint:wrapcheck // it says what it was doing
}

// end stops the processes.
func (l *life) end() {
	for _, p := range l.processes {
		p.Stop()
	}
	l.processes = nil
	l.DB.Close()
}

// An act is a column of the table.
type act struct {
	name string
	do   func(*life, context.Context) (right, want int, said string, err error)
}

func acts() []act {
	return []act{
		{"deposit", (*life).depositAll}, {"check", (*life).check}, {"ingest", (*life).ingest}, {"re-ingest", (*life).reingest},
		{"restore", (*life).restore}, {"copies", (*life).copies}, {"fixity", (*life).fixity}, {"delete", (*life).deletion}, {"doctor", (*life).doctor},
	}
}

func actNames() (names []string) {
	for _, a := range acts() {
		names = append(names, a.name)
	}
	return names
}

// all takes every act, also after one that went wrong: what is there can go on.
func (l *life) all(ctx context.Context) (list []outcome) {
	for _, a := range acts() {
		began := time.Now()
		o := outcome{Act: a.name}
		one, cancel := context.WithTimeoutCause(ctx, patient+stuck, errors.New("timeout of the act"))
		var err error
		o.Right, o.Want, o.Said, err = a.do(l, one)
		cancel()
		if err != nil {
			o.Said = strings.TrimPrefix(o.Said+"; "+shorten(err.Error()), "; ")
		}
		o.Seconds = time.Since(began).Seconds()
		if list = append(list, o); ctx.Err() != nil {
			break
		}
	}
	return list
}

func shorten(s string) string {
	if r := []rune(strings.Join(strings.Fields(s), " ")); len(r) > 300 {
		return string(r[:299]) + "…"
	}
	return strings.Join(strings.Fields(s), " ")
}

// makeBuckets makes every bucket that the settings and the institutions name.
func (l *life) makeBuckets(ctx context.Context) error {
	for _, b := range l.Buckets() {
		locked := l.store.locked && slices.ContainsFunc(rig.TargetNames(), func(t string) bool { return l.TargetBucket(t) == b })
		in := &s3.CreateBucketInput{Bucket: &b}
		if locked {
			in.ObjectLockEnabledForBucket = aws.Bool(true)
		}
		_, err := l.Store.Client.CreateBucket(ctx, in)
		if locked && err == nil {
			_, err = l.Store.Client.PutObjectLockConfiguration(ctx, &s3.PutObjectLockConfigurationInput{Bucket: &b, ObjectLockConfiguration: &types.ObjectLockConfiguration{
				ObjectLockEnabled: types.ObjectLockEnabledEnabled,
				Rule:              &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeCompliance, Days: aws.Int32(1)}},
			}})
		}
		if l.store.versions && err == nil {
			_, err = l.Store.Client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &b, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
		}
		if err != nil {
			return fmt.Errorf("make bucket %s: %w", b, err)
		}
	}
	return nil
}

// depositAll makes the buckets and uploads all bags.
func (l *life) depositAll(ctx context.Context) (right, want int, said string, err error) {
	want = len(l.Bags)
	if err := l.makeBuckets(ctx); err != nil {
		return 0, want, "", err
	}
	if err := l.AddInstitutions(ctx); err != nil {
		return 0, want, "", err //nolint:wrapcheck // it says which
	}
	for _, d := range l.deposits {
		if d.changed {
			continue
		}
		upload := l.Upload
		if d.inParts {
			upload = l.uploadInParts
		}
		if uerr := upload(ctx, d.bag); uerr != nil {
			err = uerr
			continue
		}
		right++
	}
	return right, want, "", err
}

// uploadInParts uploads a bag as programs for large files do.
func (l *life) uploadInParts(ctx context.Context, b oracle.Bag) error {
	f, err := os.Open(filepath.Join(l.BagsDir, b.Institution+"-"+b.Key))
	if err != nil {
		return fmt.Errorf("upload %s in parts: %w", b.Key, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("upload %s in parts: %w", b.Key, err)
	}
	up, err := l.Store.Client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.Bucket, Key: &b.Key})
	if err != nil {
		return fmt.Errorf("upload %s in parts: %w", b.Key, err)
	}
	const part = 5 * mebibyte
	var done []types.CompletedPart
	for at := int64(0); at < info.Size(); at += part {
		number := aws.Int32(int32(len(done) + 1)) //nolint:gosec // a few
		out, err := l.Store.Client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.Bucket, Key: &b.Key, UploadId: up.UploadId, PartNumber: number, Body: io.NewSectionReader(f, at, min(part, info.Size()-at)),
		})
		if err != nil {
			return fmt.Errorf("upload %s in parts: %w", b.Key, err)
		}
		done = append(done, types.CompletedPart{ETag: out.ETag, PartNumber: number})
	}
	_, err = l.Store.Client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.Bucket, Key: &b.Key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	})
	if err != nil {
		return fmt.Errorf("upload %s in parts: %w", b.Key, err)
	}
	return nil
}

// settle waits until so many items of an action have ended, and gives up when nothing moves.
func (l *life) settle(ctx context.Context, action string, want int) error {
	var last [2]int
	began := time.Now()
	for moved := began; time.Since(moved) < stuck && time.Since(began) < patient; {
		var now [2]int
		err := l.DB.QueryRow(ctx, `SELECT count(*) FILTER (WHERE NOT retry OR strpos(note, $2) > 0), (SELECT count(*) FROM work_item_attempts WHERE outcome = 'done')
			FROM work_items WHERE action = $1`, action, keptWords).Scan(&now[0], &now[1])
		switch {
		case err != nil:
			return fmt.Errorf("read the queue: %w", err)
		case now[0] >= want:
			return nil
		case now != last:
			last, moved = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx) //nolint:wrapcheck // as it is
		case <-time.After(pause):
		}
	}
	return nil // what has not ended is counted
}

// An item is what became of a bag or a request.
type item struct{ Object, Status, Stage, Code, Note string }

func (i item) String() string {
	s := i.Status + " at " + i.Stage
	if i.Code != "" {
		s += " (" + i.Code + ")"
	}
	return s
}

// items are the last ones of an action, by object identifier. What is live has the code of its
// last attempt.
func (l *life) items(ctx context.Context, action string) (map[string]item, error) {
	rows, err := l.DB.Query(ctx, `SELECT w.object_identifier, w.status::text, w.stage::text, coalesce(nullif(w.error_code, ''), a.error_code, ''), coalesce(nullif(w.note, ''), a.error, '')
		FROM work_items w LEFT JOIN LATERAL (SELECT error_code, error FROM attempts a WHERE a.work_item_id = w.id AND a.error_code <> '' ORDER BY claim_token DESC LIMIT 1) a ON w.status <> 'Success'
		WHERE action = $1 ORDER BY w.id`, action)
	if err != nil {
		return nil, fmt.Errorf("read the items: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	if err != nil {
		return nil, fmt.Errorf("read the items: %w", err)
	}
	found := map[string]item{}
	for _, i := range list {
		found[i.Object] = i
	}
	return found, nil
}

// A tally counts what went wrong in words, with an example of each.
type tally struct {
	n       map[string]int
	example map[string]string
}

func (t *tally) add(what, example string) {
	if t.n == nil {
		t.n, t.example = map[string]int{}, map[string]string{}
	}
	if t.n[what]++; t.example[what] == "" {
		t.example[what] = example
	}
}

func (t *tally) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t.n)) {
		part := fmt.Sprintf("%d %s", t.n[what], what)
		if e := t.example[what]; e != "" {
			part += ": " + shorten(e)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}
