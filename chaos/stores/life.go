package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/oracle"
	"github.com/farol-preservation/farol/retry"
)

const (
	limit   = 15 * time.Minute // of one store; then it is given up
	patient = 4 * time.Minute  // of one act
	stuck   = 40 * time.Second // without anything that moves, an act is given up
	pause   = 200 * time.Millisecond
	workers = 2
)

// A life is a Farol on one store, from its buckets to its doctor.
type life struct {
	*rig.Site

	store     store
	deposits  []deposit
	processes []*devstack.Process
}

// newLife makes a database, and no buckets yet.
func newLife(ctx context.Context, srv *rig.Servers, at rig.Store, s store, deposits []deposit) (*life, error) {
	site, err := rig.NewSite(ctx, srv, at, "s_"+strings.ReplaceAll(s.name, "-", "_"))
	if err != nil {
		return nil, err
	}
	l := &life{Site: site, store: s, deposits: slices.Clone(deposits)}
	l.Settings = map[string]string{"FAROL_FIXITY_SLOTS": "4"}
	for _, t := range rig.TargetNames() { // stores of one's own have no archive class
		l.Settings[rig.Setting(t, "STORAGE_CLASS")] = "STANDARD"
	}
	for i := range l.deposits {
		b := &l.deposits[i].bag
		b.Bucket = l.Institutions[slices.IndexFunc(l.Institutions, func(in rig.Institution) bool { return in.Identifier == b.Institution })].Receiving
		if !l.deposits[i].again {
			l.Bags = append(l.Bags, *b)
		}
	}
	// Attempts that cannot succeed are over within seconds.
	return l, l.Exec(ctx, `UPDATE stage_settings SET backoff_first = '500 ms', backoff_factor = 2, backoff_most = '2 s'`)
}

// stop ends the processes.
func (l *life) stop() {
	for _, p := range l.processes {
		p.Stop()
	}
	l.processes = nil
}

// end ends all that newLife began.
func (l *life) end() {
	l.stop()
	l.DB.Close()
}

// An act is a column of the table. It fills in an outcome.
type act struct {
	name string
	do   func(*life, context.Context, *outcome) error
}

func acts() []act {
	return []act{
		{"deposit", (*life).deposit},
		{"check", (*life).check},
		{"ingest", (*life).ingest},
		{"re-ingest", (*life).reingest},
		{"restore", (*life).restore},
		{"copies", (*life).copies},
		{"fixity", (*life).fixity},
		{"delete", (*life).deletion},
		{"doctor", (*life).doctor},
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
		began, o := time.Now(), outcome{Act: a.name}
		if err := a.do(l, ctx, &o); err != nil {
			o.wrong("errors", err.Error())
		}
		o.Seconds = time.Since(began).Seconds()
		if list = append(list, o); ctx.Err() != nil {
			break
		}
	}
	return list
}

// makeBuckets has farol make every bucket that the settings and the institutions name.
func (l *life) makeBuckets(ctx context.Context) error {
	args := []string{"bucket", "create"}
	switch {
	case l.store.locked:
		args = append(args, "--lock", "compliance:1", "--yes")
	case l.store.versions:
		args = append(args, "--versions")
	}
	_, err := l.Farol(ctx, l.Env(), args...)
	if err != nil || !l.store.versions {
		return err
	}
	for _, b := range l.Buckets() { // those of no target as well
		_, err := l.Store.Client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
			Bucket: &b, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		if err != nil {
			return fmt.Errorf("enable versions in %s: %w", b, err)
		}
	}
	return nil
}

// uploadInParts uploads a bag as programs for large files do.
func (l *life) uploadInParts(ctx context.Context, dir string, b oracle.Bag) error {
	client := l.Store.Client
	f, err := os.Open(filepath.Join(dir, b.Institution+"-"+b.Key))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	up, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &b.Bucket, Key: &b.Key})
	if err != nil {
		return err
	}
	var done types.CompletedMultipartUpload
	for at := int64(0); at < end; at += 5 * mebibyte {
		number := aws.Int32(int32(len(done.Parts) + 1)) //nolint:gosec // a few
		out, err := client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.Bucket, Key: &b.Key, UploadId: up.UploadId, PartNumber: number, Body: io.NewSectionReader(f, at, min(5*mebibyte, end-at)),
		})
		if err != nil {
			return err
		}
		done.Parts = append(done.Parts, types.CompletedPart{ETag: out.ETag, PartNumber: number})
	}
	_, err = client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &b.Bucket, Key: &b.Key, UploadId: up.UploadId, MultipartUpload: &done})
	return err
}

// wait looks until all is done, and gives up when nothing moves. What is not done then is
// counted by the caller.
func (l *life) wait(ctx context.Context, look func() (done bool, progress int, err error)) error {
	last, began := -1, time.Now()
	for moved := began; time.Since(moved) < stuck && time.Since(began) < patient; {
		done, progress, err := look()
		if err != nil || done {
			return err
		}
		if progress != last {
			last, moved = progress, time.Now()
		}
		if !retry.Pause(ctx, pause) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// settle waits until so many items of an action have ended, or are known to have to wait.
func (l *life) settle(ctx context.Context, action string, want int) error {
	return l.wait(ctx, func() (bool, int, error) {
		var ended, done int
		err := l.DB.QueryRow(ctx, `SELECT count(*) FILTER (WHERE NOT retry OR strpos(note, $2) > 0), (SELECT count(*) FROM work_item_attempts WHERE outcome = 'done')
			FROM work_items WHERE action = $1`, action, keptWords).Scan(&ended, &done)
		return ended >= want, ended + done, err
	})
}

// An item is what became of a bag or a request.
type item struct{ Object, Status, Stage, Code, Note string }

func (i item) String() string {
	if i.Code == "" {
		return i.Status + " at " + i.Stage
	}
	return i.Status + " at " + i.Stage + " (" + i.Code + ")"
}

// ended counts the bags whose last item of an action is as it should be. An item that is not
// done has the code of its last attempt.
func (l *life) ended(ctx context.Context, o *outcome, action string, bags []oracle.Bag) error {
	items, err := l.items(ctx, action)
	o.Want = len(bags)
	for _, b := range bags {
		should := "Success"
		if b.Wrong != "" {
			should = "Failed"
		}
		switch i, found := items[b.Object()]; {
		case !found:
			o.wrong("never in the queue", "")
		case i.Status != should:
			o.wrong(i.String(), b.Name+": "+i.Note)
		default:
			o.Right++
		}
	}
	return err
}

func (l *life) items(ctx context.Context, action string) (map[string]item, error) {
	rows, _ := l.DB.Query(ctx, `SELECT w.object_identifier, w.status::text, w.stage::text, coalesce(nullif(w.error_code, ''), a.error_code, ''), concat_ws('; ', nullif(a.error, ''), w.note)
		FROM work_items w LEFT JOIN LATERAL (SELECT error_code, error FROM attempts a WHERE a.work_item_id = w.id AND a.error_code <> '' ORDER BY claim_token DESC LIMIT 1) a ON w.status <> 'Success'
		WHERE action = $1 ORDER BY w.id`, action) // whose error is that of its rows
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	found := map[string]item{}
	for _, i := range list {
		found[i.Object] = i
	}
	return found, err
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
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// again is the last deposit: the second of one bag.
func (l *life) again() deposit { return l.deposits[len(l.deposits)-1] }

// current are the bags as they were uploaded last, without those that are invalid.
func (l *life) current() (list []oracle.Bag) {
	for _, b := range l.Valid(len(l.Bags)) {
		if b.Object() == l.again().bag.Object() {
			b = l.again().bag
		}
		list = append(list, b)
	}
	return list
}
