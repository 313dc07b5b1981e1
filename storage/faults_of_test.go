package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage"
)

// operations are those whose failures have to be distinguished, each of its own.
func operations(b *storage.Bucket) map[string]func(ctx context.Context) error {
	content := noise(100)
	large := noise(1 << 20)
	first := func(ctx context.Context) error {
		for _, err := range b.List(ctx, "", "") {
			return err
		}
		return nil
	}
	return map[string]func(ctx context.Context) error{
		"Check": b.Check,
		"Probe": b.Probe,
		"Head":  func(ctx context.Context) error { _, err := b.Head(ctx, "key"); return err },
		"Get": func(ctx context.Context) error {
			r, err := b.Get(ctx, "key", storage.Range{Length: -1})
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // only read
			_, err = io.Copy(io.Discard, r)
			return err
		},
		"List": first,
		"Put": func(ctx context.Context) error {
			_, err := b.Put(ctx, "new", onlyReader{bytes.NewReader(content)}, describe(content))
			return err
		},
		"Put, streamed": func(ctx context.Context) error {
			_, err := b.Put(ctx, "new", onlyReader{bytes.NewReader(large)}, describe(large))
			return err
		},
		"Delete":            func(ctx context.Context) error { return b.Delete(ctx, "a") },
		"Delete of several": func(ctx context.Context) error { return b.Delete(ctx, "a", "b") },
		"Absent":            func(ctx context.Context) error { return b.Absent(ctx, "nothing") },
	}
}

// blames checks the fault of an error.
func blames(t *testing.T, what string, err error, b *storage.Bucket, kind fault.Kind, said string) {
	t.Helper()
	f := fault.In(err)
	if f == nil || f.Service != b.Service() || f.Kind != kind || !strings.HasPrefix(f.Said, said) || len(f.Said) > 100 {
		t.Errorf("%s = %v: fault %+v, want %s of %s, %q", what, err, f, kind, b.Service(), said)
		return
	}
	denied := kind == fault.Denied || kind == fault.Missing
	certificate := strings.Contains(f.Said, "certificate") // is repaired by people, too, but is no answer
	if errors.Is(err, storage.ErrDenied) != denied && !certificate {
		t.Errorf("%s = %v, which is ErrDenied: %t", what, err, !denied)
	}
	if errors.Is(err, storage.ErrNotFound) {
		t.Errorf("%s = %v, as if the key were not there", what, err)
	}
}

// What the real server refuses, and all that may happen on the way to it, is the
// bucket's failure whatever is asked of it, and of the right kind.
func TestWhoseFailureItIs(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	put(t, create(t, at), "key", noise(100))
	missing, stranger, forger, unknownCA, unresolved, refused, http1 := at, at, at, at, at, at, at
	missing.Bucket += "-missing"
	stranger.AccessKeyID = "nobody"
	forger.SecretAccessKey = "guessed"
	unknownCA.CAFile = ""
	unresolved.Endpoint = "https://s3.invalid"
	refused.Endpoint = "https://127.0.0.1:1" // no port that was free a moment ago: another test may have it now
	plain := newGate(t, at, nil)
	http1.Endpoint = strings.Replace(plain.URL, "http://", "https://", 1)
	says := func(status int, code string) storage.Target {
		return newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
			answer(w, status, code)
			return true
		}).through(at)
	}
	resets, through := proxied(t, at)
	resets.Cut()
	silent, stalls := proxied(t, at)
	silent.Delay(time.Hour)
	// What the SDK tries again takes its time: two operations have to do there.
	patient := func(op string) bool { return op == "Get" || op == "Probe" }
	for name, tt := range map[string]struct {
		at   storage.Target
		kind fault.Kind
		said string
	}{
		"deleted bucket":    {missing, fault.Missing, "404"},
		"unknown key":       {stranger, fault.Denied, ""},
		"wrong secret":      {forger, fault.Denied, "403"},
		"unknown CA":        {unknownCA, fault.Denied, "its certificate"},
		"no such name":      {unresolved, fault.Unavailable, "the name s3.invalid"},
		"nobody listens":    {refused, fault.Unavailable, "connection refused"},
		"no TLS":            {http1, fault.WrongAnswer, "it does not speak TLS"},
		"reset":             {through, fault.Unavailable, "connection broken"},
		"silence":           {stalls, fault.Unavailable, "no answer before the timeout"},
		"expired token":     {says(400, "ExpiredToken"), fault.Denied, ""},
		"overloaded":        {says(503, "SlowDown"), fault.Overloaded, "503"},
		"too many requests": {says(429, "TooManyRequests"), fault.Overloaded, "429"},
		"broken":            {says(500, "InternalError"), fault.Unavailable, "500"},
		"a dead gateway":    {says(502, "BadGateway"), fault.Unavailable, "502"},
		"full":              {says(507, "InsufficientStorage"), fault.Full, "507"},
		"another region":    {says(301, "PermanentRedirect"), fault.Missing, "301"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, tt.at, storage.Options{Stall: 300 * time.Millisecond})
			for op, do := range operations(b) {
				said := tt.said
				if again := tt.kind == fault.Unavailable || tt.kind == fault.Overloaded || tt.kind == fault.Full; again && !patient(op) {
					continue
				}
				err := do(t.Context())
				if op == "Put, streamed" && fault.In(err) != nil {
					continue // a server that hangs up while it is sent a body may not be heard
				}
				blames(t, op, err, b, tt.kind, said)
			}
		})
	}
}

// A caller whose time is up, or that was stopped, blames nobody.
func TestACallerWithoutTimeBlamesNobody(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	put(t, create(t, at), "key", noise(100))
	silent, stalls := proxied(t, at)
	silent.Delay(time.Hour)
	b := open(t, stalls, storage.Options{Stall: time.Minute})
	for op, do := range operations(b) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) || fault.In(err) != nil {
			t.Errorf("%s without time = %v, blames %v", op, err, fault.In(err))
		}
		cancel()
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := do(stopped); !errors.Is(err, context.Canceled) || fault.In(err) != nil {
			t.Errorf("%s of one that was stopped = %v, blames %v", op, err, fault.In(err))
		}
	}
}

// What is about one object blames nobody.
func TestAnErrorOfOneObjectBlamesNobody(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	b := create(t, at)
	put(t, b, "key", noise(100))
	get := func(key string, r storage.Range) error { _, err := b.Get(t.Context(), key, r); return err }
	_, head := b.Head(t.Context(), "nothing")
	for name, err := range map[string]error{
		"HEAD of no key":  head,
		"GET of no key":   get("nothing", storage.Range{Length: -1}),
		"another version": get("key", storage.Range{Length: -1, IfMatch: "0123"}),
		"over the end":    get("key", storage.Range{Offset: 90, Length: 20}),
		"beyond the end":  get("key", storage.Range{Offset: 200, Length: 20}),
		"not what it was": func() error {
			_, err := b.Put(t.Context(), "k", bytes.NewReader(noise(100)), describe(make([]byte, 100)))
			return err
		}(),
		"a body that ends": func() error {
			_, err := b.Put(t.Context(), "k", bytes.NewReader(nil), describe(noise(100)))
			return err
		}(),
		"deletion proved":   errors.Join(errors.New("none"), b.Absent(t.Context(), "nothing")),
		"not to be deleted": b.DeleteMatching(t.Context(), "key", "0123"),
	} {
		if err == nil || fault.In(err) != nil {
			t.Errorf("%s = %v, blames %v", name, err, fault.In(err))
		}
	}
}

// To HEAD, S3 gives the same answer where the key is missing and where the bucket is:
// a bucket that vanished must prove nothing. While it answers, that costs no request.
func TestAMissingBucketIsNoMissingKey(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	create(t, at)
	var gone atomic.Bool
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if gone.Load() {
			answer(w, http.StatusNotFound, "NoSuchBucket")
		}
		return gone.Load()
	})
	b := open(t, g.through(at), storage.Options{})
	for range 20 {
		if _, err := b.Head(t.Context(), "nothing"); !errors.Is(err, storage.ErrNotFound) || fault.In(err) != nil {
			t.Fatalf("Head = %v", err)
		}
	}
	if n := g.count(func(*http.Request) bool { return true }); n != 21 {
		t.Errorf("%d requests for 20 HEADs, want 21", n)
	}
	gone.Store(true)
	other := open(t, g.through(at), storage.Options{}) // which knows nothing of it yet
	_, err := other.Head(t.Context(), "nothing")
	blames(t, "Head", err, other, fault.Missing, "404 NoSuchBucket")
	blames(t, "Absent", other.Absent(t.Context(), "nothing"), other, fault.Missing, "404 NoSuchBucket")
}

// A page with the status of a success is no answer: neither an empty listing nor a
// deletion nor an object.
func TestAPageIsNoAnswer(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	direct := create(t, at)
	put(t, direct, "key", noise(100))
	put(t, direct, "a", noise(100))
	const page = "<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body><p>Sign in &amp; go on<br></body></html>"
	for name, serve := range map[string]func(w http.ResponseWriter){
		"HTML": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, page)
		},
		"XML": func(w http.ResponseWriter) {
			fmt.Fprint(w, `<?xml version="1.0"?><Maintenance><until>noon</until></Maintenance>`)
		},
		"nothing": func(http.ResponseWriter) {},
		"half": func(w http.ResponseWriter) {
			fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated><Contents>`)
		},
		"less": func(w http.ResponseWriter) { fmt.Fprint(w, `<ListBucketResult></ListBucketResult>`) },
	} {
		g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool { serve(w); return true })
		b := open(t, g.through(at), storage.Options{})
		all := operations(b)
		all["Versions"] = func(ctx context.Context) error {
			for _, err := range b.Versions(ctx, "") {
				return err
			}
			return nil
		}
		all["Tops"] = func(ctx context.Context) error {
			for _, err := range b.Tops(ctx) {
				return err
			}
			return nil
		}
		all["OpenUploads"] = func(ctx context.Context) error {
			for _, err := range b.OpenUploads(ctx) {
				return err
			}
			return nil
		}
		all["AbortUploads"] = func(ctx context.Context) error { _, err := b.AbortUploads(ctx, "", time.Now()); return err }
		all["Copy"] = func(ctx context.Context) error {
			src := storage.Source{Bucket: b, Key: "key"}
			_, err := b.Copy(ctx, src, "copy", describe(noise(100)), storage.Parts{})
			return err
		}
		if name == "HTML" { // parts are tried again, which takes its time
			all["PutParts"] = func(ctx context.Context) error {
				_, err := b.PutParts(ctx, "parts", describe(noise(6<<20)), describeParts(noise(6<<20)))
				return err
			}
		}
		for op, do := range all {
			// Without a body, S3 says yes to a HEAD of the bucket and to a single DELETE; and
			// only a caller that asked for a listing checks whether an answer is one.
			if name != "HTML" && (op == "Check" || op == "Probe" || op == "Delete") {
				continue
			}
			blames(t, name+": "+op, do(t.Context()), b, fault.WrongAnswer, "not an answer of S3")
		}
	}
	if left := list(t, direct, "", ""); len(left) != 2 {
		t.Errorf("%v are left", left)
	}
}

// S3 answers that it will copy, and finds out in the middle that it cannot.
func TestAnErrorAfterASuccessIsAnError(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	put(t, create(t, at), "key", noise(100))
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Copy-Source") == "" && !isComplete(r) {
			return false
		}
		answer(w, http.StatusOK, "InternalError")
		return true
	})
	b := open(t, g.through(at), storage.Options{})
	_, err := b.Copy(t.Context(), storage.Source{Bucket: b, Key: "key"}, "copy", describe(noise(100)), storage.Parts{})
	blames(t, "Copy", err, b, fault.Unavailable, "500 InternalError")
	content := noise(6 << 20)
	_, err = b.PutParts(t.Context(), "parts", describe(content), describeParts(content))
	blames(t, "PutParts", err, b, fault.Unavailable, "500 InternalError")
}

// A server that has, or gives, other bytes than were promised lies.
func TestOtherBytesAreTheServersFailure(t *testing.T) {
	t.Parallel()
	at := target(t, "whose")
	put(t, create(t, at), "key", noise(100))
	content := noise(100)
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			answer(w, http.StatusBadRequest, "BadDigest")
		}
		return r.Method == http.MethodPut
	})
	g.forward.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method != http.MethodHead { // by which we look once more
			r.Header.Set("Etag", `"another"`)
		}
		return nil
	}
	b := open(t, g.through(at), storage.Options{})
	_, err := b.Put(t.Context(), "key", bytes.NewReader(content), describe(content))
	blames(t, "Put", err, b, fault.WrongAnswer, "400 BadDigest")
	if !errors.Is(err, storage.ErrDigest) {
		t.Errorf("Put = %v, want ErrDigest", err)
	}
	o := head(t, open(t, at, storage.Options{}), "key")
	_, err = b.Get(t.Context(), "key", storage.Range{Length: -1, IfMatch: o.ETag})
	blames(t, "Get", err, b, fault.WrongAnswer, "not an answer of S3")
}
