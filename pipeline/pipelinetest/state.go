package pipelinetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// Rows are the rows of a query, each as a line.
func (a *Archive) Rows(sql string) []string {
	a.T.Helper()
	rows, _ := a.DB.Query(context.Background(), sql)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.T.Fatalf("%s: %v", sql, err)
	}
	return list
}

// Age makes an item one that has rested for so long.
func (a *Archive) Age(id int64, days int) {
	a.T.Helper()
	testenv.Scene(a.T, a.DB, `UPDATE work_items SET updated_at = now() - make_interval(days => $2) WHERE id = $1`, id, days)
}

// Fails has an item fail for good at a stage to which it came, and ages it.
func (a *Archive) Fails(id int64, status, code string, days int) {
	a.T.Helper()
	a.Exec(fmt.Sprintf(`UPDATE work_items SET status = '%s' WHERE id = %d`, status, id))
	testenv.Scene(a.T, a.DB, `UPDATE work_items SET error_code = $2 WHERE id = $1`, id, code)
	a.Age(id, days)
}

// Upload begins a multipart upload and leaves it open.
func (a *Archive) Upload(b *storage.Bucket, key string) {
	a.T.Helper()
	stop := errors.New("the worker dies here")
	_, err := b.PutParts(context.Background(), key, storage.Upload{Size: 6 << 20}, storage.Parts{
		Size: 5 << 20, SaveID: func(context.Context, string) error { return nil },
		Open: func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, stop },
	})
	if !errors.Is(err, stop) {
		a.T.Fatalf("PutParts = %v", err)
	}
}

// Put writes an object of no item.
func (a *Archive) Put(b *storage.Bucket, key string) {
	a.T.Helper()
	a.Overwrite(b, key, []byte("x"))
}

// Uploads are the keys of the multipart uploads that are open in a bucket.
func (a *Archive) Uploads(b *storage.Bucket) (keys []string) {
	a.T.Helper()
	for u, err := range b.OpenUploads(context.Background()) {
		a.must(err)
		keys = append(keys, u.Key)
	}
	return keys
}

// RedisKeys are the keys of the archive in Redis.
func (a *Archive) RedisKeys() (names []string) {
	a.T.Helper()
	for page, err := range a.Deps.Progress.Keys(context.Background()) {
		a.must(err)
		for _, k := range page {
			names = append(names, k.Name)
		}
	}
	return names
}

// Keeps has the interim metadata kept from now on.
func (a *Archive) Keeps() {
	a.T.Helper()
	a.Deps.Kept = a.Created(a.S3.Prefix + "kept")
}

// KeptLines are the lines that are kept of an item; none if nothing is.
func (a *Archive) KeptLines(id int64) (lines []string) {
	a.T.Helper()
	content, err := a.TryContent(a.Deps.Kept, fmt.Sprintf("items/%d.jsonl.gz", id))
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	a.must(err)
	z, err := gzip.NewReader(bytes.NewReader(content))
	a.must(err)
	text, err := io.ReadAll(z)
	a.must(err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// requester and approver are the two people who decide to delete.
const requester, approver = "first@test.edu", "second@test.edu"

// Doomed has two people decide on a deletion; its items are in the queue.
func (a *Archive) Doomed(identifiers ...string) record.DeletionRequest {
	a.T.Helper()
	ctx := context.Background()
	for _, email := range []string{requester, approver} {
		_, err := a.Deps.Registry.AddUser(ctx, record.User{Email: email, Name: "Some Body", Role: registry.RoleInstitutionalAdmin, Institution: "test.edu"})
		if err != nil && !strings.Contains(err.Error(), "there is a person with that e-mail") {
			a.T.Fatal(err)
		}
	}
	a.Exec(`UPDATE intellectual_objects SET created_at = now() - interval '1 year'; UPDATE generic_files SET created_at = now() - interval '1 year'`)
	d, err := requests.In(a.Deps.Registry).RequestDeletion(ctx, requester, identifiers)
	a.must(err)
	d, err = requests.In(a.Deps.Registry).ApproveDeletion(ctx, d.ID, approver, "test of the pipeline")
	a.must(err)
	return d
}

// AllCopies are all objects in preservation buckets.
func (a *Archive) AllCopies() (keys []string) {
	a.T.Helper()
	for name, b := range a.Deps.Targets {
		for _, key := range a.Keys(b) {
			keys = append(keys, name+" "+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Ask asks for a restoration of something that can be read at any time.
func (a *Archive) Ask(identifier string) int64 {
	a.T.Helper()
	r, err := requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
		Identifier: identifier, File: strings.Count(identifier, "/") > 1,
	})
	a.must(err)
	return r.Item.ID
}

// RestoreBucket is the bucket to which is restored.
func (a *Archive) RestoreBucket() *storage.Bucket { return a.Bucket(a.In.RestoreBucket) }

// Restored asks for something, and returns its item once that is at rest.
func (a *Archive) Restored(identifier string) record.WorkItem {
	a.T.Helper()
	id := a.Ask(identifier)
	a.Work()
	return a.Item(id)
}

// SameAsOnRecord compares all files of a bag with the registry.
func (a *Archive) SameAsOnRecord(b *bag.Bag, object string) {
	a.T.Helper()
	got := map[string]string{}
	for _, f := range b.Files {
		if f.Preservable() && f.Path != "bag-info.txt" {
			got[object+"/"+f.Path] = f.Digests.Hex(bag.SHA256)
		}
	}
	rows := Value[[]string](a, `SELECT array_agg(f.identifier || ' ' || c.digest ORDER BY f.identifier) FROM generic_files f
		JOIN checksums c ON c.generic_file_id = f.id AND c.algorithm = 'sha256' WHERE f.state = 'A' AND f.identifier NOT LIKE '%/bag-info.txt'`)
	var have []string
	for id, sum := range got {
		have = append(have, id+" "+sum)
	}
	slices.Sort(have)
	if !slices.Equal(have, rows) {
		a.T.Errorf("restored\n%s\non record\n%s", strings.Join(have, "\n"), strings.Join(rows, "\n"))
	}
}
