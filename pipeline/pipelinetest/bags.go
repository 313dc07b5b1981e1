package pipelinetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// Sample has files of all sizes that are treated differently, several in one request and
// copied by the server, and is too large to be kept in memory.
func (a *Archive) Sample() []byte {
	files := []bagtest.File{{Path: "data/empty.txt"}}
	for _, name := range strings.Split("abcdefghij", "") {
		files = append(files, bagtest.File{Path: "data/" + name + ".bin", Size: 15_000})
	}
	for _, name := range strings.Split("klmnopqrst", "") {
		files = append(files, bagtest.File{Path: "data/" + name + ".bin", Size: 120_000})
	}
	files = append(files, bagtest.File{Path: "data/streamed.bin", Size: 3 << 20})
	return a.Bag(bagtest.Spec{Name: "sample", Files: files})
}

// SampleFiles is how many files of the sample are stored.
const SampleFiles = 24 // with its two tag files; bagit.txt and the manifests are not stored

// Intact fails the test unless the sample is stored once and recorded once.
func (a *Archive) Intact(id int64) {
	a.T.Helper()
	if item := a.Item(id); item.Status != "Success" {
		a.T.Fatalf("item = %+v", item)
	}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		if n := len(a.Keys(a.Deps.Targets[target])); n != SampleFiles {
			a.T.Errorf("%s has %d objects, want %d", target, n, SampleFiles)
		}
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM generic_files`:   SampleFiles,
		`SELECT count(*) FROM checksums`:       4 * SampleFiles,
		`SELECT count(*) FROM storage_records`: 2 * SampleFiles,
		`SELECT count(*) FROM premis_events`:   11*(SampleFiles-2) + 9*2 + 5,
		fmt.Sprintf(`SELECT count(*) FROM premis_events WHERE outcome_detail = '%d files copied'`, SampleFiles): 1,
		`SELECT count(*) FROM topic_messages WHERE topic = 'ingest09_cleanup'`:                                  1,
		`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`:                                        0,
		`SELECT count(*) FROM work_item_attempts WHERE stage = 'Cleanup' AND outcome = 'done'`:                  1,
	} {
		if n := Value[int](a, sql); n != want {
			a.T.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	if left := a.Keys(a.Deps.Staging); len(left) != 0 {
		a.T.Errorf("left in staging: %v", left)
	}
	if left := a.Keys(a.Receiving); len(left) != 0 {
		a.T.Errorf("left in receiving: %v", left)
	}
}

// Everything is what there is of bags: objects in all buckets, and rows.
func (a *Archive) Everything() map[string]string {
	a.T.Helper()
	all := map[string]string{}
	for _, b := range append(slices.Collect(maps.Values(a.Deps.Targets)), a.Deps.Staging, a.Receiving) {
		for o, err := range b.List(context.Background(), "", "") {
			a.must(err)
			all[b.Name()+"/"+o.Key] = o.ETag + " " + o.LastModified.String()
		}
	}
	for _, table := range []string{"generic_files", "premis_events", "storage_records", "retired_copies"} {
		all[table] = fmt.Sprint(Value[int](a, `SELECT count(*) FROM `+table))
	}
	return all
}

// Stored ingests a bag with these files, by path.
func (a *Archive) Stored(files map[string]string) {
	a.T.Helper()
	spec := bagtest.Spec{Name: "bag"}
	for path, content := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: "data/" + path, Content: content})
	}
	a.Deposit("bag.tar", a.Bag(spec))
	a.Work()
	a.Allow(1000)
}

// Allow lets so many copies be checked.
func (a *Archive) Allow(n int) {
	a.T.Helper()
	_, err := fixity.In(a.Deps.Registry).Feed(context.Background(), n, time.Hour)
	a.must(err)
}

// MakeDue makes the copies of files due whose paths are like this.
func (a *Archive) MakeDue(like string) {
	a.T.Helper()
	a.Exec(`UPDATE storage_records SET last_fixity_at = now() - interval '100 days' WHERE id IN (
		SELECT s.id FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier LIKE '` + like + `' FOR NO KEY UPDATE OF s SKIP LOCKED)`)
}

// CopyKey is the key of the copies of a file by its path.
func (a *Archive) CopyKey(path string) string {
	a.T.Helper()
	return Value[string](a, `SELECT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/data/' || $1 LIMIT 1`, path)
}

// AtlasOf is a bag of two files, whose tar differs from day to day.
func (a *Archive) AtlasOf(day int, content string) []byte {
	a.T.Helper()
	return a.Bag(bagtest.Spec{
		Name: "atlas", Files: []bagtest.File{{Path: "data/map", Content: content}, {Path: "data/key", Content: "key"}},
		ModTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
		Tags:    []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2026-01-01"}},
	})
}

// Reingested deposits the bag once more, and returns its item when all is at rest.
func (a *Archive) Reingested(day int, content string) int64 {
	a.T.Helper()
	id := a.Deposit("atlas.tar", a.AtlasOf(day, content))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		a.T.Fatalf("item = %+v", item)
	}
	return id
}

// KeyOf is the key of a file's copies.
func (a *Archive) KeyOf(identifier string) string {
	a.T.Helper()
	return Value[string](a, `SELECT DISTINCT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier = $1`, identifier)
}

// Flip changes one byte of a copy behind the system's back.
func (a *Archive) Flip(target, identifier string, at int64) {
	a.T.Helper()
	b, key := a.Deps.Targets[target], a.KeyOf(identifier)
	content := a.Content(b, key)
	content[at] ^= 1
	a.Overwrite(b, key, content)
}

// BothReadable has both copies of Standard in a class that can be read at once.
func (a *Archive) BothReadable() {
	spec := storage.Targets()[slices.IndexFunc(storage.Targets(), func(s storage.TargetSpec) bool { return s.Name == "Standard-OR" })]
	spec.StorageClass = ""
	a.Deps.Targets["Standard-OR"] = a.Opened(a.target(spec))
}

// Locked gives a target a bucket with Object Lock, of a class that can be read at once.
func (a *Archive) Locked(target string) {
	a.T.Helper()
	spec := storage.Targets()[slices.IndexFunc(storage.Targets(), func(s storage.TargetSpec) bool { return s.Name == target })]
	spec.StorageClass, spec.Bucket = "", spec.Bucket+"-locked"
	t := a.target(spec)
	a.S3.CreateLocked(a.T, t.Bucket)
	a.Deps.Targets[target] = a.Opened(t)
}

// Ingested brings a bag on record.
func (a *Archive) Ingested(spec bagtest.Spec) {
	a.T.Helper()
	id := a.Deposit(spec.Name+".tar", a.Bag(spec))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		a.T.Fatalf("the bag was not ingested: %s at %s: %s", item.Status, item.Stage, item.Note)
	}
}

// ABag has files of all kinds that matter to a restoration.
func ABag(name string) bagtest.Spec {
	return bagtest.Spec{
		Name: name, Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2020-02-02"}, {File: "bag-info.txt", Name: "Bag-Size", Value: "1 KB"}, {File: "bag-info.txt", Name: "Bagging-Software", Value: "by hand"}},
		Files: []bagtest.File{
			{Path: "custom-tags/notes.txt", Content: "a tag file of its own\n"},
			{Path: "data.txt", Content: "before the payload, if barely\n"},
			{Path: "metadata/last.txt", Content: "and one behind it\n"},
			{Path: "data/a.txt", Content: "hello"},
			{Path: "data/empty", Content: "", Size: 0},
			{Path: "data/100%25 é\u202f.xml", Content: "<?xml version=\"1.0\"?>\n<a/>\n"},
			{Path: "data/" + strings.Repeat("long/", 40) + "name", Content: "deep"},
			{Path: "data/larger.bin", Size: 3<<20 + 7},
		},
	}
}

// Large is a bag with files that come in several parts.
func Large(name string) bagtest.Spec {
	return bagtest.Spec{Name: name, Files: []bagtest.File{
		{Path: "data/a.txt", Content: "hello"},
		{Path: "data/b.bin", Size: 20<<20 + 3},
		{Path: "data/c.bin", Size: 40<<20 + 5},
		{Path: "data/d.txt", Content: "bye"},
	}}
}

// Spoil flips a bit of a stored copy behind everybody's back, and returns what it is then.
func (a *Archive) Spoil(b *storage.Bucket, path string) []byte {
	a.T.Helper()
	key := a.CopyKey(path)
	content := a.Content(b, key)
	content[len(content)/2] ^= 1
	a.Overwrite(b, key, content)
	return content
}

// InStaging moves all lists of the registry to the staging bucket, where those of large bags are.
func (a *Archive) InStaging() {
	a.T.Helper()
	rows, _ := a.DB.Query(context.Background(), `SELECT work_item_id || '/' || name, content FROM work_item_lists WHERE content IS NOT NULL`)
	var key string
	var content []byte
	_, err := pgx.ForEachRow(rows, []any{&key, &content}, func() error {
		_, err := a.Deps.Staging.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))})
		return err
	})
	a.must(err)
	a.Exec(`UPDATE work_item_lists SET content = NULL, staged = true`)
}

// Leave writes a list as the end of its claim does.
func (a *Archive) Leave(item int64) func(claim.List) {
	return func(l claim.List) {
		_, err := a.DB.Exec(context.Background(), `INSERT INTO work_item_lists (work_item_id, name, content) VALUES ($1, $2, $3)
			ON CONFLICT (work_item_id, name) DO UPDATE SET content = excluded.content`, item, l.Name, l.Content)
		a.must(err)
	}
}

// LoseLists deletes what the stages have left, wherever it is.
func (a *Archive) LoseLists() {
	a.T.Helper()
	a.must(a.Deps.Staging.Delete(context.Background(), a.Keys(a.Deps.Staging)...))
	a.Exec(`DELETE FROM work_item_lists`)
}
