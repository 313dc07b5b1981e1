package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// A server under load says so, and means "later".
func TestABusyServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	put(t, create(t, at), "key", noise(10))
	var busy atomic.Int32
	g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
		if busy.Add(-1) < 0 {
			return false
		}
		answer(w, http.StatusServiceUnavailable, "SlowDown")
		return true
	})
	b := open(t, g.through(at), storage.Options{})

	busy.Store(2)
	if got := get(t, b, "key"); len(got) != 10 {
		t.Errorf("Get returns %d bytes", len(got))
	}
	busy.Store(2)
	put(t, b, "small", noise(10))
	busy.Store(3)
	if _, err := b.Head(t.Context(), "key"); err == nil || isFinal(err) {
		t.Errorf("Head = %v, want a transient error", err)
	}
	busy.Store(1)
	content := noise(1 << 20) // and the store answers once some of it has left
	if _, err := b.Put(t.Context(), "large", onlyReader{bytes.NewReader(content)}, describe(content)); err == nil || isFinal(err) {
		t.Errorf("Put of a stream = %v, want a transient error", err)
	}
	busy.Store(1)
	src := storage.Source{Bucket: open(t, at, storage.Options{}), Key: "key"}
	if _, err := b.Copy(t.Context(), src, "copy", describe(noise(10)), storage.Parts{}); err != nil {
		t.Errorf("Copy of a stream, which can be opened again = %v", err)
	}
}

// A cache or a proxy that does not know ranges would hand out the wrong bytes.
func TestAServerThatIgnoresRangesIsNotBelieved(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	put(t, create(t, at), "key", noise(100))
	g := newGate(t, at, nil)
	g.forward.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusPartialContent {
			r.StatusCode = http.StatusOK
			r.Header.Del("Content-Range")
		}
		return nil
	}
	b := open(t, g.through(at), storage.Options{})
	r, err := b.Get(t.Context(), "key", storage.Range{Offset: 10, Length: 10})
	if err == nil || isFinal(err) {
		t.Errorf("Get = %v, %v; want a transient error", r, err)
	}
}

// What a server has stored wrongly must not be found there later.
func TestAnObjectWithAnotherDigestIsDeleted(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	direct := create(t, at)
	g := newGate(t, at, nil)
	g.forward.ModifyResponse = func(r *http.Response) error {
		if r.Header.Get("X-Amz-Checksum-Sha256") != "" {
			r.Header.Set("X-Amz-Checksum-Sha256", storage.ExpectedChecksum([32]byte{1}, nil))
		}
		return nil
	}
	b := open(t, g.through(at), storage.Options{})
	for _, size := range []int{10, 1 << 20} {
		content := noise(size)
		if _, err := b.Put(t.Context(), "key", bytes.NewReader(content), describe(content)); !errors.Is(err, storage.ErrDigest) {
			t.Errorf("Put = %v, want ErrDigest", err)
		}
		if _, err := direct.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Head = %v, want ErrNotFound", err)
		}
	}
}

func TestDeleteCopesWithServersThatTakeNoBatch(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	direct := create(t, at)
	isBatch := func(r *http.Request) bool { return r.URL.Query().Has("delete") }
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if isBatch(r) {
			answer(w, http.StatusNotImplemented, "NotImplemented")
		}
		return isBatch(r)
	})
	for _, key := range []string{"a", "b", "c"} {
		put(t, direct, key, noise(10))
	}
	b := open(t, g.through(at), storage.Options{})
	must.Do(t, b.Delete(t.Context(), "a", "b", "c", "never there"))
	if left := list(t, direct, "", ""); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// Each key of a batch has its own answer, in an answer that is a success.
func TestDeleteReportsKeysThatCouldNotBeDeleted(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	create(t, at)
	for _, tt := range []struct {
		code  string
		fails bool
		want  error
	}{
		{"NoSuchKey", false, nil},
		{"AccessDenied", true, storage.ErrDenied},
		{"InternalError", true, nil},
	} {
		g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprintf(w, "<DeleteResult><Error><Key>b</Key><Code>%s</Code></Error></DeleteResult>", tt.code)
			return true
		})
		err := open(t, g.through(at), storage.Options{}).Delete(t.Context(), "a", "b")
		switch {
		case (err != nil) != tt.fails, tt.want != nil && !errors.Is(err, tt.want), tt.want == nil && isFinal(err):
			t.Errorf("%s: Delete = %v, want %v", tt.code, err, tt.want)
		case err != nil && !strings.Contains(err.Error(), "/b: "):
			t.Errorf("%s: Delete = %v, which does not name the key", tt.code, err)
		}
	}
}

// A server may encode keys only if it says so, and then they are decoded.
func TestListDecodesKeysThatAreEncoded(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	create(t, at)
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>
			<Contents><Key>12/a%0A%2B+b</Key><Size>1</Size></Contents></ListBucketResult>`)
		return true
	})
	if diff := cmp.Diff([]string{"12/a\n+ b"}, list(t, open(t, g.through(at), storage.Options{}), "", "")); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

// The pages of a listing that cannot go on are not the whole listing.
func TestListThatBreaksOffIsAnError(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	create(t, at)
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, `<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>`)
		return true
	})
	for _, err := range open(t, g.through(at), storage.Options{}).List(t.Context(), "", "") {
		if err == nil {
			t.Error("List yields an object")
		}
		return
	}
	t.Error("List ends as if it were complete")
}

// A connection that a server closes while it is idle is no reason to fail.
func TestAClosedIdleConnectionCostsNothing(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	create(t, at)
	proxy, at := proxied(t, at)
	b := open(t, at, storage.Options{})
	for range 5 {
		put(t, b, "key", noise(1000))
		proxy.Cut()
		proxy.Resume()
	}
}

// A body that breaks in the middle of a connection is transient, and the next
// try is the first for the server.
func TestPutOverABrokenConnectionCanBeRepeated(t *testing.T) {
	t.Parallel()
	at := target(t, "faults")
	direct := create(t, at)
	proxy, at := proxied(t, at)
	b := open(t, at, storage.Options{})
	content := noise(8 << 20)
	must.Do(t, b.Check(t.Context()))
	proxy.CutAfter(1 << 20)
	if _, err := b.Put(t.Context(), "key", onlyReader{bytes.NewReader(content)}, describe(content)); err == nil || isFinal(err) || errors.Is(err, io.EOF) {
		t.Errorf("Put = %v, want a transient error", err)
	}
	if _, err := direct.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Head = %v, want ErrNotFound", err)
	}
	proxy.Resume()
	put(t, b, "key", content)
}
