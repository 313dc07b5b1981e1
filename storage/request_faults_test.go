package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage"
)

// A verdict is what a caller can learn from an error.
type verdict struct {
	Failed   bool
	Kinds    []error
	Fault    fault.Kind
	Said     string
	Final    bool
	Requests int
}

func judge(err error, requests int) verdict {
	v := verdict{Failed: err != nil, Final: isFinal(err), Requests: requests}
	for _, kind := range []error{
		storage.ErrNotFound, storage.ErrChanged, storage.ErrDenied, storage.ErrDigest, storage.ErrArchived, context.Canceled,
	} {
		if errors.Is(err, kind) {
			v.Kinds = append(v.Kinds, kind)
		}
	}
	if f := fault.In(err); f != nil {
		v.Fault, v.Said = f.Kind, f.Said
	}
	return v
}

// explained is what a caller is told of an error of either client.
func explained(ctx context.Context, b *storage.Bucket, err error) error {
	if err == nil {
		return nil
	}
	return b.Conn().Explain(ctx, err)
}

// raw answers with bytes that need not be HTTP, and closes the connection.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the client may be told so before it has read
		text := text
		if head, _, ok := strings.Cut(text, "\r\n\r\n"); ok && r.Method == http.MethodHead {
			text = head + "\r\n\r\n"
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}
}

func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// hostile are answers that a server, or what is in front of it, may give.
func hostile() map[string]http.HandlerFunc {
	code := func(status int, code string, headers ...string) http.HandlerFunc {
		return says(status, "<?xml version=\"1.0\"?>\n<Error><Code>"+code+"</Code><Message>so it is</Message></Error>", headers...)
	}
	const copied = `<CopyObjectResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ETag>&quot;0f&quot;</ETag>`
	whole := copied + "<LastModified>2026-01-02T03:04:05.000Z</LastModified></CopyObjectResult>"
	all := map[string]http.HandlerFunc{
		"a success":              says(200, "", "Etag", `"0f"`, "Content-Length", "0"),
		"a copy":                 says(200, whole, "Etag", `"0f"`),
		"a copy after spaces":    says(200, strings.Repeat(" \n", 1000)+whole, "Etag", `"0f"`),
		"a copy without a time":  says(200, copied+"</CopyObjectResult>", "Etag", `"0f"`),
		"half a copy":            says(200, copied, "Etag", `"0f"`),
		"a copy at no time":      says(200, copied+"<LastModified>noon</LastModified></CopyObjectResult>", "Etag", `"0f"`),
		"no ETag":                says(200, whole),
		"an error as a success":  code(200, "InternalError", "Etag", `"0f"`),
		"a busy success":         code(200, "SlowDown", "Etag", `"0f"`),
		"another success":        says(200, "<Other/>", "Etag", `"0f"`),
		"HTML":                   says(200, "<!DOCTYPE html><html><br></html>", "Content-Type", "text/html"),
		"HTML with an ETag":      says(200, "<html><br></html>", "Content-Type", "text/html", "Etag", `"0f"`),
		"no time":                says(200, "", "Etag", `"0f"`, "Last-Modified", "noon", "Content-Length", "0"),
		"nothing changed":        says(304, ""),
		"another region":         code(301, "PermanentRedirect", "X-Amz-Bucket-Region", "eu-west-1", "Location", "http://127.0.0.1:1/"),
		"elsewhere for now":      code(307, "TemporaryRedirect", "Location", "http://127.0.0.1:1/"),
		"elsewhere without word": says(302, "", "Location", "http://127.0.0.1:1/"),
		"bad":                    says(400, ""),
		"bad digest":             code(400, "BadDigest"),
		"too slow":               code(400, "RequestTimeout"),
		"expired":                code(400, "ExpiredToken"),
		"bad region":             code(400, "AuthorizationHeaderMalformed", "X-Amz-Bucket-Region", "eu-west-1"),
		"denied":                 code(403, "AccessDenied"),
		"denied without word":    says(403, ""),
		"forged":                 code(403, "SignatureDoesNotMatch"),
		"archived":               code(403, "InvalidObjectState"),
		"not found":              code(404, "NoSuchKey"),
		"no bucket":              code(404, "NoSuchBucket"),
		"not found, no word":     says(404, ""),
		"not found, HTML":        says(404, "<html><br></html>", "Content-Type", "text/html"),
		"not found, other XML":   says(404, "<Other><Reason>none</Reason></Other>"),
		"message, no code":       says(400, "<Error><Message>no</Message></Error>"),
		"not allowed":            code(405, "MethodNotAllowed"),
		"conflict":               code(409, "ConditionalRequestConflict"),
		"changed":                code(412, "PreconditionFailed"),
		"out of range":           code(416, "InvalidRange"),
		"half an error":          says(403, "<Error><Code>AccessDenied</Co"),
		"too many":               code(429, "TooManyRequests"),
		"broken":                 code(500, "InternalError"),
		"unknown operation":      code(501, "NotImplemented"),
		"bad gateway":            says(502, "<html><br></html>"),
		"busy":                   code(503, "SlowDown"),
		"busy without word":      says(503, ""),
		"gateway timeout":        says(504, ""),
		"full":                   code(507, "InsufficientStorage"),
		"hangs up":               raw(""),
		"no HTTP":                raw("SSH-2.0-OpenSSH_9.9\r\n"),
		"half a header":          raw("HTTP/1.1 200 OK\r\nEtag: "),
		"cut error":              raw("HTTP/1.1 403 Forbidden\r\nContent-Length: 500\r\n\r\n<Error><Code>AccessDenied</Code>"),
		"two lengths":            raw("HTTP/1.1 200 OK\r\nEtag: \"0f\"\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde"),
		"a negative length":      raw("HTTP/1.1 200 OK\r\nEtag: \"0f\"\r\nContent-Length: -5\r\n\r\n"),
		"no length":              raw("HTTP/1.1 200 OK\r\nEtag: \"0f\"\r\n\r\n"),
		"a huge header":          raw("HTTP/1.1 200 OK\r\nX-Amz-Meta-A: " + strings.Repeat("a", 2<<20) + "\r\n\r\n"),
	}
	for _, kind := range []string{"AccessDenied", "NoSuchKey"} {
		all["in another case: "+kind] = code(403, kind, "Content-Type", "text/html")
	}
	return all
}

// Whatever a server answers, a caller learns the same of it, and it is asked as often, as
// if the SDK had asked.
func TestErrorsAreThoseOfTheSDK(t *testing.T) {
	t.Parallel()
	at := storage.Target{Bucket: "bucket", AccessKeyID: "key", SecretAccessKey: "secret", PathStyle: true, Checksum: storage.ChecksumSHA256} // which leaves no other way
	ops := bothOf()
	names := []string{"HEAD", "GET", "PUT", "PUT of nothing", "copy"}
	var group errgroup.Group
	group.SetLimit(64)
	for answer, handler := range hostile() {
		for _, op := range names {
			group.Go(func() error {
				var was [2]verdict
				for i, one := range []func(context.Context, *storage.Bucket, string) error{ops[op].ours, ops[op].sdks} {
					g := newGate(t, target(t, "unused"), func(w http.ResponseWriter, r *http.Request) bool { handler(w, r); return true })
					b := open(t, g.through(at), storage.Options{})
					err := explained(t.Context(), b, one(t.Context(), b, "key"))
					was[i] = judge(err, g.count(func(*http.Request) bool { return true }))
					if strings.Contains(fmt.Sprint(err), "secret") {
						t.Errorf("%s, %s: %v", answer, op, err)
					}
				}
				switch answer + ", " + op {
				case "no length, GET", "a copy after spaces, GET", "no length, HEAD", "a copy after spaces, HEAD", // the answer to a range would have one
					"no ETag, PUT", "no ETag, PUT of nothing": // nor has HEAD
					was[1] = verdict{Failed: true, Fault: fault.WrongAnswer, Said: "not an answer of S3", Requests: 2}
				case "changed, copy", "conflict, copy": // it looks whether the condition alone is to blame
					was[1].Requests = 2
				case "no time, GET", "no time, HEAD": // it is read after both
					was[1] = verdict{Requests: 1}
				}
				if diff := cmp.Diff(was[1], was[0], sameError()); diff != "" {
					t.Errorf("%s, %s (-SDK +ours):\n%s", answer, op, diff)
				}
				return nil
			})
		}
	}
	_ = group.Wait()
}

// An answer that is cut off, or has no end, is none: the SDK takes the first for a success if
// nothing of it is needed, and reads the second into memory.
func TestAnswersEnd(t *testing.T) {
	t.Parallel()
	at := storage.Target{Bucket: "bucket", AccessKeyID: "key", SecretAccessKey: "secret", PathStyle: true}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		kind   fault.Kind
		said   string
	}{
		"cut":     {raw("HTTP/1.1 200 OK\r\nEtag: \"0f\"\r\nContent-Length: 500\r\n\r\n<"), fault.Unavailable, "connection broken"},
		"endless": {says(403, "<Error><Code>"+strings.Repeat("A", 2<<20)+"</Code></Error>"), fault.Denied, "403 Forbidden"},
	} {
		g := newGate(t, target(t, "unused"), func(w http.ResponseWriter, r *http.Request) bool { tt.answer(w, r); return true })
		b := open(t, g.through(at), storage.Options{})
		_, err := b.Put(t.Context(), "key", bytes.NewReader(noise(100)), describe(noise(100)))
		blames(t, name, err, b, tt.kind, tt.said)
		_, err = b.CopyWhole(t.Context(), storage.Source{Bucket: b, Key: "key"}, "key", describe(noise(100)))
		blames(t, name, err, b, tt.kind, tt.said)
	}
}

// A caller that is stopped while a request waits for an answer, or for its next try, blames
// nobody. Why it was stopped is not for the request to say: it may be another's error.
func TestAStoppedRequestBlamesNobody(t *testing.T) {
	t.Parallel()
	at := storage.Target{Bucket: "bucket", AccessKeyID: "key", SecretAccessKey: "secret", PathStyle: true}
	for _, busy := range []bool{false, true} {
		for op, do := range bothOf() {
			for i, one := range []func(context.Context, *storage.Bucket, string) error{do.ours, do.sdks} {
				ctx, stop := context.WithCancelCause(t.Context())
				g := newGate(t, target(t, "unused"), func(w http.ResponseWriter, r *http.Request) bool {
					_, _ = io.Copy(io.Discard, r.Body)
					if busy {
						answer(w, http.StatusServiceUnavailable, "SlowDown")
					}
					stop(storage.ErrDigest)
					if !busy {
						<-r.Context().Done()
					}
					return true
				})
				b := open(t, g.through(at), storage.Options{})
				err := explained(ctx, b, one(ctx, b, "key"))
				streamed := busy && strings.Contains(op, "streamed") // and so there was no pause
				if v := judge(err, 0); !streamed && !cmp.Equal(v, verdict{Failed: true, Kinds: []error{context.Canceled}}, sameError()) {
					t.Errorf("%s by client %d = %v: %+v", op, i, err, v)
				}
			}
		}
	}
}

// sameError has errors compared by what they are.
func sameError() cmp.Option {
	return cmp.Comparer(func(a, b error) bool { return a == b }) //nolint:errorlint // the sentinels themselves
}

// A server that answers before the end of a body does not keep the caller's reader.
func TestAnEarlyAnswerEndsTheReading(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	g := newGate(t, target(t, "unused"), func(w http.ResponseWriter, _ *http.Request) bool {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return false
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		<-read
		fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		return true
	})
	b := open(t, g.through(storage.Target{Bucket: "bucket", AccessKeyID: "key", SecretAccessKey: "secret", PathStyle: true}), storage.Options{})
	src := &lingering{stop: func() { close(read) }, returned: make(chan struct{}), late: make(chan struct{})}
	_, err := b.Put(t.Context(), "key", src, storage.Upload{Size: 1 << 30})
	close(src.returned)
	if !errors.Is(err, storage.ErrDenied) {
		t.Errorf("Put = %v, want ErrDenied", err)
	}
	select {
	case <-src.late:
		t.Error("the body was read after Put had returned")
	case <-time.After(200 * time.Millisecond): // time enough for many more pieces
	}
}

// A server that copies may be silent for longer than one that is only to answer.
func TestACopyMayTakeItsTime(t *testing.T) {
	t.Parallel()
	g := newGate(t, target(t, "unused"), func(w http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-time.After(500 * time.Millisecond):
			fmt.Fprint(w, "<CopyObjectResult><ETag>0f</ETag></CopyObjectResult>")
		}
		return true
	})
	b := open(t, g.through(storage.Target{Bucket: "bucket", AccessKeyID: "key", SecretAccessKey: "secret", PathStyle: true}), storage.Options{Stall: 50 * time.Millisecond})
	if _, err := b.CopyWhole(t.Context(), storage.Source{Bucket: b, Key: "a"}, "b", alone(noise(100))); err != nil {
		t.Error(err)
	}
	if n := g.count(func(*http.Request) bool { return true }); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// A bucket that has just answered is there: a key that is missing then costs no question.
func TestAnAnswerIsProofOfTheBucket(t *testing.T) {
	t.Parallel()
	at := target(t, "proof")
	put(t, create(t, at), "key", noise(100))
	for op, ask := range map[string]func(b *storage.Bucket){
		"HEAD": func(b *storage.Bucket) { head(t, b, "key") },
		"GET":  func(b *storage.Bucket) { get(t, b, "key") },
		"GET of nothing": func(b *storage.Bucket) {
			if err := drained(b.Get(t.Context(), "none", storage.Range{Length: -1})); !errors.Is(err, storage.ErrNotFound) {
				t.Error(err)
			}
		},
		"PUT": func(b *storage.Bucket) { put(t, b, "new", noise(100)) },
	} {
		g := newGate(t, at, nil)
		b := open(t, g.through(at), storage.Options{})
		ask(b)
		if _, err := b.Head(t.Context(), "nothing"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Head = %v, want ErrNotFound", err)
		}
		if n := g.count(func(*http.Request) bool { return true }); n != 2 {
			t.Errorf("%s: %d requests, want 2", op, n)
		}
	}
}

// Keys are signed as they are sent: a server that checks signatures takes each of them.
func TestOddKeysAreSignedAsTheyAreSent(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "odd"))
	content := noise(100)
	for i, key := range oddKeys {
		if slices.Contains([]string{"/a", "a/", "//", ".", "..", "a/../b", "a//b", strings.Repeat("k", 1024)}, key) {
			continue // which are not names of files, as the server of the tests needs them
		}
		key = strconv.Itoa(i) + key
		put(t, b, key, content)
		if got := get(t, b, key); string(got) != string(content) {
			t.Errorf("Get(%q) = %d bytes", key, len(got))
		}
		if o := head(t, b, key); o.Size != 100 {
			t.Errorf("Head(%q) = %+v", key, o)
		}
		if _, err := b.CopyWhole(t.Context(), storage.Source{Bucket: b, Key: key}, "copy"+key, describe(content)); err != nil {
			t.Errorf("copy %q: %v", key, err)
		}
	}
}

// Without a key the request would be about the bucket, whose answer is another one.
func TestNoKeyIsNoRequest(t *testing.T) {
	t.Parallel()
	at := target(t, "empty")
	g := newGate(t, at, nil)
	b := open(t, g.through(at), storage.Options{})
	for op, do := range bothOf() {
		if err := do.ours(t.Context(), b, ""); err == nil {
			t.Errorf("%s without a key succeeds", op)
		}
	}
	if n := g.count(func(*http.Request) bool { return true }); n != 0 {
		t.Errorf("%d requests", n)
	}
}
