package preserved_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	registryfixity "github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// The people of a world.
const (
	requester = "requester@test.edu"
	approver  = "approver@test.edu"
	third     = "third@test.edu"
	staff     = "staff@archive.org"
	outsider  = "outsider@other.edu"
)

func everybody() []string { return []string{approver, third, requester, staff, outsider} }

// targets are the two that the storage option Standard promises.
func targets() []string { return []string{"Standard-VA", "Standard-OR"} }

// world is an archive with two workers and some people. Many histories share it: each has
// objects of its own.
type world struct {
	*pipelinetest.Archive

	s3      *s3.Client // of the test's own
	workers [2]*worker
	checker *fixity.Checker
	bad     *fixity.Repairer
	buckets map[string]string // by target

	mu   sync.Mutex
	held map[string]held // what buckets hold, by bucket/key, as far as it was read since it was touched
}

// worker is a process that has ways of its own to the database and to S3: it calls a bucket by
// another name than the other worker does.
type worker struct {
	gate   *gate
	deps   pipeline.Deps
	db     *pgxpool.Pool
	engine *claim.Engine
	runner *pipeline.Runner
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, testenv.DatabaseURL(t))
}

// newWorldIn is a world in the database of a URL.
func newWorldIn(t testing.TB, at string) *world {
	t.Helper()
	db := must.Get(pgxpool.New(context.Background(), at+"&pool_max_conns=16"))(t)
	t.Cleanup(db.Close)
	w := &world{Archive: pipelinetest.NewIn(t, db, steps.All), held: map[string]held{}, buckets: map[string]string{}}
	w.BothReadable()
	w.s3 = w.S3.Client(t)
	for _, target := range targets() {
		w.buckets[target] = w.Deps.Targets[target].Name()
	}
	w.Exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '1 millisecond', backoff_most = '2 milliseconds', lease = '1 hour';
		UPDATE fixity_policies SET mode = 'read' WHERE target LIKE 'Standard-%'`)
	ctx := context.Background()
	must.Get(w.Deps.Registry.AddInstitution(ctx, record.Institution{
		Name: "Other", Identifier: "other.edu", ReceivingBucket: w.S3.Prefix + "in.other", RestoreBucket: w.S3.Prefix + "out.other",
	}))(t)
	for _, email := range everybody() {
		u := record.User{Email: email, Name: "Some Body", Role: registry.RoleInstitutionalAdmin, Institution: strings.SplitN(email, "@", 2)[1]}
		if email == staff {
			u.Role, u.Institution = registry.RoleAdmin, ""
		}
		must.Get(w.Deps.Registry.AddUser(ctx, u))(t)
	}
	for i := range w.workers {
		w.workers[i] = w.newWorker()
	}
	w.checker = &fixity.Checker{
		Registry: w.Deps.Registry, Targets: w.Deps.Targets, Log: w.Deps.Log, Worker: "checker", Slots: 1, Batch: 20, Attempts: 3, Days: 90,
		Lease: time.Minute, Poll: 5 * time.Millisecond, Again: time.Millisecond,
	}
	w.bad = &fixity.Repairer{
		Registry: w.Deps.Registry, Targets: w.Deps.Targets, Log: w.Deps.Log, Worker: "repairer", Quarantine: w.Created(w.S3.Prefix + "quarantine"), Again: time.Millisecond,
		Limits: registryfixity.RepairLimits{Failures: 1_000_000, Share: 100, Least: 1_000_000},
	}
	return w
}

func (w *world) newWorker() *worker {
	w.T.Helper()
	one := &worker{gate: &gate{touched: w.touch}}
	config := w.DB.Config()
	config.MaxConns = 6
	config.ConnConfig.Tracer = one.gate
	db := must.Get(pgxpool.NewWithConfig(context.Background(), config))(w.T)
	w.T.Cleanup(db.Close)
	one.db = db
	way := one.gate.serve(w)
	one.deps = w.With(func(t *storage.Target) {
		way(t)
		t.StorageClass = "" // all copies can be read at once
	})
	one.deps.Registry, one.deps.Files = registry.New(db), 1
	one.start(w)
	return one
}

// start begins a process anew: it knows nothing of what was before.
func (one *worker) start(w *world) {
	w.T.Helper()
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = time.Hour, time.Minute, w.Deps.Log
	var err error
	if one.engine, err = claim.New(context.Background(), one.db, o); err == nil {
		one.runner, err = pipeline.NewRunner(one.engine, one.deps, w.Steps(one.deps), pipeline.RunnerOptions{Log: w.Deps.Log})
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

// process takes an item through its stage. If the plan has the worker die, its lease lapses, and
// the other worker ends the attempt; then the dead one comes back and finds its item lost.
func (w *world) process(n int, item claim.Item, p plan) {
	one, other := w.workers[n], w.workers[1-n]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	died := make(chan struct{})
	one.gate.begin(p, func() { cancel(); close(died) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		one.runner.Process(ctx, item)
	}()
	select {
	case <-ended:
	case <-died:
		testenv.Scene(w.T, w.DB, `UPDATE work_items SET lease_expires_at = now() - interval '1 second' WHERE id = $1 AND status = 'Started'`, item.ID)
		must.Get(other.engine.Reap(context.Background()))(w.T)
		one.gate.comesBack()
		<-ended
	}
	one.gate.begin(plan{}, nil)
}

// held is what a bucket holds under a key.
type held struct {
	there bool
	body  []byte
}

// touch forgets what was read of an object.
func (w *world) touch(bucket, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key == "" { // several at once
		for at := range w.held {
			if strings.HasPrefix(at, bucket+"/") {
				delete(w.held, at)
			}
		}
		return
	}
	delete(w.held, bucket+"/"+key)
}

// read reads an object, unless nobody has touched it since.
func (w *world) read(bucket, key string) held {
	w.mu.Lock()
	h, known := w.held[bucket+"/"+key]
	w.mu.Unlock()
	if known {
		return h
	}
	out, err := w.s3.GetObject(context.Background(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err == nil {
		h.there = true
		h.body, err = io.ReadAll(out.Body)
		err = errors.Join(err, out.Body.Close())
	} else if strings.Contains(err.Error(), "NoSuchKey") || strings.Contains(err.Error(), "StatusCode: 404") {
		err = nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[bucket+"/"+key] = h
	return h
}

// write changes an object behind everybody's back; nil removes it.
func (w *world) write(bucket, key string, body []byte) {
	w.touch(bucket, key)
	var err error
	if body == nil {
		_, err = w.s3.DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	} else {
		_, err = w.s3.PutObject(context.Background(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)})
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

// flipOnDisk changes a byte in the middle of an object, and nothing that its bucket says of it.
func (w *world) flipOnDisk(bucket, key string) {
	w.touch(bucket, key)
	f := must.Get(os.OpenFile(filepath.Join(filepath.Dir(w.S3.CAFile), "buckets", bucket, filepath.FromSlash(key)), os.O_RDWR, 0))(w.T)
	content, err := io.ReadAll(f)
	if at := bytes.Index(content, []byte("of h")); err == nil && at >= 0 { // within a payload file
		_, err = f.WriteAt([]byte("0"), int64(at))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		w.T.Fatal(err)
	}
}

// versions are the payloads that a bag may come with.
func versions() []map[string]string {
	return []map[string]string{
		{"data/x": "x first", "data/y": "y first"},
		{"data/x": "x second", "data/y": "y first"},
		{"data/x": "x first", "data/z": "z third"},
		{"data/x": "x fourth", "data/y": "y fourth", "data/z": "z fourth"},
	}
}

// bagOf is a version of an object as a tar, and its files that are preserved.
func bagOf(t testing.TB, name string, version int) (content []byte, files map[string]string) {
	t.Helper()
	spec := bagtest.Spec{Name: name, ModTime: time.Date(2026, 1, version+1, 0, 0, 0, 0, time.UTC), Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2026-01-01"}}}
	for _, path := range []string{"data/x", "data/y", "data/z"} {
		if text, ok := versions()[version][path]; ok {
			spec.Files = append(spec.Files, bagtest.File{Path: path, Content: text + " of " + name})
		}
	}
	content, err := spec.Bytes()
	if err == nil {
		files, err = filesOf(content, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return content, files
}

// filesOf reads the files of a bag that are preserved: all but the declaration and manifests.
func filesOf(content []byte, name string) (files map[string]string, err error) {
	files = map[string]string{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		path, ok := strings.CutPrefix(h.Name, name+"/")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil || !ok {
			return nil, fmt.Errorf("entry %s: %w", h.Name, err)
		}
		if path != "bagit.txt" && !slices.ContainsFunc([]string{"manifest-", "tagmanifest-"}, func(p string) bool { return strings.HasPrefix(path, p) }) {
			files[path] = string(text)
		}
	}
}
