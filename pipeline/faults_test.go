package pipeline

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// sample has files of all sizes that are treated differently: several to an
// object in staging, and streamed.
func (a *archive) sample() []byte {
	files := []bagtest.File{{Path: "data/empty.txt"}}
	for _, name := range strings.Split("abcdefghij", "") {
		files = append(files, bagtest.File{Path: "data/" + name + ".bin", Size: 15_000})
	}
	for _, name := range strings.Split("klmnopqrst", "") {
		files = append(files, bagtest.File{Path: "data/" + name + ".bin", Size: 120_000})
	}
	files = append(files, bagtest.File{Path: "data/streamed.bin", Size: 3 << 20})
	return a.bag(bagtest.Spec{Name: "sample", Files: files})
}

const sampleFiles = 24 // with its two tag files; bagit.txt and the manifests are not stored

// intact fails the test unless the sample is stored once and recorded once.
func (a *archive) intact(id int64) {
	a.t.Helper()
	if item := a.item(id); item.Status != "Success" {
		a.t.Fatalf("item = %+v", item)
	}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		if n := len(a.keys(a.deps.Targets[target])); n != sampleFiles {
			a.t.Errorf("%s has %d objects, want %d", target, n, sampleFiles)
		}
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM generic_files`:   sampleFiles,
		`SELECT count(*) FROM checksums`:       4 * sampleFiles,
		`SELECT count(*) FROM storage_records`: 2 * sampleFiles,
		`SELECT count(*) FROM premis_events`:   11*(sampleFiles-2) + 9*2 + 5,
		fmt.Sprintf(`SELECT count(*) FROM premis_events WHERE outcome_detail = '%d files copied'`, sampleFiles): 1,
		`SELECT count(*) FROM topic_messages WHERE topic = 'ingest09_cleanup'`:                                  1,
		`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`:                                        0,
		`SELECT count(*) FROM work_item_attempts WHERE stage = 'Cleanup' AND outcome = 'done'`:                  1,
	} {
		if n := value[int](a, sql); n != want {
			a.t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	if left := a.keys(a.deps.Staging); len(left) != 0 {
		a.t.Errorf("left in staging: %v", left)
	}
	if left := a.keys(a.receiving); len(left) != 0 {
		a.t.Errorf("left in receiving: %v", left)
	}
}

// Redis may lose everything at any moment.
func TestEmptiedRedisCostsOnlyTime(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	client := testenv.Redis(t)
	a.deps.Progress = progress.New(client, "flushed")
	id := a.deposit("sample.tar", a.sample())
	ctx, stop := context.WithCancel(context.Background())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for pause(ctx, 5*time.Millisecond) {
			if err := client.FlushDB(ctx).Err(); err != nil && ctx.Err() == nil {
				t.Errorf("FLUSHDB: %v", err)
			}
		}
	})
	a.work()
	stop()
	flusher.Wait()
	a.intact(id)
}

// Connections to S3 that break, again and again, cost tries and no more.
func TestBrokenConnectionsToS3(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	id := a.deposit("sample.tar", a.sample())
	a.through(proxy)
	a.exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '100 milliseconds'`)
	ctx, stop := context.WithCancel(context.Background())
	var breaker sync.WaitGroup
	breaker.Go(func() {
		for cuts := 0; cuts < 12 && pause(ctx, 10*time.Millisecond); cuts++ {
			proxy.CutAfter(400_000)
			pause(ctx, 150*time.Millisecond)
			proxy.Resume()
			pause(ctx, 100*time.Millisecond)
		}
		proxy.Resume()
	})
	a.work()
	stop()
	breaker.Wait()
	a.intact(id)
}

// through sends what the stages say to S3 through a proxy; the test itself keeps
// its own way.
func (a *archive) through(proxy *testenv.Proxy) {
	a.t.Helper()
	direct := a.s3.Endpoint
	a.s3.Endpoint = "https://" + proxy.Addr()
	a.rewire()
	a.s3.Endpoint = direct
}

// rewire opens all buckets of the stages anew.
func (a *archive) rewire() {
	a.t.Helper()
	deps := a.deps
	deps.Staging = a.bucket(a.s3.Prefix + "staging")
	if deps.Kept != nil {
		deps.Kept = a.bucket(deps.Kept.Name())
	}
	deps.Targets = map[string]*storage.Bucket{}
	for _, target := range storage.Targets() {
		deps.Targets[target.Name] = a.target(target)
	}
	others := map[string]*storage.Bucket{}
	for _, name := range []string{a.in.ReceivingBucket, a.in.RestoreBucket} {
		others[name] = a.bucket(name)
	}
	deps.Receiving = func(name string) (*storage.Bucket, error) { return others[name], nil }
	a.deps = deps
}

// A database that goes away for a while stops nothing for good.
func TestDatabaseThatGoesAwayForAWhile(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	addr := a.db.Config().ConnConfig.Host + ":" + portOf(a)
	proxy := testenv.NewProxy(t, addr)
	cut, err := registry.Connect(context.Background(), strings.Replace(a.db.Config().ConnString(), addr, proxy.Addr(), 1), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	direct := a.db
	a.db, a.deps.Registry = cut, registry.New(cut)
	stop := a.start()
	for range 5 {
		pause(t.Context(), 60*time.Millisecond)
		proxy.Cut()
		pause(t.Context(), 300*time.Millisecond)
		proxy.Resume()
	}
	a.db, a.deps.Registry = direct, registry.New(direct)
	a.atRest()
	stop()
	a.intact(id)
}

// A connection that breaks once costs a file another try, and not the item an
// attempt.
func TestFileIsTriedAgainWithinTheStage(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	proxy.CutAfter(2 << 20)
	var mender sync.WaitGroup
	mender.Go(func() {
		defer proxy.Resume()
		for !strings.Contains(a.log.String(), "will be tried again") && pause(t.Context(), 10*time.Millisecond) {
		}
	})
	a.one(engine, "Copy To Staging")
	mender.Wait()
	if item := a.item(id); item.Stage != "Format Identification" {
		t.Errorf("item = %+v", item)
	}
}

// A stage that failed half-way does not do again what it had finished.
func TestStageIsTakenUpWhereItStood(t *testing.T) {
	t.Parallel()
	const files, size = 400, 16_000
	a := newArchive(t)
	a.deps.Files = 1 // one object at a time: what was in flight is one at most
	spec := bagtest.Spec{Name: "packs"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%03d.bin", i), Size: size})
	}
	id := a.deposit("packs.tar", a.bag(spec))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	staging := a.deps.Staging
	a.through(proxy)
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	// Every byte passes twice, from the tar and to staging: half of them pass.
	proxy.CutAfter(files * size)
	a.one(engine, "Copy To Staging")
	if item := a.item(id); item.Status != "Pending" || item.Stage != "Copy To Staging" || item.Attempt != 0 {
		t.Fatalf("after the cut: %+v", item)
	}
	if n := strings.Count(a.log.String(), "try=2"); n > 2 {
		t.Errorf("%d objects were tried against a store that was away; it should give up after 2 in a row", n)
	}
	first := a.written(staging)
	if len(first) < 3 {
		t.Fatalf("%d objects were staged before the cut; the test needs some", len(first))
	}

	proxy.Resume()
	a.exec(`UPDATE work_items SET run_at = now()`)
	left := int64(2 * files * size)
	for _, o := range first {
		left -= 2 * o.Size
	}
	before := proxy.Bytes()
	a.one(engine, "Copy To Staging")
	if item := a.item(id); item.Stage != "Format Identification" {
		t.Fatalf("second attempt: %+v", item)
	}
	if kept, err := a.deps.Progress.Summary(t.Context(), id); err != nil || len(kept) != 0 {
		t.Errorf("a finished stage left %v in Redis, %v", kept, err)
	}
	if passed := proxy.Bytes() - before; passed > left*11/10 { // tar, HTTP and TLS need some too
		t.Errorf("the second attempt moved %d bytes, %d were left", passed, left)
	}
	second := a.written(staging)
	if len(second) <= len(first) {
		t.Fatalf("%d objects before the cut and %d in the end; the test needs a part to be left", len(first), len(second))
	}
	again := 0
	for key, o := range first {
		if !second[key].LastModified.Equal(o.LastModified) {
			again++
		}
	}
	if again > 1 {
		t.Errorf("%d of %d objects were written again", again, len(first))
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// A Redis that was emptied while a stage failed half-way costs questions: what is
// there already, and is what it should be, is not sent again.
func TestWithoutRedisNoFileIsSentAgain(t *testing.T) {
	t.Parallel()
	const files, size = 40, 70_000 // too large to be packed
	for _, stage := range []string{"Copy To Staging", "Store"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.deps.Files = 1
			client := testenv.Redis(t)
			a.deps.Progress = progress.New(client, "emptied")
			spec := bagtest.Spec{Name: "many", StorageOption: "Wasabi-OR"}
			for i := range files {
				spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%03d.bin", i), Size: size})
			}
			id := a.deposit("many.tar", a.bag(spec))
			proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
			staging, stored, receiving := a.deps.Staging, a.deps.Targets["Wasabi-OR"], a.deps.Receiving
			a.through(proxy)
			if stage == "Store" { // so that the bytes come through here, but pass the proxy once
				a.deps.Staging = staging
			} else {
				a.deps.Receiving = receiving
				stored = staging
			}
			engine := a.engine()
			a.upTo(engine, stage)
			proxy.CutAfter(files * size / 2)
			a.one(engine, stage)
			if item := a.item(id); item.Status != "Pending" || item.Stage != stage {
				t.Fatalf("after the cut: %+v", item)
			}
			first := len(a.written(stored))
			if first < files/4 {
				t.Fatalf("%d objects were written before the cut; the test needs some", first)
			}
			if err := client.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			proxy.Resume()
			a.exec(`UPDATE work_items SET run_at = now()`)
			before := proxy.Bytes()
			a.one(engine, stage)
			if item := a.item(id); item.Status != "Pending" || item.Stage == stage {
				t.Fatalf("second attempt: %+v", item)
			}
			most := int64(files-first+2)*size*11/10 + 5_000*files // what was left, and the questions
			if passed := proxy.Bytes() - before; passed > most {
				t.Errorf("the second attempt moved %d bytes although %d of %d objects were there", passed, first, files)
			}
			a.work()
			if item := a.item(id); item.Status != "Success" {
				t.Errorf("item = %+v", item)
			}
		})
	}
}

// Nor are small files that are staged together.
func TestWithoutRedisNoPackIsSentAgain(t *testing.T) {
	t.Parallel()
	const files, size = 100, 10_000
	a := newArchive(t)
	client := testenv.Redis(t)
	a.deps.Progress = progress.New(client, "emptied")
	spec := bagtest.Spec{Name: "packs"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%03d.bin", i), Size: size})
	}
	a.deposit("packs.tar", a.bag(spec))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	a.deps.recent, a.deps.room = &recent{}, newRoom(0, 0)
	w := a.hold(engine, "Copy To Staging")
	var moved [2]int64
	for i := range moved {
		before := proxy.Bytes()
		again := &work{item: w.item, hold: w.hold, log: w.log}
		again.item.Token += int64(i)
		err := (&stageFiles{a.deps}).Run(t.Context(), again)
		again.count.end(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		moved[i] = proxy.Bytes() - before
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if moved[0] < 2*files*size || moved[1] > files*size/5 {
		t.Errorf("%d bytes passed, and then %d", moved[0], moved[1])
	}
}

// A file of many parts is taken up at the part where it stood; an upload that
// nobody remembers is not paid for. Where the server can copy parts of the tar, no
// byte of them comes through the worker.
func TestLargeFileIsTakenUpAtItsParts(t *testing.T) {
	t.Parallel()
	const mib, size = 1 << 20, 260 << 20
	a := newArchive(t)
	id := a.deposit("large.tar", a.bag(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/film", Size: size}}}))
	a.client = storage.NewClient(storage.Options{Concurrency: 1})
	t.Cleanup(a.client.Close)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	staging, receiving := a.deps.Staging, a.deps.Receiving
	a.through(proxy)
	onServer := a.deps.Receiving
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	a.deps.Receiving = receiving // elsewhere, so that the bytes come through here
	cut := func(after int64) {
		t.Helper()
		proxy.CutAfter(after)
		a.one(engine, "Copy To Staging")
		if item := a.item(id); item.Stage != "Copy To Staging" || item.Status != "Pending" {
			t.Fatalf("after the cut: %+v", item)
		}
		proxy.Resume()
		a.exec(`UPDATE work_items SET run_at = now()`)
	}
	cut(50 * mib) // in the first part
	a.deps.Progress = progress.New(testenv.Redis(t), "another")
	cut(165 * mib) // in the third

	before := proxy.Bytes()
	a.one(engine, "Copy To Staging")
	if item := a.item(id); item.Stage != "Format Identification" {
		t.Fatalf("third attempt: %+v", item)
	}
	if passed := proxy.Bytes() - before; passed > (size-128*mib)*21/20 {
		t.Errorf("the third attempt moved %d MiB", passed/mib)
	}
	if n, err := staging.AbortUploads(context.Background(), "", time.Now().Add(24*time.Hour)); err != nil || n != 0 {
		t.Errorf("%d uploads were forgotten, %v", n, err)
	}

	a.deps.Receiving = onServer
	a.exec(`SELECT requeue(1, 'Copy To Staging')`)
	before = proxy.Bytes()
	a.one(engine, "Copy To Staging")
	if passed := proxy.Bytes() - before; a.item(id).Stage != "Format Identification" || passed > 5*mib {
		t.Errorf("%d MiB came through the worker; item %+v", passed/mib, a.item(id))
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// written returns the objects in the staging bucket that hold files.
func (a *archive) written(staging *storage.Bucket) map[string]storage.Object {
	a.t.Helper()
	objects := map[string]storage.Object{}
	for o, err := range staging.List(context.Background(), "", "") {
		if err != nil {
			a.t.Fatal(err)
		}
		if !strings.HasSuffix(o.Key, ".zst") {
			objects[o.Key] = o
		}
	}
	return objects
}

// A bag that is replaced or removed while it is being ingested ends so.
func TestBagThatIsReplacedOrRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*archive)
		status    string
		code      string
	}{
		"replaced": {func(a *archive) {
			tar := a.bag(bagtest.Spec{Name: "sample", Title: "Another"})
			if _, err := a.receiving.Put(context.Background(), "sample.tar", strings.NewReader(string(tar)), storage.Upload{Size: int64(len(tar))}); err != nil {
				a.t.Fatal(err)
			}
		}, "Cancelled", "bag-changed"},
		"removed": {func(a *archive) {
			if err := a.receiving.Delete(context.Background(), "sample.tar"); err != nil {
				a.t.Fatal(err)
			}
		}, "Suspended", "bag-gone"},
	} {
		for _, before := range []string{"Receive", "Copy To Staging", "Format Identification"} {
			t.Run(name+" before "+before, func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.deposit("sample.tar", a.sample())
				engine := a.engine()
				for _, s := range Ingest(a.deps) {
					if s.Stage == before {
						tc.meanwhile(a)
					}
					if !a.item(id).Retry {
						break
					}
					a.one(engine, s.Stage)
					if s.Stage == before { // one look is not believed
						if item := a.item(id); item.Status != "Pending" || item.ErrorCode != tc.code {
							t.Errorf("after the first look: %+v", item)
						}
						a.exec(`UPDATE work_items SET run_at = now()`)
						a.one(engine, s.Stage)
					}
				}
				if item := a.item(id); item.Status != tc.status || item.ErrorCode != tc.code {
					t.Errorf("item = %+v, want %s, %s", item, tc.status, tc.code)
				}
			})
		}
	}
}

// Once late stages have begun, a newer upload is left for an item of its own.
func TestCleanupLeavesANewerUpload(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	steps := Ingest(a.deps)
	for _, s := range steps[:6] {
		a.one(engine, s.Stage)
	}
	second := a.deposit("sample.tar", a.bag(bagtest.Spec{Name: "sample", Title: "Newer"}))
	if item := a.item(second); item.WaitsFor == nil || *item.WaitsFor != first {
		t.Fatalf("the newer upload does not wait: %+v", item)
	}
	for _, s := range steps[6:] {
		a.one(engine, s.Stage)
	}
	if item := a.item(first); item.Status != "Success" {
		t.Fatalf("first = %+v", item)
	}
	if got := a.keys(a.receiving); len(got) != 1 {
		t.Fatalf("receiving has %v, want the newer upload", got)
	}
	a.work()
	if item := a.item(second); item.Status != "Success" {
		t.Errorf("second = %+v", item)
	}
	if title := value[string](a, `SELECT title FROM intellectual_objects`); title != "Newer" {
		t.Errorf("title = %q", title)
	}
}

// What earlier stages left is made again when it is gone.
func TestLostStagingIsMadeAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Store")
	if err := a.deps.Staging.Delete(context.Background(), a.keys(a.deps.Staging)...); err != nil {
		t.Fatal(err)
	}
	a.work()
	a.intact(id)
	if n := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'sent back'`); n != 1 {
		t.Errorf("%d stages sent the item back, want 1", n)
	}
}

// Files that were lost or changed while they lay in staging are taken from the
// tar again.
func TestDamagedStagingIsMadeAgain(t *testing.T) {
	t.Parallel()
	lost := func([]byte) []byte { return nil }
	changed := func(content []byte) []byte {
		content[len(content)/2] ^= 1
		return content
	}
	cut := func(content []byte) []byte { return content[:len(content)/2] }
	for name, tc := range map[string]struct {
		packed bool
		damage func(content []byte) []byte // nil deletes
	}{
		"small files changed":  {true, changed},
		"small files cut":      {true, cut},
		"small files lost":     {true, lost},
		"a file alone changed": {false, changed},
		"a file alone cut":     {false, cut},
		"a file alone lost":    {false, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.deposit("sample.tar", a.sample())
			engine := a.engine()
			a.upTo(engine, "Store")
			damaged := 0
			for key := range a.written(a.deps.Staging) {
				if strings.Contains(key, "/pack-") == tc.packed {
					a.damage(key, tc.damage)
					damaged++
				}
			}
			if damaged == 0 {
				t.Fatal("there was nothing to damage")
			}
			a.one(engine, "Store")
			if a.item(id).ErrorCode == "sent-back" && a.item(id).Stage == "Store" { // not found: a second look has to agree
				a.exec(`UPDATE work_items SET run_at = now()`)
				a.one(engine, "Store")
			}
			if item := a.item(id); item.Stage != "Copy To Staging" || item.Status != "Pending" {
				t.Errorf("item is %s at %s, want it sent back to Copy To Staging", item.Status, item.Stage)
			}
			a.work()
			a.intact(id)
		})
	}
}

// damage replaces a staged object by what is made of it, or deletes it.
func (a *archive) damage(key string, change func([]byte) []byte) {
	a.t.Helper()
	content := change(a.content(a.deps.Staging, key))
	var err error
	if content == nil {
		err = a.deps.Staging.Delete(context.Background(), key)
	} else {
		_, err = a.deps.Staging.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// What a target says wrongly of its copy is told of the target; the staging area
// is not blamed for it. Buckets that encrypt with keys of KMS have such ETags.
func TestTargetThatDisagreesIsNamed(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]bagtest.File{
		"a small file": {Path: "data/a.bin", Size: 1000}, "a file alone": {Path: "data/a.bin", Size: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.deposit("sample.tar", a.bag(bagtest.Spec{Name: "sample", Files: []bagtest.File{file}}))
			a.exec(`UPDATE stage_settings SET max_attempts = 1`)
			a.deps.Targets["Standard-OR"] = a.disagreeing(a.deps.Targets["Standard-OR"])
			engine := a.engine()
			a.upTo(engine, "Store")
			a.one(engine, "Store")
			item := a.item(id)
			if item.Status != "Pending" || item.Attempt != 0 || item.Stage != "Store" || item.ErrorCode != "storage-wrong-answer" ||
				!strings.Contains(item.Note, "Standard-OR") || !strings.Contains(item.Note, "digest mismatch") {
				t.Errorf("item = %+v", item)
			}
		})
	}
}

// disagreeing is a bucket that answers to each PUT with an ETag of its own.
func (a *archive) disagreeing(b *storage.Bucket) *storage.Bucket {
	a.t.Helper()
	return a.behind(b, func(proxy *httputil.ReverseProxy) http.Handler {
		proxy.ModifyResponse = func(r *http.Response) error {
			if r.Request.Method == http.MethodPut {
				r.Header.Set("ETag", `"0123456789abcdef0123456789abcdef"`)
			}
			return nil
		}
		return proxy
	})
}

// behind is a bucket whose server is reached by way of another.
func (a *archive) behind(b *storage.Bucket, way func(*httputil.ReverseProxy) http.Handler) *storage.Bucket {
	a.t.Helper()
	server, err := url.Parse(a.s3.Endpoint)
	if err != nil {
		a.t.Fatal(err)
	}
	pem, err := os.ReadFile(a.s3.CAFile)
	if err != nil {
		a.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	a.t.Cleanup(transport.CloseIdleConnections)
	gate := httptest.NewServer(way(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = server.Scheme, server.Host
			r.Out.Host = r.In.Host // it is signed
		},
	}))
	a.t.Cleanup(gate.Close)
	other, err := a.client.Bucket(storage.Target{
		Name: b.Name(), Bucket: b.Name(), Endpoint: gate.URL, Region: a.s3.Region, PathStyle: true, Checksum: storage.ChecksumETag,
		AccessKeyID: a.s3.AccessKeyID, SecretAccessKey: storage.Secret(a.s3.SecretAccessKey),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return other
}

// What Copy To Staging reads must be what Receive has read, whatever the ETag
// says of it. If it is not, twice, the bag is read again.
func TestTarThatReadsDifferentlyIsNotStaged(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"data/c.bin", "data/streamed.bin"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.deposit("sample.tar", a.sample())
			engine := a.engine()
			a.one(engine, "Receive")
			a.one(engine, "Validate")
			a.changeInventory(id, func(b *bag.Bag) {
				at := slices.IndexFunc(b.Files, func(f *bag.File) bool { return f.Path == path })
				b.Files[at].Digests.SHA256[0] ^= 1
			})
			a.one(engine, "Reingest Check")
			a.one(engine, "Copy To Staging")
			item := a.item(id)
			if item.Status != "Pending" || item.Stage != "Receive" || !strings.Contains(item.Note, path) {
				t.Errorf("item = %+v", item)
			}
			a.work()
			a.intact(id)
		})
	}
}

// changeInventory puts another inventory in place of the item's.
func (a *archive) changeInventory(id int64, change func(*bag.Bag)) {
	a.t.Helper()
	key := fmt.Sprintf("%d/%s", id, inventoryName)
	b, err := bag.ReadInventory(bytes.NewReader(a.content(a.deps.Staging, key)))
	if err != nil {
		a.t.Fatal(err)
	}
	change(b)
	var other bytes.Buffer
	if err := bag.WriteInventory(&other, b); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.deps.Staging.Put(context.Background(), key, &other, storage.Upload{Size: int64(other.Len())}); err != nil {
		a.t.Fatal(err)
	}
}

// A list that an earlier pass left is not taken for this one's.
func TestListOfAnotherInventoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	a.changeInventory(id, func(b *bag.Bag) { b.Files[0].ModTime = b.Files[0].ModTime.Add(time.Hour) })
	a.one(engine, "Copy To Staging")
	if item := a.item(id); item.Stage != "Reingest Check" || item.Status != "Pending" {
		t.Errorf("item is %s at %s, want it sent back to Reingest Check", item.Status, item.Stage)
	}
	a.work()
	a.intact(id)
}

// engine returns a queue without upkeep, for tests that go step by step.
func (a *archive) engine() *claim.Engine {
	a.t.Helper()
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = 10*time.Minute, time.Minute, a.deps.Log
	e, err := claim.New(context.Background(), a.db, o)
	if err != nil {
		a.t.Fatal(err)
	}
	return e
}

// one takes the only item that is due through a stage.
func (a *archive) one(e *claim.Engine, stage string) {
	a.t.Helper()
	items, err := e.Claim(context.Background(), claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		a.t.Fatalf("Claim(%s) = %d items, %v", stage, len(items), err)
	}
	r, err := NewRunner(e, a.deps, Ingest(a.deps), RunnerOptions{Log: a.deps.Log})
	if err != nil {
		a.t.Fatal(err)
	}
	r.one(context.Background(), items[0])
}

// upTo takes it through the stages before another.
func (a *archive) upTo(e *claim.Engine, stage string) {
	a.t.Helper()
	for _, s := range Ingest(a.deps) {
		if s.Stage == stage {
			return
		}
		a.one(e, s.Stage)
	}
	a.t.Fatalf("there is no stage %s", stage)
}

func portOf(a *archive) string {
	return value[string](a, `SELECT inet_server_port()::text`)
}

// A large bag whose reading broke off is read on from its last checkpoint.
func TestReceiveReadsOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const mib = 1 << 20
	a.deps.checkpointBytes = 16 * mib
	var files []bagtest.File
	for _, name := range []string{"a", "b", "c", "d"} {
		files = append(files, bagtest.File{Path: "data/" + name, Size: 10 * mib})
	}
	id := a.deposit("large.tar", a.bag(bagtest.Spec{Name: "large", Files: files}))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	engine := a.engine()
	proxy.CutAfter(75 * mib / 2)
	a.one(engine, "Receive")
	if item := a.item(id); item.Stage != "Receive" || item.Status != "Pending" {
		t.Fatalf("after the cut: %+v", item)
	}
	proxy.Resume()
	a.exec(`UPDATE work_items SET run_at = now()`)
	// The reply to the last one was lost, and it was sent again.
	w := &work{item: claim.Item{
		ID: id, Stage: "Receive",
		Token: value[int64](a, `SELECT claim_token FROM work_items`), Entered: value[int64](a, `SELECT entered_token FROM work_items`),
	}}
	kept, err := a.deps.Progress.Entries(t.Context(), id, w.passOf(), checkpoints)
	if err != nil || len(kept) == 0 {
		t.Fatalf("%d checkpoints were kept, %v", len(kept), err)
	}
	if err := a.deps.Progress.Append(t.Context(), w.claim(), w.passOf(), checkpoints, kept[len(kept)-1]); err != nil {
		t.Fatal(err)
	}
	before := proxy.Bytes()
	a.one(engine, "Receive")
	a.one(engine, "Validate")
	if item := a.item(id); item.Stage != "Reingest Check" {
		t.Fatalf("second attempt: %+v", item)
	}
	if n := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Receive' AND outcome = 'held'`); n != 1 {
		t.Errorf("%d attempts were held for the cut", n)
	}
	if read := proxy.Bytes() - before; read > 45*mib/2 {
		t.Errorf("the second attempt read %d MiB of 40", read/mib)
	}
	b, _, err := (&work{item: claim.Item{ID: id}}).bag(t.Context(), Deps{Staging: a.deps.Staging, recent: &recent{}, room: newRoom(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range b.Files {
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	if n := len(slices.Compact(slices.Clone(paths))); n != len(paths) || !slices.Contains(paths, "data/d") {
		t.Errorf("the inventory has %v", paths)
	}
}

// A kill near the end of a large file costs what came after its last checkpoint;
// a checkpoint that another version made costs the file, and is no reason to fail.
func TestReceiveReadsOnWithinALargeFile(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		damage func(text string) string
		least  int // MiB that are read again
		most   int
	}{
		"as it was kept":       {func(text string) string { return text }, 7, 15},
		"by another version":   {func(text string) string { return strings.Replace(text, `"hashes":["`, `"hashes":["eA==","`, 1) }, 38, 50},
		"that is not readable": {func(string) string { return "{" }, 38, 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.deps.checkpointBytes = 16 * mib
			id := a.deposit("large.tar", a.bag(bagtest.Spec{Name: "large", Files: []bagtest.File{
				{Path: "data/before", Content: "before"}, {Path: "data/large", Size: 40 * mib},
			}}))
			proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
			a.through(proxy)
			engine := a.engine()
			proxy.CutAfter(155 * mib / 4)
			a.one(engine, "Receive")
			proxy.Resume()
			a.exec(`UPDATE work_items SET run_at = now()`)
			w := &work{item: claim.Item{
				ID: id, Stage: "Receive",
				Token: value[int64](a, `SELECT claim_token FROM work_items`), Entered: value[int64](a, `SELECT entered_token FROM work_items`),
			}}
			entry, err := a.deps.Progress.Get(t.Context(), id, w.passOf(), within)
			if err != nil || entry == "" {
				t.Fatalf("checkpoint %q, %v", entry, err)
			}
			if err := a.deps.Progress.Put(t.Context(), w.claim(), w.passOf(), within, recoded(t, entry, tt.damage)); err != nil {
				t.Fatal(err)
			}
			before := proxy.Bytes()
			a.one(engine, "Receive")
			if read := int(proxy.Bytes()-before) / mib; read < tt.least || read > tt.most {
				t.Errorf("the second attempt read %d MiB of 40, want %d to %d", read, tt.least, tt.most)
			}
			a.one(engine, "Validate") // by the manifests, whose digests the tar was made with
			if item := a.item(id); item.Stage != "Reingest Check" {
				t.Errorf("second attempt: %+v", item)
			}
		})
	}
}

// recoded changes a checkpoint under its compression.
func recoded(t *testing.T, entry string, change func(string) string) string {
	t.Helper()
	in, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	text, err := in.DecodeAll([]byte(entry), nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(out.EncodeAll([]byte(change(string(text))), nil))
}

// A list that was damaged is made anew like one that is gone, wherever in it.
func TestDamagedListsAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		list, next string
		rows       bool // as many as the list says, of a sample that is on no record
	}{
		{planName, "Copy To Staging", false},
		{formatsName, "Store", true},
		{inventoryName, "Store", true},
		{inventoryName, "Record", true},
		{planName, "Record", false},
		{verdictName, "Record", false},
		{formatsName, "Record", true},
		{copiesName, "Record", true},
	} {
		for how, damage := range map[string]func([]byte) []byte{
			"cut": func(content []byte) []byte { return append(content[:len(content)/2], "damage"...) },
			"without its last row": func(content []byte) []byte {
				return []byte(recoded(t, string(content), func(text string) string {
					return text[:strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1]
				}))
			},
		} {
			if !tc.rows && how != "cut" {
				continue
			}
			t.Run(tc.list+" at "+tc.next+" "+how, func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.deposit("sample.tar", a.sample())
				engine := a.engine()
				a.upTo(engine, tc.next)
				a.damage(fmt.Sprintf("%d/%s", id, tc.list), damage)
				a.one(engine, tc.next)
				if item := a.item(id); item.Stage != madeBy(tc.list) || item.Status != "Pending" {
					t.Errorf("item is %s at %s, want it sent back to %s", item.Status, item.Stage, madeBy(tc.list))
				}
				a.work()
				a.intact(id)
			})
		}
	}
}

// A list whose connection breaks is not taken for a damaged one: the stage that
// reads it is tried again, and not the one that made it.
func TestListWhoseConnectionBreaksIsNotDamaged(t *testing.T) {
	t.Parallel()
	const made, many = "an inventory", 20_000
	a := newArchive(t)
	a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Copy To Staging")
	w := a.hold(engine, "Copy To Staging")
	rows := map[int]known{}
	for i := range many {
		rows[i] = known{Index: i, UUID: uuid.NewString()}
	}
	if err := writeList(t.Context(), w, a.deps, planName, made, plan{}, many, byIndex(rows)); err != nil {
		t.Fatal(err)
	}
	size := len(a.content(a.deps.Staging, w.staged(planName)))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	read := func() error {
		got, err := readList(t.Context(), w, a.deps, planName, made, &plan{}, func(k known) int { return k.Index })
		if err == nil && len(got) != many {
			t.Errorf("%d rows of %d", len(got), many)
		}
		return err
	}
	proxy.CutAfter(int64(size / 2))
	if err := read(); claim.Code(err) != "storage-unavailable" {
		t.Errorf("of a list that breaks off: %v", err)
	}
	proxy.Resume()
	if err := read(); err != nil {
		t.Error(err)
	}
}

// Item 1 does not clear the staging area of item 10.
func TestCleanupKeepsToItsOwn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	id := a.deposit("sample.tar", a.sample())
	other := fmt.Sprintf("%d0/file", id)
	if _, err := a.deps.Staging.Put(ctx, other, strings.NewReader("x"), storage.Upload{Size: 1}); err != nil {
		t.Fatal(err)
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	if got := a.keys(a.deps.Staging); len(got) != 1 || got[0] != other {
		t.Errorf("staging has %v, want what is of item %d0", got, id)
	}
}
