// Package pipelinetest gives tests an archive of their own: a database, Redis and buckets,
// and workers that take items through the steps that the test names.
package pipelinetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// identifyChild makes this test binary a format identifier's child that crashes.
const identifyChild = "FAROL_TEST_IDENTIFY"

// must ends the test if something that it needs failed.
func (a *Archive) must(err error) {
	a.T.Helper()
	if err != nil {
		a.T.Fatal(err)
	}
}

// base is the archive, also of what has it within.
func (a *Archive) base() *Archive { return a }

// Main runs the tests of a package that uses an archive.
func Main(m *testing.M) {
	if os.Getenv(identifyChild) != "" {
		if err := format.Serve(&fatalInput{r: os.Stdin}, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// fatalInput is the end of the child that reads from it, once it has been greeted.
type fatalInput struct {
	r     io.Reader
	reads int
}

func (f *fatalInput) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.reads++; f.reads > 1 && n > 0 {
		os.Exit(3)
	}
	return n, err
}

// Archive is everything a pipeline needs, of the test's own.
type Archive struct {
	T         testing.TB
	DB        *pgxpool.Pool
	Deps      pipeline.Deps
	In        record.Institution
	Receiving *storage.Bucket
	S3        testenv.S3Server
	Log       *SyncBuffer
	Client    *storage.Client
	Steps     func(pipeline.Deps) []pipeline.Step // of the workers
}

// New makes an archive whose workers take these steps.
func New(t testing.TB, steps func(pipeline.Deps) []pipeline.Step) *Archive {
	t.Helper()
	return NewIn(t, testenv.Database(t), steps)
}

// NewIn is New in a database that the test has brought.
func NewIn(t testing.TB, db *pgxpool.Pool, steps func(pipeline.Deps) []pipeline.Step) *Archive {
	t.Helper()
	ctx := context.Background()
	a := &Archive{T: t, DB: db, S3: testenv.S3(t), Log: &SyncBuffer{}, Steps: steps}
	a.Client = storage.NewClient(storage.Options{})
	t.Cleanup(a.Client.Close)
	prefix := "x" + time.Now().Format("150405.000000")
	store := progress.New(testenv.Redis(t), prefix)
	a.Deps = pipeline.Deps{
		Registry: registry.New(a.DB), Progress: store, Formats: GoodIdentifier(t), Files: 4,
		Receiving: func(bucket string) (*storage.Bucket, error) { return a.Bucket(bucket), nil },
		Staging:   a.Created(a.S3.Prefix + "staging"),
		Targets:   map[string]*storage.Bucket{},
		Log:       a.Logger(),
	}
	for _, spec := range storage.Targets() {
		a.Deps.Targets[spec.Name] = a.Opened(a.target(spec))
		a.must(a.Deps.Targets[spec.Name].Create(ctx))
	}
	var err error
	a.In, err = a.Deps.Registry.AddInstitution(ctx, record.Institution{
		Name: "Test", Identifier: "test.edu", ReceivingBucket: a.S3.Prefix + "receiving", RestoreBucket: a.S3.Prefix + "restore",
	})
	a.must(err)
	a.Receiving = a.Created(a.In.ReceivingBucket)
	a.Created(a.In.RestoreBucket)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", a.Log)
		}
	})
	return a
}

// GoodIdentifier is one that all tests share, as all items of a worker do: a child
// reads thousands of signatures first, which takes it a second under the race detector.
func GoodIdentifier(t testing.TB) *format.Identifier {
	t.Helper()
	f, err := sharedIdentifier()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

//nolint:gochecknoglobals // a test is handed nothing but its testing.TB
var sharedIdentifier = sync.OnceValues(func() (*format.Identifier, error) {
	command, err := testenv.Identifier()
	if err != nil {
		return nil, err
	}
	f, err := startIdentifier(command, 4, nil)
	if err == nil {
		testenv.AtEnd(f.Close)
	}
	return f, err
})

// BadIdentifier is one whose children end with the first file that they see.
func BadIdentifier(t testing.TB) *format.Identifier {
	t.Helper()
	f, err := startIdentifier([]string{"env", identifyChild + "=1", os.Args[0]}, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// IdentifierBy identifies by a signature file.
func IdentifierBy(t testing.TB, signatures []byte) *format.Identifier {
	t.Helper()
	command, err := testenv.Identifier()
	if err != nil {
		t.Fatal(err)
	}
	f, err := startIdentifier(command, 2, signatures)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func startIdentifier(command []string, children int, signatures []byte) (*format.Identifier, error) {
	return format.Start(context.Background(), format.Options{
		Command: command, Workers: children, Memory: 8 << 30, Signatures: signatures, // of the race detector's, too
	})
}

// Bucket opens a bucket on the test's server.
func (a *Archive) Bucket(name string) *storage.Bucket {
	a.T.Helper()
	return a.Opened(named(name))
}

// Opened is a target on the test's server.
func (a *Archive) Opened(t storage.Target) *storage.Bucket {
	a.T.Helper()
	return a.open(a.onServer(t))
}

func (a *Archive) open(t storage.Target) *storage.Bucket {
	a.T.Helper()
	b, err := a.Client.Bucket(t)
	a.must(err)
	return b
}

// named is a target that has no name but that of its bucket.
func named(bucket string) storage.Target { return storage.Target{Name: bucket, Bucket: bucket} }

// onServer is a target with the address of the test's server.
func (a *Archive) onServer(t storage.Target) storage.Target {
	t.Endpoint, t.Region, t.CAFile, t.PathStyle = a.S3.Endpoint, a.S3.Region, a.S3.CAFile, true
	t.AccessKeyID, t.SecretAccessKey = a.S3.AccessKeyID, storage.Secret(a.S3.SecretAccessKey)
	return t
}

// target is a preservation target with a bucket of the test's own.
func (a *Archive) target(spec storage.TargetSpec) storage.Target {
	name := a.S3.Prefix + spec.Bucket
	return storage.Target{
		Name: name, Bucket: name, Provider: spec.Provider, StorageClass: spec.StorageClass, RestorePriority: spec.RestorePriority,
	}
}

// Created makes a bucket.
func (a *Archive) Created(name string) *storage.Bucket {
	a.T.Helper()
	b := a.Bucket(name)
	a.must(b.Create(context.Background()))
	return b
}

// Taken makes items of uploads in the receiving bucket, as its reader does.
func (a *Archive) Taken(keys ...string) (ids []int64) {
	a.T.Helper()
	ctx := context.Background()
	listed, err := a.Deps.Registry.Now(ctx)
	a.must(err)
	var uploads []registry.Upload
	for _, key := range keys {
		o, err := a.Receiving.Head(ctx, key)
		a.must(err)
		uploads = append(uploads, registry.Upload{Key: key, ETag: o.ETag, Size: o.Size, LastModified: o.LastModified})
	}
	ids, err = a.Deps.Registry.CreateIngests(ctx, a.In, listed, uploads)
	a.must(err)
	return ids
}

// Deposit uploads a bag and makes an item of it; it returns the item's id.
func (a *Archive) Deposit(key string, tar []byte) int64 {
	a.T.Helper()
	a.PutRaw(key, tar)
	ids := a.Taken(key)
	if len(ids) != 1 {
		a.T.Fatalf("items %v were made of %s; want one", ids, key)
	}
	return ids[0]
}

// Bag is a bag as a tar.
func (a *Archive) Bag(spec bagtest.Spec) []byte {
	a.T.Helper()
	tar, err := spec.Bytes()
	a.must(err)
	return tar
}

// AtRest waits until no item will be worked on any more.
func (a *Archive) AtRest() {
	a.T.Helper()
	testenv.Finally(a.T, "all items to be at rest", func() bool {
		return Value[int](a, `SELECT count(*) FROM work_items WHERE retry`) == 0
	}, func() int { return Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NOT NULL`) })
}

// Value is the result of a query.
func Value[T any](of interface{ base() *Archive }, sql string, args ...any) T {
	a := of.base()
	a.T.Helper()
	var v T
	if err := a.DB.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		a.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Exec runs a statement.
func (a *Archive) Exec(sql string) {
	a.T.Helper()
	if _, err := a.DB.Exec(context.Background(), sql); err != nil {
		a.T.Fatalf("%s: %v", sql, err)
	}
}

// Item reads an item.
func (a *Archive) Item(id int64) record.WorkItem {
	a.T.Helper()
	item, err := a.Deps.Registry.WorkItem(context.Background(), id)
	a.must(err)
	return item
}

// Keys lists a bucket.
func (a *Archive) Keys(b *storage.Bucket) (keys []string) {
	a.T.Helper()
	for o, err := range b.List(context.Background(), "", "") {
		a.must(err)
		keys = append(keys, o.Key)
	}
	return keys
}

// Content reads an object.
func (a *Archive) Content(b *storage.Bucket, key string) []byte {
	a.T.Helper()
	content, err := a.TryContent(b, key)
	a.must(err)
	return content
}

// TryContent reads an object, if it can.
func (a *Archive) TryContent(b *storage.Bucket, key string) ([]byte, error) {
	r, err := b.Get(context.Background(), key, storage.Range{Length: -1})
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read below
	return io.ReadAll(r)
}

// Logger writes to the archive's log.
func (a *Archive) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(a.Log, nil)) }

// SyncBuffer is a buffer that goroutines may share.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the buffer.
func (s *SyncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String is what was written so far.
func (s *SyncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// DepositRaw uploads something and makes no item of it.
func (a *Archive) DepositRaw(key string) { a.PutRaw(key, []byte("x")) }

// PutRaw uploads something that no item is made of.
func (a *Archive) PutRaw(key string, content []byte) {
	a.T.Helper()
	a.Overwrite(a.Receiving, key, content)
}

// Overwrite writes an object, in place of the one that is there.
func (a *Archive) Overwrite(b *storage.Bucket, key string, content []byte) {
	a.T.Helper()
	_, err := b.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))})
	a.must(err)
}
