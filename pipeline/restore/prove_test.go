package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/exports"
	"github.com/farol-preservation/farol/storage"
)

// A moment of a restoration, by the request that ends it.
var moments = map[string]func(r *http.Request) bool{
	"staged": func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/"+stagedRestore) && (r.Method == http.MethodPost && r.URL.Query().Has("uploadId") || r.Method == http.MethodPut && !r.URL.Query().Has("uploadId"))
	},
	"delivered": func(r *http.Request) bool {
		return r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != ""
	},
	"piece": func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/Export/")
	},
}

// decaying has the store damage what it was given at a moment, as often as allowed: the
// bytes change on its disk, and all that it says of them stays.
func (a *archive) decaying(moment func(*http.Request) bool, most int64, harm func([]byte) []byte) (damaged *atomic.Int64) {
	a.T.Helper()
	damaged = &atomic.Int64{}
	to := a.S3.Proxy(a.T)
	to.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusOK && moment(r.Request) && damaged.Add(1) <= most {
			bucket, key, _ := strings.Cut(strings.TrimPrefix(r.Request.URL.Path, "/"), "/")
			a.S3.Decay(a.T, bucket, key, harm)
		}
		return nil
	}
	a.through(to)
	return damaged
}

func flipped(content []byte) []byte {
	content[len(content)/2] ^= 1
	return content
}

// through has all of a worker's requests go by way of a proxy.
func (a *archive) through(to *httputil.ReverseProxy) {
	gate := httptest.NewServer(to)
	a.T.Cleanup(gate.Close)
	a.Deps = a.With(func(t *storage.Target) { t.Endpoint, t.CAFile, t.Checksum = gate.URL, "", storage.ChecksumETag })
}

// A store that changes a byte of what is being delivered, in staging or under its name,
// delivers the right bytes in the end, and that costs no attempt.
func TestWhatIsDeliveredIsWhatWasBuilt(t *testing.T) {
	t.Parallel()
	for moment, is := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Ingested(pipelinetest.ABag("told"))
			direct := a.Deps
			harms := []func([]byte) []byte{flipped, flipped, func(b []byte) []byte { return b[:len(b)-1] }, func(b []byte) []byte { return append(b, 'x') }}
			for i, identifier := range []string{"test.edu/told", "test.edu/told/data/a.txt", "test.edu/told/data/larger.bin", "test.edu/told/data/empty"} {
				damaged := a.decaying(is, 1, harms[i])
				item := a.Restored(identifier)
				a.Deps = direct
				if moment == "piece" {
					continue // of an export only
				}
				if item.Status != "Success" || damaged.Load() != 2 {
					t.Errorf("%s: %s after %d times: %s", identifier, item.Status, damaged.Load(), item.Note)
				}
				a.sound(identifier)
			}
			export, item := a.queued(exports.Inventory, 20_000)
			damaged := a.decaying(is, 1, flipped)
			a.Work()
			a.Deps = direct
			a.isWhole(export, item, exports.Inventory)
			if damaged.Load() < 2 {
				t.Errorf("damaged %d times", damaged.Load())
			}
			spent := pipelinetest.Value[string](a, `SELECT coalesce(string_agg(outcome || ' ' || error_code, ', '), '') FROM work_item_attempts WHERE outcome <> 'done'`)
			if want := map[string]string{"piece": "transient restore-damaged"}[moment]; spent != want {
				t.Errorf("attempts: %s; want %s", spent, want)
			}
		})
	}
}

// sound fails the test unless what was restored is what is on record.
func (a *archive) sound(identifier string) {
	a.T.Helper()
	if strings.Count(identifier, "/") > 1 {
		sum := pipelinetest.Value[string](a, `SELECT digest FROM checksums c JOIN generic_files f ON f.id = c.generic_file_id WHERE algorithm = 'sha256' AND f.identifier = $1`, identifier)
		if got := fmt.Sprintf("%x", sha256.Sum256(a.Content(a.RestoreBucket(), identifier))); got != sum {
			a.T.Errorf("%s has SHA-256 %s, want %s", identifier, got, sum)
		}
		return
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.Content(a.RestoreBucket(), identifier+".tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		a.T.Fatalf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
	a.SameAsOnRecord(b, identifier)
}

// A store that damages all that it is given delivers nothing, and a person is told.
func TestStoreThatAlwaysDamagesDeliversNothing(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"staged", "delivered"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Ingested(pipelinetest.ABag("rot"))
			direct := a.Deps
			damaged := a.decaying(moments[moment], 1<<30, flipped)
			item := a.Restored("test.edu/rot")
			if item.Status != "Suspended" || item.ErrorCode != "restore-damaged" || !item.NeedsAdminReview || damaged.Load() != mostSpoilt+1 {
				t.Errorf("%s (%s) after %d times: %s", item.Status, item.ErrorCode, damaged.Load(), item.Note)
			}
			if keys := a.Keys(a.RestoreBucket()); len(keys) != 0 {
				t.Errorf("given back: %v", keys)
			}
			a.Deps = direct
			a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, item.ID)) // the store was repaired
			a.Work()
			if item := a.Item(item.ID); item.Status != "Success" {
				t.Errorf("then: %s: %s", item.Status, item.Note)
			}
			a.sound("test.edu/rot")
		})
	}
}

// A byte that changes on the way from the store costs a second read, and nothing is built
// or copied once more.
func TestByteFlippedOnItsWayIsReadAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("way"))
	var built, reads, copied atomic.Int64
	to := a.S3.Proxy(t)
	to.ModifyResponse = func(r *http.Response) error {
		switch {
		case moments["staged"](r.Request):
			built.Add(1)
		case moments["delivered"](r.Request):
			copied.Add(1)
		case r.Request.Method == http.MethodGet && r.ContentLength > 3<<20 && !strings.Contains(r.Request.URL.Path, "preservation") && reads.Add(1)%2 == 1:
			return flip(r)
		}
		return nil
	}
	a.through(to)
	if item := a.Restored("test.edu/way"); item.Status != "Success" {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	if built.Load() != 1 || copied.Load() != 1 || reads.Load() != 4 {
		t.Errorf("built %d times, copied %d times, read back %d times", built.Load(), copied.Load(), reads.Load())
	}
	a.sound("test.edu/way")
}

// The depositor may take or replace what has its name before it was read back: then it was
// not delivered as checked, and is delivered once more.
func TestWhatIsTakenBeforeItIsCheckedIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("taken"))
	var times atomic.Int64
	to := a.S3.Proxy(t)
	to.ModifyResponse = func(r *http.Response) error {
		if !moments["delivered"](r.Request) {
			return nil
		}
		switch times.Add(1) {
		case 1:
			return a.RestoreBucket().Delete(context.Background(), "test.edu/taken.tar")
		case 2:
			a.Overwrite(a.RestoreBucket(), "test.edu/taken.tar", []byte("another"))
		}
		return nil
	}
	a.through(to)
	if item := a.Restored("test.edu/taken"); item.Status != "Success" || times.Load() != 3 {
		t.Errorf("%s after %d times: %s", item.Status, times.Load(), item.Note)
	}
	a.sound("test.edu/taken")
}

// An attempt goes on where another stopped, wherever that was, and delivers the same.
func TestProofGoesOnAfterAnyDeath(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "deaths", Files: []bagtest.File{{Path: "data/b.bin", Size: 18 << 20}}})
	direct := a.Deps
	for name, dies := range map[string]func(*http.Request) bool{
		"before a part":          func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" },
		"before it is an object": moments["staged"],
		"while staging is read": func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+stagedRestore)
		},
		"before it has its name": moments["delivered"],
		"while the end is read": func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deaths.tar")
		},
		"before staging is cleared": func(r *http.Request) bool { return r.Method == http.MethodDelete },
	} {
		var died atomic.Bool
		to := a.S3.Proxy(t)
		gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if dies(r) && !died.Swap(true) {
				if _, err := a.DB.Exec(context.WithoutCancel(r.Context()), `SELECT release(id) FROM work_items WHERE status = 'Started'`); err != nil {
					t.Error(err)
				}
				panic(http.ErrAbortHandler)
			}
			to.ServeHTTP(w, r)
		}))
		a.Deps = a.With(func(t *storage.Target) { t.Endpoint, t.CAFile, t.Checksum = gate.URL, "", storage.ChecksumETag })
		item := a.Restored("test.edu/deaths")
		a.Deps = direct
		gate.Close()
		if item.Status != "Success" || !died.Load() {
			t.Fatalf("killed %s (%v): %s: %s", name, died.Load(), item.Status, item.Note)
		}
		a.sound("test.edu/deaths")
	}
}

// The digest of a whole is the same wherever it was taken up, and is unknown where no state
// was kept.
func TestWholeGoesOnAtAnyBoundary(t *testing.T) {
	t.Parallel()
	const part = 8
	content := []byte("all that was built, in parts of eight")
	want := sha256.Sum256(content)
	first := whole{part: part, size: int64(len(content))}
	first.begin(0)
	if err := first.write(content[:20]); err != nil { // a part that breaks off is sent again
		t.Fatal(err)
	}
	at := restorePoint{Offset: 16, Sum: first.states[16], State: fileState{Begin: 8, Before: first.states[8]}}
	for _, from := range []int64{16, 8, 0} { // a file that began in the second part may be read again
		second := whole{part: part}
		second.goOn(at, int64(len(content)))
		if second.begin(24) || second.digest() != nil {
			t.Error("a state is known that nobody kept")
		}
		if !second.begin(from) {
			t.Fatalf("no state at %d", from)
		}
		for i := from; i < int64(len(content)); i += 3 {
			must.Do(t, second.write(content[i:min(i+3, int64(len(content)))]))
		}
		if !bytes.Equal(second.digest(), want[:]) {
			t.Errorf("from %d: %x, want %x", from, second.digest(), want)
		}
	}
	empty := whole{part: part}
	if none := sha256.Sum256(nil); !bytes.Equal(empty.digest(), none[:]) {
		t.Errorf("of nothing: %x", empty.digest())
	}
}

// flip changes the first byte of an answer.
func flip(r *http.Response) error {
	first := make([]byte, 1)
	if _, err := io.ReadFull(r.Body, first); err != nil {
		return err
	}
	first[0] ^= 1
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first), r.Body), r.Body}
	return nil
}
