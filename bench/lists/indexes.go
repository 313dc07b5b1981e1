package lists

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// indexesOfLists are those of migrations 114, 118, 121 and 136: the indexes that next to nothing but
// lists needs.
const indexesOfLists = `'{work_items_archive_institution,work_items_archive_unsuccessful,work_items_archive_institution_unsuccessful,work_items_archive_review,
	work_items_archive_deletion,work_items_archive_name,intellectual_objects_updated,intellectual_objects_bytes,file_digests_md5,file_digests_sha256,
	event_records_recorded,event_records_notable,work_items_archive_updated,work_items_archive_requests,work_items_archive_institution_requests,
	work_items_ended_object}'::regclass[]`

// partsOfIndexes are these, and of partitioned ones the parts.
const partsOfIndexes = `(SELECT unnest(` + indexesOfLists + `) UNION ALL SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = ANY (` + indexesOfLists + `))`

// indexes measures what the indexes cost recordings and the archive.
func (m *measurement) indexes(ctx context.Context) (err error) {
	b := &bags{m: m}
	if b.db, err = m.connect(ctx); err != nil {
		return err
	}
	defer b.db.Close(ctx) //nolint:errcheck // everything was done or failed before
	defer func() { err = errors.Join(err, m.rebuild(context.WithoutCancel(ctx))) }()
	if _, err := b.record(ctx, m.config.bags); err != nil { // until the caches are warm
		return err
	}
	recorded, err := m.pairs(ctx, m.keeping(ctx, func() (speed, error) { return b.record(ctx, m.config.bags) }))
	if err != nil {
		return err
	}
	archived, err := m.pairs(ctx, m.keeping(ctx, func() (speed, error) { return b.archive(ctx, m.config.archived) }))
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Recordings and the archive, without and with the indexes of lists: bags of %d files that %d workers record in a second, and items archived in a second", filesOfABag, recorders)
	return printPairs(m.out, title, line{"bags", recorded}, line{"items", archived})
}

func (m *measurement) connect(ctx context.Context) (*pgx.Conn, error) {
	db, err := pgx.Connect(ctx, m.Stack.AdminURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return db, nil
}

// keeping measures something while the indexes are kept, or are not. To drop and build them in
// each round would take hours. PostgreSQL does not write to an index that is not ready, so they
// are marked so, and built again at the end.
func (m *measurement) keeping(ctx context.Context, do func() (speed, error)) func(with bool) (speed, error) {
	return func(with bool) (speed, error) {
		if err := m.ready(ctx, with); err != nil {
			return speed{}, err
		}
		v, err := do()
		return v, errors.Join(err, m.ready(context.WithoutCancel(ctx), true))
	}
}

func (m *measurement) ready(ctx context.Context, is bool) error {
	_, err := m.DB.Exec(ctx, `UPDATE pg_index SET indisready = $1 WHERE indexrelid IN `+partsOfIndexes, is)
	if err != nil {
		return fmt.Errorf("mark the indexes: %w", err)
	}
	return nil
}

// rebuild makes the indexes whole again, if the database is kept.
func (m *measurement) rebuild(ctx context.Context) error {
	if m.config.dir == "" {
		return nil
	}
	fmt.Fprintln(m.progress, "building the indexes of lists again")
	names, err := texts(ctx, m.DB, `SELECT x::text FROM unnest(`+indexesOfLists+`) x`)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := m.DB.Exec(ctx, `REINDEX INDEX `+name); err != nil {
			return fmt.Errorf("build %s again: %w", name, err)
		}
	}
	return nil
}

const (
	filesOfABag = 20
	recorders   = 4
	longAgo     = 300 * 24 * time.Hour // which no item of the queue has ended, but for those made here
)

// bags are recorded by workers that hold them, and archived when they have ended.
type bags struct {
	m    *measurement
	db   *pgx.Conn
	made int64
}

// itemsSQL makes items that are held at Record, or have ended, and returns the ID of the first.
const itemsSQL = `
INSERT INTO work_items (institution_id, size, bag_date, created_at, updated_at, retry, attempt, claim_token, entered_token, stage, status, lease_expires_at, pid, node, worker,
	name, etag, bucket, action, object_identifier, storage_option)
SELECT 1 + n % 3, 1000, now(), now(), now() - interval '1 year', $3, 1, 5, 5, CASE WHEN $3 THEN 'Record' ELSE 'Cleanup' END, CASE WHEN $3 THEN 'Started' ELSE 'Success' END,
	CASE WHEN $3 THEN now() + interval '1 day' END, CASE WHEN $3 THEN 1 END, CASE WHEN $3 THEN 'node' END, CASE WHEN $3 THEN 'recorder' END,
	'new-' || $4::text || '-' || n || '.tar', md5('new' || $4::text || n), 'in' || 1 + n % 3, 'Ingest', 'inst' || 1 + n % 3 || '.edu/new-' || $4::text || '-' || n, 'Standard'
FROM generate_series($1::bigint, $2::bigint) n ORDER BY n RETURNING id`

func (b *bags) items(ctx context.Context, n int, held bool) (ids []int64, err error) {
	err = b.quietly(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, itemsSQL, b.made, b.made+int64(n)-1, held, fmt.Sprint(time.Now().UnixNano()))
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make items: %w", err)
	}
	b.made += int64(n)
	return ids, nil
}

// quietly changes items with their triggers off, which refuse what is done by hand.
func (b *bags) quietly(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		return do(tx)
	})
}

const endSQL = `
UPDATE work_items SET status = 'Success', stage = 'Cleanup', retry = false, lease_expires_at = NULL, pid = NULL, node = NULL, worker = NULL, updated_at = now()
WHERE id = ANY ($1)`

// record records bags.
func (b *bags) record(ctx context.Context, n int) (v speed, err error) {
	ids, err := b.items(ctx, n, true)
	if err != nil {
		return v, err
	}
	db, err := dial.Connect(ctx, b.m.Stack.DatabaseURL, "lists-record")
	if err != nil {
		return v, err
	}
	defer db.Close()
	r := registry.New(db)
	v, err = b.m.speed(ctx, func() (int, error) {
		var next atomic.Int64
		group, running := errgroup.WithContext(ctx)
		for range recorders {
			group.Go(func() error {
				for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
					if _, err := r.Record(running, recording(ids[i])); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return n, group.Wait()
	})
	if err != nil {
		return v, err
	}
	err = b.quietly(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, endSQL, ids)
		return err
	})
	if err != nil {
		return v, fmt.Errorf("end the items: %w", err)
	}
	return v, nil
}

// recording is a bag of small files.
func recording(item int64) registry.Recording {
	bag := fmt.Sprint("recorded-", item)
	identifier, now := "inst1.edu/"+bag, time.Now()
	return registry.Recording{
		Item: item, Token: 5,
		Object: record.Object{
			InstitutionID: 1, Identifier: identifier, Title: "Bag", Access: "consortia", BagName: bag, BagItProfileIdentifier: "https://example.org/profile.json",
			ETag: uuid.NewString(), StorageOption: "Standard",
		},
		Validation: registry.Validation{By: "https://example.org/profile.json, BagIt 1.0", Software: "Farol", At: now},
		Files: func(yield func(registry.FileRecord, error) bool) {
			for n := range filesOfABag {
				if !yield(file(fmt.Sprintf("%s/data/%d.txt", identifier, n), now), nil) {
					return
				}
			}
		},
	}
}

func file(identifier string, now time.Time) registry.FileRecord {
	id := uuid.NewString()
	sum := sha256.Sum256([]byte(id))
	hex := fmt.Sprintf("%x", sum)
	f := registry.FileRecord{
		Identifier: identifier, UUID: id, Size: 1000, ModTime: now,
		Format: registry.Format{
			MIME: "text/plain", PUID: "x-fmt/111", Name: "Plain Text File", Method: "signature", IdentifiedBy: "siegfried",
			SignatureVersion: "siegfried 1.11.1, DROID_SignatureFile_V120.xml", At: now,
		},
		MD5: fmt.Sprintf("%x", md5.Sum([]byte(id))), SHA1: hex[:40], SHA256: hex, SHA512: hex + hex, DigestedAt: now,
	}
	f.Manifests = []string{"md5:" + f.MD5, "sha256:" + f.SHA256}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		f.Copies = append(f.Copies, registry.Copy{
			Target: target, Bucket: "preservation", Key: id, URL: "https://" + target + ".example.org/" + id, ETag: f.MD5, StoredAt: now, VerifiedAt: now, VerifiedBy: "sha256",
		})
	}
	return f
}

// archive archives items that ended long ago.
func (b *bags) archive(ctx context.Context, n int) (v speed, err error) {
	if _, err := b.items(ctx, n, false); err != nil {
		return v, err
	}
	db, err := dial.Connect(ctx, b.m.Stack.DatabaseURL, "lists-archive")
	if err != nil {
		return v, err
	}
	defer db.Close()
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return v, err
	}
	defer engine.Close()
	return b.m.speed(ctx, func() (int, error) {
		moved, err := engine.Archive(ctx, longAgo)
		if err == nil && moved != n {
			err = fmt.Errorf("%d items were archived, and not %d", moved, n)
		}
		return moved, err
	})
}
