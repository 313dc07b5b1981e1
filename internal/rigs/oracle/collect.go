package oracle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// Sources are where a world is.
type Sources struct {
	DB        *pgxpool.Pool
	S3        *s3.Client
	Bags      []Bag
	Targets   map[string][]Target // by storage option
	Staging   string              // bucket
	Receiving []string            // buckets
	Restoring map[string]string   // bucket, by institution
}

// Collect reads the rows, lists the buckets, and reads every copy back.
func Collect(ctx context.Context, from Sources) (World, error) {
	w := World{
		Bags: from.Bags, Targets: from.Targets, Messages: map[int64][]string{}, ByHand: map[int64]int{}, Most: map[string]int{},
		Deleted: map[string][]Item{}, Doubted: map[string]bool{}, Files: map[string]FileRow{}, Buckets: map[string][]Object{}, Receiving: map[string][]string{},
	}
	for _, read := range []func(context.Context, *pgxpool.Pool) error{w.queue, w.ledgerRows, w.log, w.records, w.deletions, w.events} {
		if err := read(ctx, from.DB); err != nil {
			return w, err
		}
	}
	for _, targets := range from.Targets {
		for _, t := range targets {
			if _, done := w.Buckets[t.Bucket]; done {
				continue
			}
			objects, err := readBucket(ctx, from.S3, t.Bucket)
			if err != nil {
				return w, err
			}
			w.Buckets[t.Bucket] = objects
		}
	}
	var err error
	if err := w.restored(ctx, from); err != nil {
		return w, err
	}
	if w.Staging, err = keys(ctx, from.S3, from.Staging); err != nil {
		return w, err
	}
	for _, bucket := range from.Receiving {
		if w.Receiving[bucket], err = keys(ctx, from.S3, bucket); err != nil {
			return w, err
		}
	}
	return w, nil
}

// each scans the rows of a query into dest, and calls then after each.
func each(ctx context.Context, db *pgxpool.Pool, sql string, dest []any, then func()) error {
	rows, err := db.Query(ctx, sql)
	if err == nil {
		_, err = pgx.ForEachRow(rows, dest, func() error { then(); return nil })
	}
	if err != nil {
		return fmt.Errorf("read the database: %w", err)
	}
	return nil
}

func (w *World) queue(ctx context.Context, db *pgxpool.Pool) error {
	var i Item
	err := each(ctx, db, `SELECT id, bucket::text, name::text, status::text, stage::text, error_code, note FROM all_work_items WHERE action = 'Ingest' ORDER BY id`,
		[]any{&i.ID, &i.Bucket, &i.Name, &i.Status, &i.Stage, &i.Code, &i.Note}, func() { w.Items = append(w.Items, i) })
	var stage, topic string
	var most int
	return errors.Join(err, each(ctx, db, `SELECT stage::text, max_attempts, topic FROM stage_settings WHERE action = 'Ingest' ORDER BY ordinal`,
		[]any{&stage, &most, &topic}, func() {
			w.Most[stage] = most
			w.Topics = append(w.Topics, topic)
		}))
}

// restored reads what was asked for, and what lies ready for the depositors.
func (w *World) restored(ctx context.Context, from Sources) error {
	var r Restoration
	err := each(ctx, from.DB, `SELECT id, bucket::text, name::text, status::text, stage::text, error_code, note, object_identifier::text
		FROM all_work_items WHERE action = 'Restore Object' ORDER BY id`,
		[]any{&r.ID, &r.Bucket, &r.Name, &r.Status, &r.Stage, &r.Code, &r.Note, &r.Object}, func() { w.Restored = append(w.Restored, r) })
	for i := range w.Restored {
		r := &w.Restored[i]
		institution, name, _ := strings.Cut(r.Object, "/")
		if err != nil || r.Status != "Success" {
			continue
		}
		var path string
		if path, err = download(ctx, from.S3, from.Restoring[institution], r.Object+".tar"); err == nil {
			r.Bag, err = ReadBag(path, institution, from.Restoring[institution], name+".tar")
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// download copies an object to a temporary file.
func download(ctx context.Context, client *s3.Client, bucket, key string) (path string, err error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return "", fmt.Errorf("read %s/%s: %w", bucket, key, err)
	}
	defer out.Body.Close() //nolint:errcheck // only read
	f, err := os.CreateTemp("", "farol-chaos-*.tar")
	if err != nil {
		return "", fmt.Errorf("keep %s: %w", key, err)
	}
	_, err = io.Copy(f, out.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("keep %s: %w", key, errors.Join(err, os.Remove(f.Name())))
	}
	return f.Name(), nil
}

func (w *World) ledgerRows(ctx context.Context, db *pgxpool.Pool) error {
	var a Attempt
	var ended *time.Time
	return each(ctx, db, `SELECT work_item_id, claim_token, stage, attempt, worker, claimed_at::timestamptz, ended_at::timestamptz, coalesce(outcome::text, ''), error_code, error
		FROM attempts ORDER BY work_item_id, claim_token`,
		[]any{&a.Item, &a.Token, &a.Stage, &a.Number, &a.Worker, &a.Claimed, &ended, &a.Outcome, &a.Code, &a.Error}, func() {
			a.Ended = aws.ToTime(ended)
			w.Attempts = append(w.Attempts, a)
		})
}

func (w *World) log(ctx context.Context, db *pgxpool.Pool) error {
	var item int64
	var topic string
	err := each(ctx, db, `SELECT work_item_id, topic FROM topic_messages WHERE work_item_id IS NOT NULL AND NOT posted ORDER BY xid, id`,
		[]any{&item, &topic}, func() { w.Messages[item] = append(w.Messages[item], topic) })
	return errors.Join(err, each(ctx, db, `SELECT work_item_id FROM work_item_audit`, []any{&item}, func() { w.ByHand[item]++ }))
}

func (w *World) records(ctx context.Context, db *pgxpool.Pool) error {
	var id int64
	var identifier string
	var size int64
	var deleted bool
	names := map[int64]string{}
	err := each(ctx, db, `SELECT id, identifier, size, state = 'D' FROM generic_files`, []any{&id, &identifier, &size, &deleted}, func() {
		names[id] = identifier
		w.Files[identifier] = FileRow{Size: size, Checksums: map[string][]string{}, Deleted: deleted}
	})
	var algorithm, digest string
	err = errors.Join(err, each(ctx, db, `SELECT generic_file_id, algorithm, digest FROM checksums`, []any{&id, &algorithm, &digest}, func() {
		row := w.Files[names[id]]
		row.Checksums[algorithm] = append(row.Checksums[algorithm], digest)
	}))
	var c Copy
	return errors.Join(err, each(ctx, db, `SELECT generic_file_id, target, bucket, key FROM storage_records`, []any{&id, &c.Target, &c.Bucket, &c.Key}, func() {
		row := w.Files[names[id]]
		row.Copies = append(row.Copies, c)
		w.Files[names[id]] = row
	}))
}

// deletions reads what deletions came to, and which copies are known to be bad.
func (w *World) deletions(ctx context.Context, db *pgxpool.Pool) error {
	var i Item
	var object string
	err := each(ctx, db, `SELECT id, bucket::text, name::text, status::text, stage::text, error_code, note, object_identifier::text FROM all_work_items WHERE action = 'Delete' ORDER BY id`,
		[]any{&i.ID, &i.Bucket, &i.Name, &i.Status, &i.Stage, &i.Code, &i.Note, &object}, func() { w.Deleted[object] = append(w.Deleted[object], i) })
	var file string
	var c Copy
	err = errors.Join(err, each(ctx, db, `SELECT f.identifier, r.target, r.bucket, r.key FROM deletion_receipts r JOIN generic_files f ON f.id = r.generic_file_id WHERE r.removed_at IS NOT NULL`,
		[]any{&file, &c.Target, &c.Bucket, &c.Key}, func() {
			row := w.Files[file]
			row.Receipts = append(row.Receipts, c)
			w.Files[file] = row
		}))
	return errors.Join(err, each(ctx, db, `SELECT s.bucket, s.key FROM storage_records s WHERE EXISTS (SELECT FROM fixity_failures f WHERE f.storage_record_id = s.id AND f.state = 'open')
		OR EXISTS (SELECT FROM fixity_checks c WHERE c.storage_record_id = s.id AND c.requested)`, []any{&c.Bucket, &c.Key}, func() { w.Doubted[c.Bucket+"/"+c.Key] = true }))
}

func (w *World) events(ctx context.Context, db *pgxpool.Pool) error {
	var e Event
	return each(ctx, db, `SELECT o.identifier, coalesce(f.identifier, ''), e.event_type, e.outcome_detail
		FROM premis_events e JOIN intellectual_objects o ON o.id = e.intellectual_object_id LEFT JOIN generic_files f ON f.id = e.generic_file_id`,
		[]any{&e.Object, &e.File, &e.Type, &e.Detail}, func() { w.Events = append(w.Events, e) })
}

// keys lists a bucket.
func keys(ctx context.Context, client *s3.Client, bucket string) (list []string, err error) {
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", bucket, err)
		}
		for _, o := range page.Contents {
			list = append(list, aws.ToString(o.Key))
		}
	}
	return list, nil
}

// readBucket reads every object of a bucket to its end.
func readBucket(ctx context.Context, client *s3.Client, bucket string) ([]Object, error) {
	list, err := keys(ctx, client, bucket)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var objects []Object
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, key := range list {
		g.Go(func() error {
			out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
			if err != nil {
				return fmt.Errorf("read %s/%s: %w", bucket, key, err)
			}
			defer out.Body.Close() //nolint:errcheck // read to its end
			h := sha256.New()
			n, err := io.Copy(h, out.Body)
			if err != nil {
				return fmt.Errorf("read %s/%s: %w", bucket, key, err)
			}
			mu.Lock()
			defer mu.Unlock()
			objects = append(objects, Object{Key: key, Size: n, SHA256: hex.EncodeToString(h.Sum(nil)), Bag: bagOf(out.Metadata)})
			return nil
		})
	}
	return objects, g.Wait()
}

// bagOf reads the metadata of a copy. Names that a header cannot carry are escaped.
func bagOf(metadata map[string]string) string {
	if name, err := url.QueryUnescape(metadata["bag-encoded"]); err == nil && name != "" {
		return name
	}
	return metadata["bag"]
}
