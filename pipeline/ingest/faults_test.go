package ingest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// Redis may lose everything at any moment.
func TestEmptiedRedisCostsOnlyTime(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "flushed")
	id := a.Deposit("sample.tar", a.Sample())
	ctx, stop := context.WithCancel(context.Background())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for retry.Pause(ctx, 5*time.Millisecond) {
			if err := client.FlushDB(ctx).Err(); err != nil && ctx.Err() == nil {
				t.Errorf("FLUSHDB: %v", err)
			}
		}
	})
	a.Work()
	stop()
	flusher.Wait()
	a.Intact(id)
}

// Connections to S3 that break, again and again, cost tries and no more.
func TestBrokenConnectionsToS3(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	id := a.Deposit("sample.tar", a.Sample())
	a.Through(proxy)
	a.Exec(`UPDATE stage_settings SET max_attempts = 100, backoff_first = '10 milliseconds', backoff_most = '100 milliseconds'`)
	ctx, stop := context.WithCancel(context.Background())
	var breaker sync.WaitGroup
	breaker.Go(func() {
		for cuts := 0; cuts < 12 && retry.Pause(ctx, 10*time.Millisecond); cuts++ {
			proxy.CutAfter(400_000)
			retry.Pause(ctx, 150*time.Millisecond)
			proxy.Resume()
			retry.Pause(ctx, 100*time.Millisecond)
		}
		proxy.Resume()
	})
	a.Work()
	stop()
	breaker.Wait()
	a.Intact(id)
}

// A database that goes away for a while stops nothing for good.
func TestDatabaseThatGoesAwayForAWhile(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	addr := a.DB.Config().ConnConfig.Host + ":" + portOf(a)
	proxy := testenv.NewProxy(t, addr)
	cut := must.Get(dial.Connect(context.Background(), strings.Replace(a.DB.Config().ConnString(), addr, proxy.Addr(), 1), "test"))(t)
	defer cut.Close()
	direct := a.DB
	a.DB, a.Deps.Registry = cut, registry.New(cut)
	stop := a.Start()
	for range 5 {
		retry.Pause(t.Context(), 60*time.Millisecond)
		proxy.Cut()
		retry.Pause(t.Context(), 300*time.Millisecond)
		proxy.Resume()
	}
	a.DB, a.Deps.Registry = direct, registry.New(direct)
	a.AtRest()
	stop()
	a.Intact(id)
}

// A connection that breaks once costs a file another try, and not the item an
// attempt.
func TestFileIsTriedAgainWithinTheStage(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	engine := a.Engine()
	a.UpTo(engine, "Store")
	proxy.CutAfter(2 << 20)
	ctx, stop := context.WithTimeout(t.Context(), testenv.Patience)
	defer stop()
	var mender sync.WaitGroup
	mender.Go(func() {
		defer proxy.Resume()
		for !strings.Contains(a.Log.String(), "file failed; retrying") && retry.Pause(ctx, 10*time.Millisecond) {
		}
	})
	a.One(engine, "Store")
	mender.Wait()
	if item := a.Item(id); item.Stage != "Storage Validation" {
		t.Errorf("item = %+v", item)
	}
}

// A stage that failed half-way does not do again what it had finished.
func TestStageIsTakenUpWhereItStood(t *testing.T) {
	t.Parallel()
	const files, size = 24, 700_000
	a := newArchive(t)
	a.Deps.Files = 1 // one group at a time, of two files
	spec := bagtest.Spec{Name: "many", StorageOption: "Wasabi-OR"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%03d.bin", i), Size: size})
	}
	id := a.Deposit("many.tar", a.Bag(spec))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	target := a.Deps.Targets["Wasabi-OR"]
	a.Through(proxy)
	engine := a.Engine()
	a.UpTo(engine, "Store")
	// Every byte passes twice, from the upload and to the target: half of them pass.
	proxy.CutAfter(files * size)
	a.One(engine, "Store")
	if item := a.Item(id); item.Status != "Pending" || item.Stage != "Store" || item.Attempt != 0 {
		t.Fatalf("after the cut: %+v", item)
	}
	if n := strings.Count(a.Log.String(), "try=2"); n > 2 {
		t.Errorf("%d groups were tried against a store that was away; it should give up after 2 in a row", n)
	}
	first := a.listed(target)
	if len(first) < 3 {
		t.Fatalf("%d objects were stored before the cut; the test needs some", len(first))
	}

	proxy.Resume()
	a.Exec(`UPDATE work_items SET run_at = now()`)
	left := int64(2 * files * size)
	for _, o := range first {
		left -= 2 * o.Size
	}
	before := proxy.Bytes()
	a.One(engine, "Store")
	if item := a.Item(id); item.Stage != "Storage Validation" {
		t.Fatalf("second attempt: %+v", item)
	}
	if kept, err := a.Deps.Progress.Summary(t.Context(), id); err != nil || len(kept) != 0 {
		t.Errorf("a finished stage left %v in Redis, %v", kept, err)
	}
	left = left*11/10 + 2*2*size + files*4_000 // HTTP and TLS, the group in flight, and questions
	if passed := proxy.Bytes() - before; passed > left {
		t.Errorf("the second attempt moved %d bytes, %d were left", passed, left)
	}
	second := a.listed(target)
	if len(second) <= len(first) {
		t.Fatalf("%d objects before the cut and %d in the end; the test needs a part to be left", len(first), len(second))
	}
	again := 0
	for key, o := range first {
		if !second[key].LastModified.Equal(o.LastModified) {
			again++
		}
	}
	if again > 2 {
		t.Errorf("%d of %d objects were written again", again, len(first))
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// A Redis that was emptied while Store failed half-way costs questions: what is there already,
// and is what it should be, is not sent again.
func TestWithoutRedisNoFileIsSentAgain(t *testing.T) {
	t.Parallel()
	const files, size = 40, 300_000
	a := newArchive(t)
	a.Deps.Files = 1
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "emptied")
	spec := bagtest.Spec{Name: "many", StorageOption: "Wasabi-OR"}
	for i := range files {
		spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%03d.bin", i), Size: size})
	}
	id := a.Deposit("many.tar", a.Bag(spec))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	receiving, stored := a.Deps.Receiving, a.Deps.Targets["Wasabi-OR"]
	a.Through(proxy)
	a.Deps.Receiving = receiving // so that the bytes pass the proxy once
	engine := a.Engine()
	a.UpTo(engine, "Store")
	proxy.CutAfter(files * size / 2)
	a.One(engine, "Store")
	if item := a.Item(id); item.Status != "Pending" || item.Stage != "Store" {
		t.Fatalf("after the cut: %+v", item)
	}
	first := len(a.listed(stored))
	if first < files/4 {
		t.Fatalf("%d objects were written before the cut; the test needs some", first)
	}
	must.Do(t, client.FlushDB(t.Context()).Err())
	proxy.Resume()
	a.Exec(`UPDATE work_items SET run_at = now()`)
	before := proxy.Bytes()
	a.One(engine, "Store")
	if item := a.Item(id); item.Status != "Pending" || item.Stage != "Storage Validation" {
		t.Fatalf("second attempt: %+v", item)
	}
	most := int64(files-first+2)*size*11/10 + 5_000*files // what was left, and the questions
	if passed := proxy.Bytes() - before; passed > most {
		t.Errorf("the second attempt moved %d bytes although %d of %d objects were there", passed, first, files)
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// A large copy is taken up at the part where it stood; an upload that nobody remembers is not
// paid for. Where a server cannot copy from the upload, its second copy is made of the first.
func TestLargeCopyIsTakenUpAtItsParts(t *testing.T) {
	t.Parallel()
	const mib, size = 1 << 20, 260 << 20
	a := newArchive(t)
	a.Deps.Files = 1
	id := a.Deposit("large.tar", a.Bag(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/film", Size: size}}}))
	a.Client = storage.NewClient(storage.Options{Concurrency: 1})
	t.Cleanup(a.Client.Close)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	receiving := a.Deps.Receiving
	a.Through(proxy)
	a.Deps.Receiving = receiving // elsewhere, so that the bytes come through here
	engine := a.Engine()
	a.UpTo(engine, "Store")
	cut := func(after int64) {
		t.Helper()
		proxy.CutAfter(after)
		a.One(engine, "Store")
		if item := a.Item(id); item.Stage != "Store" || item.Status != "Pending" {
			t.Fatalf("after the cut: %+v", item)
		}
		proxy.Resume()
		a.Exec(`UPDATE work_items SET run_at = now()`)
	}
	cut(50 * mib) // in the first part
	a.Deps.Progress = progress.New(testenv.Redis(t), "another")
	cut(165 * mib) // in the third

	before := proxy.Bytes()
	a.One(engine, "Store")
	if item := a.Item(id); item.Stage != "Storage Validation" {
		t.Fatalf("third attempt: %+v", item)
	}
	if passed := proxy.Bytes() - before; passed > (size-128*mib)*21/20 {
		t.Errorf("the third attempt moved %d MiB", passed/mib)
	}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		if open := a.Uploads(a.Deps.Targets[target]); len(open) != 0 {
			t.Errorf("uploads were forgotten in %s: %v", target, open)
		}
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// A bag that is replaced or removed while it is being ingested ends so.
func TestBagThatIsReplacedOrRemovedInBetween(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(*archive)
		status    registry.Status
		code      string
	}{
		"replaced": {func(a *archive) {
			tar := a.Bag(bagtest.Spec{Name: "sample", Title: "Another"})
			must.Get(a.Receiving.Put(context.Background(), "sample.tar", strings.NewReader(string(tar)), storage.Upload{Size: int64(len(tar))}))(a.T)
		}, "Cancelled", "bag-changed"},
		"removed": {func(a *archive) {
			must.Do(a.T, a.Receiving.Delete(context.Background(), "sample.tar"))
		}, "Suspended", "bag-gone"},
	} {
		for _, before := range []registry.Stage{"Receive", "Copy To Staging", "Format Identification", "Store"} {
			t.Run(name+" before "+string(before), func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.Deposit("sample.tar", a.Sample())
				engine := a.Engine()
				for _, s := range Steps(a.Deps) {
					if s.Stage == before {
						tc.meanwhile(a)
					}
					if !a.Item(id).Retry {
						break
					}
					a.One(engine, s.Stage)
					if s.Stage == before { // one look is not believed
						if item := a.Item(id); item.Status != "Pending" || item.ErrorCode != tc.code {
							t.Errorf("after the first look: %+v", item)
						}
						a.Exec(`UPDATE work_items SET run_at = now()`)
						a.One(engine, s.Stage)
					}
				}
				if item := a.Item(id); item.Status != tc.status || item.ErrorCode != tc.code {
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
	first := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	steps := Steps(a.Deps)
	for _, s := range steps[:6] {
		a.One(engine, s.Stage)
	}
	second := a.Deposit("sample.tar", a.Bag(bagtest.Spec{Name: "sample", Title: "Newer"}))
	if item := a.Item(second); item.WaitsFor == nil || *item.WaitsFor != first {
		t.Fatalf("the newer upload does not wait: %+v", item)
	}
	for _, s := range steps[6:] {
		a.One(engine, s.Stage)
	}
	if item := a.Item(first); item.Status != "Success" {
		t.Fatalf("first = %+v", item)
	}
	if got := a.Keys(a.Receiving); len(got) != 1 {
		t.Fatalf("receiving has %v, want the newer upload", got)
	}
	a.Work()
	if item := a.Item(second); item.Status != "Success" {
		t.Errorf("second = %+v", item)
	}
	if title := pipelinetest.Value[string](a, `SELECT title FROM intellectual_objects`); title != "Newer" {
		t.Errorf("title = %q", title)
	}
}

// What earlier stages left is made again when it is gone.
func TestLostListsAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, stage := range []registry.Stage{"Validate", "Reingest Check", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup"} {
		for where, put := range map[string]func(*archive){"staging": func(a *archive) { a.InStaging() }, "registry": func(*archive) {}} {
			t.Run(string(stage)+", "+where, func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.Deposit("sample.tar", a.Sample())
				a.UpTo(a.Engine(), stage)
				put(a)
				a.LoseLists()
				a.Work()
				a.Intact(id)
				want := 1
				if stage == "Cleanup" { // which needs none
					want = 0
				}
				if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'sent back'`); n != want {
					t.Errorf("%d stages sent the item back, want %d", n, want)
				}
			})
		}
	}
}

// A small bag leaves nothing in staging, and the lists of a large one nothing in the registry.
// What a stage has left is there when it has ended, and not before; in the end nothing is.
func TestSmallListsAreWrittenWithTheEndOfTheirStage(t *testing.T) {
	t.Parallel()
	lists := func(a *archive) string {
		return pipelinetest.Value[string](a, `SELECT coalesce(string_agg(split_part(name, '.', 1), ' ' ORDER BY written_at, name), '') FROM work_item_lists WHERE content IS NOT NULL`)
	}
	for _, tc := range []struct {
		files  int
		staged bool
	}{{3, false}, {300, true}} {
		t.Run(fmt.Sprint(tc.files), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			spec := bagtest.Spec{Name: "sample"}
			for i := range tc.files {
				spec.Files = append(spec.Files, bagtest.File{Path: fmt.Sprintf("data/%d.bin", i), Size: 100, Seed: uint64(i)})
			}
			id := a.Deposit("sample.tar", a.Bag(spec))
			engine := a.Engine()
			w := a.Hold(engine, "Receive")
			must.Do(t, a.Stage("Receive").Run(t.Context(), w))
			if got := lists(a); got != "" || w.List.Name == "" || (w.List.Content == nil) != tc.staged {
				t.Errorf("before the end of Receive there are %q, and it leaves %s in %d bytes", got, w.List.Name, len(w.List.Content))
			}
			must.Do(t, w.Hold.Settle(t.Context(), claim.Done{}, claim.Release("the worker was stopped")))
			a.UpTo(engine, "Cleanup")
			want := "inventory verdict plan formats copies"
			if got := lists(a); tc.staged && strings.Contains(got, "inventory") || !tc.staged && got != want || (len(a.Keys(a.Deps.Staging)) > 0) != tc.staged {
				t.Errorf("in the registry are %q, in staging %q", got, a.Keys(a.Deps.Staging))
			}
			a.Work()
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_lists`); a.Item(id).Status != "Success" || n+len(a.Keys(a.Deps.Staging)) != 0 {
				t.Errorf("%d lists are left, and in staging %q, of %+v", n, a.Keys(a.Deps.Staging), a.Item(id))
			}
		})
	}
}

// damage replaces a list by what is made of it, or deletes it, in the staging bucket.
func (a *archive) damage(key string, change func([]byte) []byte) {
	a.T.Helper()
	a.InStaging()
	content := change(a.Content(a.Deps.Staging, key))
	var err error
	if content == nil {
		err = a.Deps.Staging.Delete(context.Background(), key)
	} else {
		_, err = a.Deps.Staging.Put(context.Background(), key, bytes.NewReader(content), storage.Upload{Size: int64(len(content))})
	}
	if err != nil {
		a.T.Fatal(err)
	}
}

// If a target reports a wrong ETag of its copy, the target is named and the bag is
// not blamed. Buckets that encrypt with keys of KMS have such ETags.
func TestTargetThatDisagreesIsNamed(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]bagtest.File{
		"a small file": {Path: "data/a.bin", Size: 1000}, "a file alone": {Path: "data/a.bin", Size: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.Deposit("sample.tar", a.Bag(bagtest.Spec{Name: "sample", Files: []bagtest.File{file}}))
			a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
			a.Deps.Targets["Standard-OR"] = a.disagreeing(a.Deps.Targets["Standard-OR"])
			engine := a.Engine()
			a.UpTo(engine, "Store")
			a.One(engine, "Store")
			item := a.Item(id)
			if item.Status != "Pending" || item.Attempt != 0 || item.Stage != "Store" || item.ErrorCode != "storage-wrong-answer" ||
				!strings.Contains(item.Note, "Standard-OR") || !strings.Contains(item.Note, "digest mismatch") {
				t.Errorf("item = %+v", item)
			}
		})
	}
}

// disagreeing is a bucket that answers to each PUT with an ETag of its own.
func (a *archive) disagreeing(b *storage.Bucket) *storage.Bucket {
	a.T.Helper()
	return a.Behind(b, func(proxy *httputil.ReverseProxy) http.Handler {
		proxy.ModifyResponse = func(r *http.Response) error {
			if r.Request.Method == http.MethodPut {
				r.Header.Set("ETag", `"0123456789abcdef0123456789abcdef"`)
			}
			return nil
		}
		return proxy
	})
}

// While stores refuse requests, as S3 does while it splits a partition, a bag is stored as ever: no
// attempt ends for it, and nothing is held.
func TestStoresThatAskForFewerRequestsHoldNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const refuses = 12 * time.Second // longer than other failures are tried again
	var refused atomic.Int64
	slow := func(b *storage.Bucket) *storage.Bucket {
		var once sync.Once
		var began time.Time // of the first copy
		return a.Behind(b, func(proxy *httputil.ReverseProxy) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if once.Do(func() { began = time.Now() }); time.Since(began) > refuses {
					proxy.ServeHTTP(w, r)
					return
				}
				refused.Add(1)
				answers(http.StatusServiceUnavailable, "SlowDown")(w, r)
			})
		})
	}
	id := a.Deposit("sample.tar", a.Sample())
	for name, b := range a.Deps.Targets {
		a.Deps.Targets[name] = slow(b)
	}
	a.Work()
	a.Intact(id)
	if refused.Load() == 0 {
		t.Error("no request was refused")
	}
	if bad := pipelinetest.Value[string](a, `SELECT coalesce(string_agg(stage || ' ' || outcome || ' ' || error_code, ', '), '') FROM work_item_attempts WHERE outcome <> 'done'`); bad != "" {
		t.Errorf("attempts ended otherwise: %s", bad)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM service_reports WHERE state <> 'ok'`); n > 0 {
		t.Errorf("%d services were held", n)
	}
}

// changeInventory puts another inventory in place of the item's.
func (a *archive) changeInventory(id int64, change func(*bag.Bag)) {
	a.T.Helper()
	a.InStaging()
	key := fmt.Sprintf("%d/%s", id, lists.InventoryName)
	b := must.Get(bag.ReadInventory(bytes.NewReader(a.Content(a.Deps.Staging, key))))(a.T)
	change(b)
	var other bytes.Buffer
	must.Do(a.T, bag.WriteInventory(&other, b))
	must.Get(a.Deps.Staging.Put(context.Background(), key, &other, storage.Upload{Size: int64(other.Len())}))(a.T)
}

// A list that an earlier pass left is not taken for this one's.
func TestListOfAnotherInventoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Format Identification")
	a.changeInventory(id, func(b *bag.Bag) { b.Files[0].ModTime = b.Files[0].ModTime.Add(time.Hour) })
	a.One(engine, "Format Identification")
	if item := a.Item(id); item.Stage != "Reingest Check" || item.Status != "Pending" {
		t.Errorf("item is %s at %s, want it sent back to Reingest Check", item.Status, item.Stage)
	}
	a.Work()
	a.Intact(id)
}

func portOf(a *archive) string {
	return pipelinetest.Value[string](a, `SELECT inet_server_port()::text`)
}

// A tar that is larger than stores give in one answer is read in ranges, each byte once; a smaller one by
// one request.
func TestReceiveReadsAHugeTarInRanges(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int64{"huge": 1 << 20, "small": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.receiveWith(func(s *receive) { s.rangeBytes = most })
			id := a.Deposit("sample.tar", a.Sample())
			size := a.Item(id).Size
			wire := a.Wired()
			a.UpTo(a.Engine(), "Validate")
			var got, want []string
			for _, asked := range wire.Asked() {
				if method, at, _ := strings.Cut(asked, " "); method == http.MethodGet && strings.Contains(at, "/sample.tar ") {
					_, bytes, _ := strings.Cut(at, " ")
					got = append(got, bytes)
				}
			}
			for from := int64(0); most > 0 && from < size; from += most {
				to := strconv.FormatInt(from+most-1, 10)
				if from+most >= size {
					to = ""
				}
				want = append(want, fmt.Sprintf("bytes=%d-%s", from, to))
			}
			if most == 0 {
				want = []string{""}
			}
			if !slices.Equal(got, want) || most > 0 && len(got) < 4 {
				t.Errorf("asked for %q, want %q", got, want)
			}
			if read := wire.Moved().Read; read < size || read > size+100_000 {
				t.Errorf("%d bytes were read of %d", read, size)
			}
			a.Work()
			a.Intact(id)
		})
	}
}

// A large bag whose reading broke off is read on from its last checkpoint.
func TestReceiveReadsOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const mib = 1 << 20
	a.checkpointEvery(16 * mib)
	var files []bagtest.File
	for _, name := range []string{"a", "b", "c", "d"} {
		files = append(files, bagtest.File{Path: "data/" + name, Size: 10 * mib})
	}
	id := a.Deposit("large.tar", a.Bag(bagtest.Spec{Name: "large", Files: files}))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	engine := a.Engine()
	proxy.CutAfter(75 * mib / 2)
	a.One(engine, "Receive")
	if item := a.Item(id); item.Stage != "Receive" || item.Status != "Pending" {
		t.Fatalf("after the cut: %+v", item)
	}
	proxy.Resume()
	a.Exec(`UPDATE work_items SET run_at = now()`)
	// The reply to the last one was lost, and it was sent again.
	w := &pipeline.Work{Item: claim.Item{
		ID: id, Stage: "Receive",
		Token: pipelinetest.Value[int64](a, `SELECT claim_token FROM work_items`), Entered: pipelinetest.Value[int64](a, `SELECT entered_token FROM work_items`),
	}}
	kept, err := a.Deps.Progress.Entries(t.Context(), id, w.Pass(), lists.Checkpoints)
	if err != nil || len(kept) == 0 {
		t.Fatalf("%d checkpoints were kept, %v", len(kept), err)
	}
	must.Do(t, a.Deps.Progress.Append(t.Context(), w.Claim(), w.Pass(), lists.Checkpoints, kept[len(kept)-1]))
	before := proxy.Bytes()
	a.One(engine, "Receive")
	a.One(engine, "Validate")
	if item := a.Item(id); item.Stage != "Reingest Check" {
		t.Fatalf("second attempt: %+v", item)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Receive' AND outcome = 'held'`); n != 1 {
		t.Errorf("%d attempts were held for the cut", n)
	}
	if read := proxy.Bytes() - before; read > 45*mib/2 {
		t.Errorf("the second attempt read %d MiB of 40", read/mib)
	}
	b, _, err := (&lists.Area{Bucket: a.Deps.Staging, Registry: a.Deps.Registry, Item: id, Log: a.Deps.Log}).Inventory(t.Context(), nil)
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
			a.checkpointEvery(16 * mib)
			id := a.Deposit("large.tar", a.Bag(bagtest.Spec{Name: "large", Files: []bagtest.File{
				{Path: "data/before", Content: "before"}, {Path: "data/large", Size: 40 * mib},
			}}))
			proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
			a.Through(proxy)
			engine := a.Engine()
			proxy.CutAfter(155 * mib / 4)
			a.One(engine, "Receive")
			proxy.Resume()
			a.Exec(`UPDATE work_items SET run_at = now()`)
			w := &pipeline.Work{Item: claim.Item{
				ID: id, Stage: "Receive",
				Token: pipelinetest.Value[int64](a, `SELECT claim_token FROM work_items`), Entered: pipelinetest.Value[int64](a, `SELECT entered_token FROM work_items`),
			}}
			entry, err := a.Deps.Progress.Get(t.Context(), id, w.Pass(), lists.Within)
			if err != nil || entry == "" {
				t.Fatalf("checkpoint %q, %v", entry, err)
			}
			must.Do(t, a.Deps.Progress.Put(t.Context(), w.Claim(), w.Pass(), lists.Within, recoded(t, entry, tt.damage)))
			before := proxy.Bytes()
			a.One(engine, "Receive")
			if read := int(proxy.Bytes()-before) / mib; read < tt.least || read > tt.most {
				t.Errorf("the second attempt read %d MiB of 40, want %d to %d", read, tt.least, tt.most)
			}
			a.One(engine, "Validate") // by the manifests, whose digests the tar was made with
			if item := a.Item(id); item.Stage != "Reingest Check" {
				t.Errorf("second attempt: %+v", item)
			}
		})
	}
}

// recoded changes a checkpoint under its compression.
func recoded(t *testing.T, entry string, change func(string) string) string {
	t.Helper()
	in := must.Get(zstd.NewReader(nil))(t)
	defer in.Close()
	text := must.Get(in.DecodeAll([]byte(entry), nil))(t)
	out := must.Get(zstd.NewWriter(nil))(t)
	return string(out.EncodeAll([]byte(change(string(text))), nil))
}

// A list that was damaged is made again like one that is gone, wherever in it.
func TestDamagedListsAreMadeAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		list        string
		next, maker registry.Stage
		rows        bool // as many as the list says, of a sample that is on no record
	}{
		{lists.PlanName, "Format Identification", "Reingest Check", false},
		{lists.FormatsName, "Store", "Format Identification", true},
		{lists.InventoryName, "Store", "Receive", true},
		{lists.InventoryName, "Record", "Receive", true},
		{lists.PlanName, "Record", "Reingest Check", false},
		{lists.VerdictName, "Record", "Validate", false},
		{lists.FormatsName, "Record", "Format Identification", true},
		{lists.CopiesName, "Record", "Storage Validation", true},
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
			t.Run(tc.list+" at "+string(tc.next)+" "+how, func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.Deposit("sample.tar", a.Sample())
				engine := a.Engine()
				a.UpTo(engine, tc.next)
				a.damage(fmt.Sprintf("%d/%s", id, tc.list), damage)
				a.One(engine, tc.next)
				if item := a.Item(id); item.Stage != tc.maker || item.Status != "Pending" {
					t.Errorf("item is %s at %s, want it sent back to %s", item.Status, item.Stage, tc.maker)
				}
				a.Work()
				a.Intact(id)
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
	a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Copy To Staging")
	w := a.Hold(engine, "Copy To Staging")
	rows := map[int]lists.Known{}
	for i := range many {
		rows[i] = lists.Known{Index: i, UUID: uuid.New()}
	}
	must.Do(t, lists.Write(t.Context(), a.area(w), lists.PlanName, made, lists.Plan{}, many, lists.ByIndex(rows)))
	size := len(a.Content(a.Deps.Staging, lists.Key(w.Item.ID, lists.PlanName)))
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	read := func() error {
		got, err := lists.Read(t.Context(), a.area(w), lists.PlanName, made, &lists.Plan{}, func(k lists.Known) int { return k.Index })
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
	id := a.Deposit("sample.tar", a.Sample())
	other := fmt.Sprintf("%d0/file", id)
	must.Get(a.Deps.Staging.Put(ctx, other, strings.NewReader("x"), storage.Upload{Size: 1}))(t)
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	if got := a.Keys(a.Deps.Staging); len(got) != 1 || got[0] != other {
		t.Errorf("staging has %v, want what is of item %d0", got, id)
	}
}
