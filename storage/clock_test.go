package storage_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage"
)

// skewedServer is a server whose clock is ahead of ours by some seconds: it refuses what
// is signed more than 15 minutes off its time, as S3 does, and answers for itself.
func skewedServer(t *testing.T, at storage.Target, ahead, header *atomic.Int64) *gate {
	t.Helper()
	return newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		now := time.Now()
		w.Header().Set("Date", now.Add(time.Duration(header.Load())*time.Second).UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		off := now.Add(time.Duration(ahead.Load()) * time.Second).Sub(signed)
		switch {
		case err != nil || off.Abs() > 15*time.Minute:
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusForbidden) // without a word
				return true
			}
			answer(w, http.StatusForbidden, "RequestTimeTooSkewed")
		case r.Method == http.MethodPut:
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Etag", `"x"`)
		default:
			w.Header().Set("Etag", `"x"`)
			w.Header().Set("Content-Length", "0")
		}
		return true
	})
}

// A clock that is an hour off costs one repeated request, and not one with each: the
// buckets of an endpoint share what was learnt. When it is set right, that is noticed.
func TestASkewCostsOneRequest(t *testing.T) {
	t.Parallel()
	for _, hour := range []int64{3600, -3600} {
		at := target(t, "skew")
		at.Checksum = storage.ChecksumSHA256 // or the first PUT would ask whether it is kept
		var ahead, header atomic.Int64
		ahead.Store(hour)
		header.Store(hour)
		g := skewedServer(t, at, &ahead, &header)
		client := storage.NewClient(storage.Options{})
		t.Cleanup(client.Close)
		var buckets []*storage.Bucket
		for _, name := range []string{"a", "b"} {
			at := g.through(at)
			at.Bucket = name
			b, err := client.Bucket(at)
			if err != nil {
				t.Fatal(err)
			}
			buckets = append(buckets, b)
		}
		if _, ok := buckets[0].Skew(); ok {
			t.Error("the skew is known before anything was asked")
		}
		all := func(*http.Request) bool { return true }
		content := noise(1 << 20) // which is not sent twice by itself
		for i := range 10 {
			b := buckets[i%2]
			if _, err := b.Head(t.Context(), "key"); err != nil {
				t.Fatal("Head:", err)
			}
			if _, err := b.Put(t.Context(), "key", onlyReader{bytes.NewReader(content)}, alone(content)); err != nil {
				t.Fatal("Put:", err)
			}
		}
		if n := g.count(all); n != 21 {
			t.Errorf("%d requests for 20, want one more", n)
		}
		for _, b := range buckets {
			if skew, ok := b.Skew(); !ok || (skew-time.Duration(hour)*time.Second).Abs() > 3*time.Second {
				t.Errorf("Skew = %v, %v; want %ds", skew, ok, hour)
			}
		}
		ahead.Store(0) // the clock is set
		header.Store(0)
		for range 5 {
			if _, err := buckets[0].Head(t.Context(), "key"); err != nil {
				t.Fatal("Head after the clock was set:", err)
			}
		}
		if n := g.count(all); n != 27 {
			t.Errorf("%d requests after 5 more, want 27", n)
		}
	}
}

// What a server says of its clock is not believed where that leads nowhere: a skew of a
// year, a header that is wrong, and none at all. It is a skew and no denial.
func TestNonsenseAboutTheTimeIsNotFollowed(t *testing.T) {
	t.Parallel()
	year := int64(365 * 24 * 3600)
	for name, tt := range map[string]struct{ ahead, header int64 }{
		"a year":               {year, year},
		"the header is wrong":  {7200, -7200},
		"the header has ours":  {7200, 0},
		"it is far behind too": {-year, -year},
	} {
		at := target(t, "skew")
		at.Checksum = storage.ChecksumSHA256 // or the first PUT would ask whether it is kept
		var ahead, header atomic.Int64
		ahead.Store(tt.ahead)
		header.Store(tt.header)
		b := open(t, skewedServer(t, at, &ahead, &header).through(at), storage.Options{})
		for range 3 {
			_, err := b.Get(t.Context(), "key", storage.Range{Length: -1})
			f := fault.In(err)
			if f == nil || f.Kind != fault.Skewed || !strings.Contains(f.Said, "RequestTimeTooSkewed") || errors.Is(err, storage.ErrDenied) {
				t.Errorf("%s: Get = %v (%+v)", name, err, f)
			}
		}
		ahead.Store(0) // the server's clock is set, or its header was wrong all along
		var err error
		for range 2 {
			_, err = b.Get(t.Context(), "key", storage.Range{Length: -1})
		}
		if err != nil {
			t.Errorf("%s: Get once the clocks agree = %v", name, err)
		}
	}
}

// A date that is wrong does no harm while nothing is refused.
func TestAWrongDateAloneChangesNothing(t *testing.T) {
	t.Parallel()
	at := target(t, "skew")
	var ahead, header atomic.Int64
	header.Store(7200)
	g := skewedServer(t, at, &ahead, &header)
	b := open(t, g.through(at), storage.Options{})
	for range 5 {
		if _, err := b.Head(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.count(func(*http.Request) bool { return true }); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}
