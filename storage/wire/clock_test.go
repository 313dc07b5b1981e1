package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage/wire"
)

// conn is the way to a bucket of an endpoint.
func conn(t *testing.T, pool *wire.Pool, endpoint, bucket string) *wire.Conn {
	t.Helper()
	at := wire.Target{Bucket: bucket, Endpoint: endpoint, AccessKeyID: "id", SecretAccessKey: "x", PathStyle: true}
	return must.Get(pool.Conn(at, func(context.Context, time.Time, http.Header, error) {}, func() {}))(t)
}

func newPool(t *testing.T) *wire.Pool {
	t.Helper()
	pool := wire.NewPool(4, time.Minute, time.Minute, time.Minute, func(wire.Spell) {})
	t.Cleanup(pool.Close)
	return pool
}

// ask sends a request without a body, and drops what it is answered.
func ask(ctx context.Context, c *wire.Conn, operation, method string) error {
	reply, err := c.Send(ctx, wire.NewRequest(operation, method, "key"))
	if err != nil {
		return c.Explain(ctx, err)
	}
	return reply.Body.Close()
}

// stream sends content that is not sent twice by itself.
func stream(ctx context.Context, c *wire.Conn, content []byte) error {
	r := wire.NewRequest("PutObject", http.MethodPut, "key")
	body := wire.NewBody(io.MultiReader(bytes.NewReader(content)), int64(len(content)), sha256.Sum256(content), false)
	err := c.Carry(r, body)
	if err == nil {
		_, err = c.Send(ctx, r)
	}
	return err
}

// skewedServer is a server whose clock is ahead of ours by some seconds: it refuses what
// is signed more than 15 minutes off its time, as S3 does. It counts what it is asked.
func skewedServer(t *testing.T, ahead, header, asked *atomic.Int64) (url string) {
	t.Helper()
	return testenv.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		now := time.Now()
		w.Header().Set("Date", now.Add(time.Duration(header.Load())*time.Second).UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		off := now.Add(time.Duration(ahead.Load()) * time.Second).Sub(signed)
		switch {
		case err != nil || off.Abs() > 15*time.Minute:
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusForbidden) // without a word
				return
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>RequestTimeTooSkewed</Code><Message>as the test wants</Message></Error>")
		case r.Method == http.MethodPut:
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Etag", `"x"`)
		default:
			w.Header().Set("Etag", `"x"`)
			w.Header().Set("Content-Length", "0")
		}
	}))
}

// A clock that is an hour off costs one repeated request, and not one with each: the
// buckets of an endpoint share what was learnt. When it is set right, that is noticed.
func TestASkewCostsOneRequest(t *testing.T) {
	t.Parallel()
	for _, hour := range []int64{3600, -3600} {
		var ahead, header, asked atomic.Int64
		ahead.Store(hour)
		header.Store(hour)
		pool, server := newPool(t), skewedServer(t, &ahead, &header, &asked)
		buckets := []*wire.Conn{conn(t, pool, server, "a"), conn(t, pool, server, "b")}
		if _, ok := buckets[0].Skew(); ok {
			t.Error("the skew is known before anything was asked")
		}
		content := make([]byte, 1<<20)
		for i := range 10 {
			b := buckets[i%2]
			if err := ask(t.Context(), b, "HeadObject", http.MethodHead); err != nil {
				t.Fatal("HEAD:", err)
			}
			if err := stream(t.Context(), b, content); err != nil {
				t.Fatal("PUT:", err)
			}
		}
		if n := asked.Load(); n != 21 {
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
			if err := ask(t.Context(), buckets[0], "HeadObject", http.MethodHead); err != nil {
				t.Fatal("HEAD after the clock was set:", err)
			}
		}
		if n := asked.Load(); n != 27 {
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
		var ahead, header, asked atomic.Int64
		ahead.Store(tt.ahead)
		header.Store(tt.header)
		c := conn(t, newPool(t), skewedServer(t, &ahead, &header, &asked), "skew")
		for range 3 {
			err := ask(t.Context(), c, "GetObject", http.MethodGet)
			f := fault.In(err)
			if f == nil || f.Kind != fault.Skewed || !strings.Contains(f.Said, "RequestTimeTooSkewed") || errors.Is(err, wire.ErrDenied) {
				t.Errorf("%s: GET = %v (%+v)", name, err, f)
			}
		}
		ahead.Store(0) // the server's clock is set, or its header was wrong all along
		var err error
		for range 2 {
			err = ask(t.Context(), c, "GetObject", http.MethodGet)
		}
		if err != nil {
			t.Errorf("%s: GET once the clocks agree = %v", name, err)
		}
	}
}

// A date that is wrong does no harm while nothing is refused.
func TestAWrongDateAloneChangesNothing(t *testing.T) {
	t.Parallel()
	var ahead, header, asked atomic.Int64
	header.Store(7200)
	c := conn(t, newPool(t), skewedServer(t, &ahead, &header, &asked), "skew")
	for range 5 {
		must.Do(t, ask(t.Context(), c, "HeadObject", http.MethodHead))
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}
