package pipelinetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/testenv"
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
		if err != nil {
			a.T.Fatal(err)
		}
		keys = append(keys, u.Key)
	}
	return keys
}

// RedisKeys are the keys of the archive in Redis.
func (a *Archive) RedisKeys() (names []string) {
	a.T.Helper()
	for page, err := range a.Deps.Progress.Keys(context.Background()) {
		if err != nil {
			a.T.Fatal(err)
		}
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
	if err != nil {
		a.T.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		a.T.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(z); err != nil {
		a.T.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}
