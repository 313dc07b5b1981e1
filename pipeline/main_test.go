package pipeline

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
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// identifyChild makes this test binary a format identifier's child that crashes.
const identifyChild = "FAROL_TEST_IDENTIFY"

func TestMain(m *testing.M) {
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

// archive is everything a pipeline needs, of the test's own.
type archive struct {
	t         testing.TB
	db        *pgxpool.Pool
	deps      Deps
	in        registry.Institution
	receiving *storage.Bucket
	s3        testenv.S3Server
	log       *syncBuffer
	client    *storage.Client
}

func newArchive(t testing.TB) *archive {
	t.Helper()
	ctx := context.Background()
	a := &archive{t: t, db: testenv.Database(t), s3: testenv.S3(t), log: &syncBuffer{}}
	a.client = storage.NewClient(storage.Options{})
	t.Cleanup(a.client.Close)
	prefix := "x" + time.Now().Format("150405.000000")
	store := progress.New(testenv.Redis(t), prefix)
	a.deps = Deps{
		Registry: registry.New(a.db), Progress: store, Formats: goodIdentifier(t), Files: 4,
		Receiving: func(bucket string) (*storage.Bucket, error) { return a.bucket(bucket), nil },
		Staging:   a.created(a.s3.Prefix + "staging"),
		Targets:   map[string]*storage.Bucket{},
		Log:       a.logger(),
	}
	for _, spec := range storage.Targets() {
		a.deps.Targets[spec.Name] = a.target(spec)
		if err := a.deps.Targets[spec.Name].Create(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	a.in, err = a.deps.Registry.AddInstitution(ctx, registry.Institution{
		Name: "Test", Identifier: "test.edu", ReceivingBucket: a.s3.Prefix + "receiving", RestoreBucket: a.s3.Prefix + "restore",
	})
	if err != nil {
		t.Fatal(err)
	}
	a.receiving = a.created(a.in.ReceivingBucket)
	a.created(a.in.RestoreBucket)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", a.log)
		}
	})
	return a
}

// goodIdentifier is one that all tests share, as all items of a worker do: a child
// reads thousands of signatures first.
func goodIdentifier(t testing.TB) *format.Identifier {
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
	f, err := startIdentifier(command, 4)
	if err == nil {
		testenv.AtEnd(f.Close)
	}
	return f, err
})

// badIdentifier is one whose children end with the first file that they see.
func badIdentifier(t testing.TB) *format.Identifier {
	t.Helper()
	f, err := startIdentifier([]string{"env", identifyChild + "=1", os.Args[0]}, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func startIdentifier(command []string, children int) (*format.Identifier, error) {
	return format.Start(context.Background(), format.Options{
		Command: command, Workers: children, Memory: 8 << 30, // of the race detector's, too
	})
}

func (a *archive) bucket(name string) *storage.Bucket {
	a.t.Helper()
	return a.opened(storage.Target{Name: name, Bucket: name})
}

// opened is a target on the test's server.
func (a *archive) opened(t storage.Target) *storage.Bucket {
	a.t.Helper()
	t.Endpoint, t.Region, t.CAFile, t.PathStyle = a.s3.Endpoint, a.s3.Region, a.s3.CAFile, true
	t.AccessKeyID, t.SecretAccessKey = a.s3.AccessKeyID, storage.Secret(a.s3.SecretAccessKey)
	b, err := a.client.Bucket(t)
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

// target is a preservation target with a bucket of the test's own.
func (a *archive) target(spec storage.TargetSpec) *storage.Bucket {
	a.t.Helper()
	name := a.s3.Prefix + spec.Bucket
	return a.opened(storage.Target{
		Name: name, Bucket: name, Provider: spec.Provider, StorageClass: spec.StorageClass, RestorePriority: spec.RestorePriority,
	})
}

func (a *archive) created(name string) *storage.Bucket {
	a.t.Helper()
	b := a.bucket(name)
	if err := b.Create(context.Background()); err != nil {
		a.t.Fatal(err)
	}
	return b
}

// deposit uploads a bag and reads the bucket; it returns the new item's id.
func (a *archive) deposit(key string, tar []byte) int64 {
	a.t.Helper()
	ctx := context.Background()
	if _, err := a.receiving.Put(ctx, key, bytes.NewReader(tar), storage.Upload{Size: int64(len(tar))}); err != nil {
		a.t.Fatal(err)
	}
	reader := &BucketReader{Registry: a.deps.Registry, Receiving: a.deps.Receiving, Log: a.deps.Log}
	if n, err := reader.ReadAll(ctx); err != nil || n != 1 {
		a.t.Fatalf("ReadAll = %d, %v; want one new item", n, err)
	}
	items, err := a.deps.Registry.WorkItems(ctx, registry.ItemFilter{Limit: 1})
	if err != nil {
		a.t.Fatal(err)
	}
	return items[0].ID
}

func (a *archive) bag(spec bagtest.Spec) []byte {
	a.t.Helper()
	tar, err := spec.Bytes()
	if err != nil {
		a.t.Fatal(err)
	}
	return tar
}

// work runs a worker until every item is at rest.
func (a *archive) work() {
	a.t.Helper()
	stop := a.start()
	a.atRest()
	stop()
}

// start starts a worker with two pools; the function that it returns ends it.
func (a *archive) start() (stop func()) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := claim.DefaultOptions()
	o.Heartbeat, o.Lease, o.Poll, o.Log = 200*time.Millisecond, 20*time.Second, 500*time.Millisecond, a.deps.Log
	engine, err := claim.New(ctx, a.db, o)
	if err != nil {
		a.t.Fatal(err)
	}
	steps := Steps(a.deps)
	var stages []string
	for _, s := range steps {
		stages = append(stages, s.Name())
	}
	r, err := NewRunner(engine, a.deps, steps, RunnerOptions{
		Pools: []Pool{{Name: "small", Stages: stages, MaxSize: 1 << 20, Slots: 4}, {Name: "large", Stages: stages, MinSize: 1 << 20, Slots: 1}},
		Log:   a.deps.Log,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	return func() {
		cancel()
		worker.Wait()
	}
}

// atRest waits until no item will be worked on any more.
func (a *archive) atRest() {
	a.t.Helper()
	testenv.Finally(a.t, "all items to be at rest", func() bool {
		return value[int](a, `SELECT count(*) FROM work_items WHERE retry`) == 0
	}, func() int { return value[int](a, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NOT NULL`) })
}

func value[T any](a *archive, sql string, args ...any) T {
	a.t.Helper()
	var v T
	if err := a.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (a *archive) exec(sql string) {
	a.t.Helper()
	if _, err := a.db.Exec(context.Background(), sql); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

func (a *archive) item(id int64) registry.WorkItem {
	a.t.Helper()
	item, err := a.deps.Registry.WorkItem(context.Background(), id)
	if err != nil {
		a.t.Fatal(err)
	}
	return item
}

// keys lists a bucket.
func (a *archive) keys(b *storage.Bucket) (keys []string) {
	a.t.Helper()
	for o, err := range b.List(context.Background(), "", "") {
		if err != nil {
			a.t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func (a *archive) content(b *storage.Bucket, key string) []byte {
	a.t.Helper()
	content, err := a.tryContent(b, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return content
}

func (a *archive) tryContent(b *storage.Bucket, key string) ([]byte, error) {
	r, err := b.Get(context.Background(), key, storage.Range{Length: -1})
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read below
	return io.ReadAll(r)
}

func (a *archive) logger() *slog.Logger { return slog.New(slog.NewTextHandler(a.log, nil)) }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (a *archive) depositRaw(key string) { a.putRaw(key, []byte("x")) }

// putRaw uploads something that no item is made of.
func (a *archive) putRaw(key string, content []byte) {
	a.t.Helper()
	if _, err := a.receiving.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))}); err != nil {
		a.t.Fatal(err)
	}
}
