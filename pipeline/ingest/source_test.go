package ingest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Large files are copied out of the upload, without a byte of them in the worker.
func TestServerMakesTheCopies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	engine := a.Engine()
	a.UpTo(engine, "Copy To Staging")
	passed := func(stage registry.Stage) int64 {
		before := proxy.Bytes()
		a.One(engine, stage)
		return proxy.Bytes() - before
	}
	if n := passed("Copy To Staging"); n > 100_000 { // a question
		t.Errorf("%d bytes passed while the tar was pinned", n)
	}
	a.One(engine, "Format Identification")
	const small = 10*15_000 + 10*120_000
	if n := passed("Store"); n < 3*small || n > 3*small+500_000 { // read once, written twice; the file of 3 MiB not at all
		t.Errorf("%d bytes passed while files were stored; the small ones have %d", n, small)
	}
	a.Work()
	a.Intact(id)
	a.asItWas(id, truth(t, a.Sample()))
}

// Where the receiving bucket keeps versions, the depositor may replace or remove an upload that
// was read: it is ingested, and a newer one stays for an item of its own.
func TestUploadThatIsReplacedIsIngestedWhereItsBucketKeepsVersions(t *testing.T) {
	t.Parallel()
	for _, before := range []registry.Stage{"Copy To Staging", "Format Identification", "Store"} {
		for _, replaced := range []bool{true, false} {
			t.Run(fmt.Sprintf("replaced %t before %s", replaced, before), func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				a.S3.SetVersioning(t, a.Receiving.Name(), true)
				id := a.Deposit("sample.tar", a.Sample())
				a.UpTo(a.Engine(), before)
				newer := a.Bag(bagtest.Spec{Name: "sample", Title: "Newer"})
				if replaced {
					a.PutRaw("sample.tar", newer)
				} else if err := a.Receiving.Delete(t.Context(), "sample.tar"); err != nil {
					t.Fatal(err)
				}
				a.Work()
				if replaced {
					if got := a.Content(a.Receiving, "sample.tar"); !bytes.Equal(got, newer) {
						t.Error("the newer upload is gone")
					}
					must.Do(t, a.Receiving.Delete(t.Context(), "sample.tar"))
				}
				a.Intact(id)
				a.asItWas(id, truth(t, a.Sample()))
			})
		}
	}
}

// An upload may be replaced while a stage reads it, too: nothing is taken from the new one.
func TestUploadThatIsReplacedUnderAStage(t *testing.T) {
	t.Parallel()
	for _, stage := range []registry.Stage{"Format Identification", "Store"} {
		for _, keeps := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, versions %t", stage, keeps), func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				a.S3.SetVersioning(t, a.Receiving.Name(), keeps)
				id := a.Deposit("sample.tar", a.Sample())
				w := a.Wired()
				engine := a.Engine()
				a.UpTo(engine, stage)
				newer := a.Bag(bagtest.Spec{Name: "sample", Title: "Newer"})
				replaced := false
				w.Answers = func(r *http.Response) {
					if !replaced && r.Request.Method == http.MethodHead && strings.HasSuffix(r.Request.URL.Path, "/sample.tar") {
						replaced = true
						a.PutRaw("sample.tar", newer)
					}
				}
				a.One(engine, stage)
				if item := a.Item(id); !replaced || (item.Stage == stage) == keeps || !keeps && item.ErrorCode != "bag-changed" {
					t.Errorf("replaced %t: item = %+v", replaced, item)
				}
				a.Exec(`UPDATE work_items SET run_at = now()`)
				a.Work()
				if item := a.Item(id); !keeps && (item.Status != "Cancelled" || item.ErrorCode != "bag-changed") {
					t.Errorf("item = %+v", item)
				}
				if got := a.Content(a.Receiving, "sample.tar"); !bytes.Equal(got, newer) {
					t.Error("the newer upload is gone")
				}
				if keeps {
					must.Do(t, a.Receiving.Delete(t.Context(), "sample.tar"))
					a.Intact(id)
					a.asItWas(id, truth(t, a.Sample()))
				}
			})
		}
	}
}

// What an earlier version of Farol has copied of the tar to the staging bucket counts where the
// upload is gone: its depositor was told that he may remove it.
func TestItemThatAnEarlierVersionHasStagedGoesOn(t *testing.T) {
	t.Parallel()
	tar := func(a *archive) []byte { return a.Sample() }
	for name, tc := range map[string]struct {
		pieces func(size int64) [][2]int64
		damage bool
	}{
		"whole":     {func(size int64) [][2]int64 { return [][2]int64{{0, size}} }, false},
		"in pieces": {func(size int64) [][2]int64 { return [][2]int64{{0, size / 2 &^ 511}, {100 << 10, size - 100<<10}} }, false},
		"damaged":   {func(size int64) [][2]int64 { return [][2]int64{{0, size}} }, true},
	} {
		for _, before := range []registry.Stage{"Copy To Staging", "Format Identification", "Store"} {
			t.Run(name+" before "+string(before), func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.Deposit("sample.tar", tar(a))
				a.UpTo(a.Engine(), before)
				a.InStaging() // where that version has written all lists
				a.Exec(`DELETE FROM work_item_lists`)
				content := tar(a)
				if tc.damage {
					content[placeOf(t, content, "data/streamed.bin")+7] ^= 1
				}
				for _, p := range tc.pieces(int64(len(content))) {
					a.Overwrite(a.Deps.Staging, fmt.Sprintf("%d/tar-%d-%d", id, p[0], p[1]), content[p[0]:p[0]+p[1]])
				}
				must.Do(t, a.Receiving.Delete(t.Context(), "sample.tar"))
				a.Work()
				if item := a.Item(id); tc.damage {
					if item.Status != "Suspended" || item.ErrorCode != "bag-gone" {
						t.Errorf("item = %+v", item)
					}
					return
				}
				a.Intact(id)
				a.asItWas(id, truth(t, tar(a)))
			})
		}
	}
}

// placeOf is where a file's content begins in a tar.
func placeOf(t *testing.T, tar []byte, path string) int64 {
	t.Helper()
	files := truth(t, tar).Files
	return files[slices.IndexFunc(files, func(f *bag.File) bool { return f.Path == path })].Offset
}

// If the tar does not have the bytes that Receive has read, whatever the ETag says of it, the bag
// is read again.
func TestTarThatReadsDifferentlyIsReadAgain(t *testing.T) {
	t.Parallel()
	for path, noticed := range map[string]registry.Stage{"data/c.bin": "Format Identification", "data/streamed.bin": "Store"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.Deposit("sample.tar", a.Sample())
			engine := a.Engine()
			a.UpTo(engine, "Reingest Check")
			a.changeInventory(id, func(b *bag.Bag) {
				at := slices.IndexFunc(b.Files, func(f *bag.File) bool { return f.Path == path })
				b.Files[at].Digests.SHA256[0] ^= 1
			})
			for _, stage := range []registry.Stage{"Reingest Check", "Copy To Staging", "Format Identification", "Store"} {
				if a.One(engine, stage); stage == noticed {
					break
				}
			}
			if item := a.Item(id); item.Status != "Pending" || item.Stage != "Receive" || !strings.Contains(item.Note, path) {
				t.Errorf("item = %+v", item)
			}
			a.Work()
			a.Intact(id)
		})
	}
}

// Answers about the tar that are none to what was asked, and copies by the server of
// which it says other things than are known, come to nothing: the item waits, or the worker
// brings the bytes.
func TestWrongAnswersAboutTheTarAreNotBelieved(t *testing.T) {
	t.Parallel()
	sum := regexp.MustCompile(`<ChecksumSHA256>[^<]*`)
	for name, answer := range map[string]func(*http.Response){
		"the whole for a range": func(r *http.Response) {
			if r.Request.Method == http.MethodGet {
				r.StatusCode, r.Status = http.StatusOK, "200 OK"
				r.Header.Del("Content-Range")
			}
		},
		"another range": func(r *http.Response) {
			if r.Request.Method == http.MethodGet {
				r.Header.Set("Content-Range", fmt.Sprintf("bytes 1-%d/9999999", r.ContentLength))
			}
		},
		"a shorter range": func(r *http.Response) {
			if r.Request.Method == http.MethodGet {
				r.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength-1))
				r.ContentLength--
				r.Header.Set("Content-Length", fmt.Sprint(r.ContentLength))
			}
		},
		"another checksum of what was copied": func(r *http.Response) {
			if r.Request.Header.Get("X-Amz-Copy-Source") == "" {
				return
			}
			text, _ := io.ReadAll(r.Body)
			other := sum.ReplaceAll(text, []byte("<ChecksumSHA256>47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(other)), int64(len(other))
			r.Header.Set("Content-Length", fmt.Sprint(len(other)))
		},
	} {
		for _, stage := range []registry.Stage{"Format Identification", "Store"} {
			t.Run(name+" at "+string(stage), func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.Deposit("sample.tar", a.Sample())
				w := a.Wired()
				engine := a.Engine()
				a.UpTo(engine, stage)
				w.Answers = func(r *http.Response) {
					if strings.HasSuffix(r.Request.URL.Path, "/sample.tar") || r.Request.Header.Get("X-Amz-Copy-Source") != "" {
						answer(r)
					}
				}
				a.One(engine, stage)
				if item := a.Item(id); item.Status != "Pending" || item.Attempt != 0 || item.Stage == stage && item.ErrorCode != "storage-wrong-answer" {
					t.Errorf("item = %+v", item)
				}
				w.Answers = nil
				a.Exec(`UPDATE work_items SET run_at = now()`)
				a.Work()
				a.Intact(id)
				a.asItWas(id, truth(t, a.Sample()))
				if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome NOT IN ('done', 'held')`); n != 0 {
					t.Errorf("%d attempts were lost", n)
				}
			})
		}
	}
}

// A worker may die after any request of the stages that copy, and Redis lose what it noted:
// the next attempt makes the same copies, and leaves no upload open.
func TestStagesMayDieAfterAnyRequest(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.Files = 1 // one request at a time, so that none is under way when the worker dies
	client := testenv.Redis(t)
	a.Deps.Progress = progress.New(client, "dying")
	tar := a.Bag(bagtest.Spec{Name: "dying", Files: []bagtest.File{
		{Path: "data/a", Size: 1000}, {Path: "data/b", Size: 300_000}, {Path: "data/c", Size: 5 << 20}, {Path: "data/d", Size: 10},
	}})
	id := a.Deposit("dying.tar", tar)
	w := a.Wired()
	engine := a.Engine()
	a.UpTo(engine, "Copy To Staging")
	for _, stage := range []registry.Stage{"Copy To Staging", "Format Identification", "Store"} {
		held := a.Hold(engine, stage)
		for last := int64(1); ; last++ {
			ctx, die := context.WithCancel(t.Context())
			n := int64(0)
			w.Mu.Lock()
			w.Answers = func(*http.Response) {
				if n++; n == last {
					die()
				}
			}
			w.Mu.Unlock()
			again := &pipeline.Work{Item: held.Item, Hold: held.Hold, Log: held.Log, Progress: held.Progress}
			again.Item.Token += last
			err := a.Stage(stage).Run(ctx, again)
			die()
			w.Mu.Lock()
			lived := err == nil && n < last
			w.Answers = nil
			w.Mu.Unlock()
			if lived {
				break
			}
			must.Do(t, client.FlushDB(t.Context()).Err())
		}
		must.Do(t, held.Hold.Settle(t.Context(), claim.Done{}, claim.Release("the test goes on")))
		a.Exec(`UPDATE work_items SET claim_token = claim_token + 1000`)
		a.One(engine, stage)
	}
	for _, b := range []*storage.Bucket{a.Deps.Staging, a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]} {
		if open := a.Uploads(b); len(open) > 0 {
			t.Errorf("uploads that nobody will end: %v", open)
		}
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	a.asItWas(id, truth(t, tar))
}
