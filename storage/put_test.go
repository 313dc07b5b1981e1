package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// The sizes lie on both sides of the limits at which bodies are sent otherwise:
// without a body, from memory, streamed, and streamed after "100 Continue".
func TestPutKeepsContentTypeMetadataAndDigest(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5<<20 + 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			content := noise(size)
			up := describe(content)
			key := fmt.Sprintf("12/%d", size)

			stored := put(t, b, key, content)
			want := storage.Object{
				Key: key, Size: up.Size, ETag: storage.ExpectedETag(up.MD5, nil),
				ContentType: up.ContentType, Metadata: up.Metadata,
				StorageClass: "STANDARD", SHA256: storage.ExpectedChecksum(up.SHA256, nil),
			}
			ignore := cmpopts.IgnoreFields(storage.Object{}, "LastModified", "VersionID")
			if diff := cmp.Diff(want, head(t, b, key), ignore); diff != "" {
				t.Errorf("Head (-want +got):\n%s", diff)
			}
			if stored.ETag != want.ETag {
				t.Errorf("Put says ETag %q, want %q", stored.ETag, want.ETag)
			}
			if got := get(t, b, key); !bytes.Equal(got, content) {
				t.Errorf("Get returns %d other bytes", len(got))
			}
		})
	}
}

// Bytes that are not the promised ones must not replace good ones, not even for
// a moment.
func TestPutOfOtherBytesLeavesTheOldObject(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	for _, size := range []int{0, 10, 3 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			key := fmt.Sprint(size)
			put(t, b, key, []byte("old"))

			content := noise(size)
			up := describe(content)
			up.SHA256[7] ^= 1
			_, err := b.Put(t.Context(), key, onlyReader{bytes.NewReader(content)}, up)
			if !errors.Is(err, storage.ErrDigest) {
				t.Errorf("Put = %v, want ErrDigest", err)
			}
			if got := get(t, b, key); string(got) != "old" {
				t.Errorf("the object is now %d bytes, want the old ones", len(got))
			}
		})
	}
}

// A source that breaks off is a reason to read it again, not a verdict.
func TestPutOfAShortBodyIsTransientAndWritesNothing(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	broken := errors.New("the line went dead")
	for _, size := range []int{10, 3 << 20} {
		for name, src := range map[string]io.Reader{
			"ends":   onlyReader{bytes.NewReader(noise(size)[:size-1])},
			"breaks": io.MultiReader(bytes.NewReader(noise(size)[:size-1]), failing{broken}),
		} {
			t.Run(fmt.Sprintf("%d %s", size, name), func(t *testing.T) {
				t.Parallel()
				key := fmt.Sprintf("%d-%s", size, name)
				_, err := b.Put(t.Context(), key, src, describe(noise(size)))
				if err == nil || isFinal(err) || errors.Is(err, io.EOF) {
					t.Errorf("Put = %v, want a transient error", err)
				}
				if name == "breaks" && !errors.Is(err, broken) {
					t.Errorf("Put = %v, want the reason of the source", err)
				}
				if _, err := b.Head(t.Context(), key); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Head = %v, want ErrNotFound", err)
				}
			})
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func isFinal(err error) bool {
	for _, kind := range []error{
		storage.ErrNotFound, storage.ErrChanged, storage.ErrDenied, storage.ErrDigest, storage.ErrArchived,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func TestPutRefusesWhatHeadersCannotCarry(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	for name, change := range map[string]func(*storage.Upload){
		"line feed in a value": func(u *storage.Upload) { u.Metadata = map[string]string{"bagpath": "a\nb"} },
		"accent in a value":    func(u *storage.Upload) { u.Metadata = map[string]string{"bagpath": "é"} },
		"delete in a value":    func(u *storage.Upload) { u.Metadata = map[string]string{"bagpath": "a\x7f"} },
		"space at the end":     func(u *storage.Upload) { u.Metadata = map[string]string{"bagpath": "a "} },
		"upper case in a name": func(u *storage.Upload) { u.Metadata = map[string]string{"BagPath": "a"} },
		"space in a name":      func(u *storage.Upload) { u.Metadata = map[string]string{"bag path": "a"} },
		"empty name":           func(u *storage.Upload) { u.Metadata = map[string]string{"": "a"} },
		"content type":         func(u *storage.Upload) { u.ContentType = "text/é" },
		"negative size":        func(u *storage.Upload) { u.Size = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := noise(10)
			up := describe(content)
			change(&up)
			if _, err := b.Put(t.Context(), "key", bytes.NewReader(content), up); err == nil {
				t.Error("Put succeeds")
			}
			if _, err := b.Copy(t.Context(), storage.Source{Bucket: b, Key: "x"}, "key", up, storage.Parts{}); err == nil || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Copy = %v, want it refused before it is tried", err)
			}
		})
	}
}

// Over plain HTTP nothing but the signature protects the bytes, so their digest
// is signed; the body still cannot be read twice.
func TestPutOverPlainHTTPSignsThePayload(t *testing.T) {
	t.Parallel()
	at := target(t, "put")
	create(t, at)
	g := newGate(t, at, nil)
	b := open(t, g.through(at), storage.Options{})
	for _, size := range []int{0, 10, 3 << 20} {
		content := noise(size)
		key := fmt.Sprint(size)
		put(t, b, key, content)
		if got := get(t, b, key); !bytes.Equal(got, content) {
			t.Errorf("Get returns other bytes than the %d", size)
		}
		signed := fmt.Sprintf("%x", sha256.Sum256(content))
		if n := g.count(func(r *http.Request) bool {
			return r.Method == http.MethodPut && r.Header.Get("X-Amz-Content-Sha256") == signed
		}); n != 1 {
			t.Errorf("%d requests signed %s, want 1", n, signed)
		}
	}
}

// A content whose digest nobody knows yet goes all the same.
func TestPutWithoutADigestIsNotChecked(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	content := noise(1 << 20)
	must.Get(b.Put(t.Context(), "key", onlyReader{bytes.NewReader(content)}, storage.Upload{Size: 1 << 20}))(t)
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("Get returns other bytes")
	}
}

// Servers of this mode refuse checksum headers, so none may be sent.
func TestETagModeSendsNoChecksumHeaders(t *testing.T) {
	t.Parallel()
	at := target(t, "put")
	create(t, at)
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Amz-Checksum") || strings.HasPrefix(name, "X-Amz-Sdk-Checksum") {
				http.Error(w, name, http.StatusBadRequest)
				return true
			}
		}
		return false
	})
	at = g.through(at)
	at.Checksum = storage.ChecksumETag
	b := open(t, at, storage.Options{})
	content := noise(11 << 20)
	up := describe(content)

	put(t, b, "one", content)
	if o := head(t, b, "one"); o.ETag != storage.ExpectedETag(up.MD5, nil) {
		t.Errorf("ETag = %s", o.ETag)
	}
	if g.count(func(r *http.Request) bool { return r.Header.Get("Content-MD5") != "" }) != 1 {
		t.Error("Content-MD5 was not sent")
	}
	must.Get(b.PutParts(t.Context(), "parts", up, describeParts(content)))(t)
	must.Get(b.Copy(t.Context(), storage.Source{Bucket: b, Key: "one"}, "copy", up, storage.Parts{}))(t)
	for _, key := range []string{"parts", "copy"} {
		if got := get(t, b, key); !bytes.Equal(got, content) {
			t.Errorf("%s has other bytes", key)
		}
	}
	must.Do(t, b.Delete(t.Context(), "one", "parts", "copy"))
}

// A tar entry's reader is used for the next entry as soon as Put has returned;
// net/http lets go of it only some time later.
func TestPutDoesNotReadAfterItReturns(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	ctx, cancel := context.WithCancel(t.Context())
	src := &lingering{stop: cancel, returned: make(chan struct{}), late: make(chan struct{})}
	_, err := b.Put(ctx, "key", src, storage.Upload{Size: 1 << 30})
	close(src.returned)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Put = %v, want context.Canceled", err)
	}
	select {
	case <-src.late:
		t.Error("the body was read after Put had returned")
	case <-time.After(200 * time.Millisecond): // time enough for many more pieces
	}
}

// lingering has its reader cancelled while it reads. Its pieces are small, so
// that many fit into net/http's buffer before it notices.
type lingering struct {
	reads    int
	stop     context.CancelFunc
	returned chan struct{} // closed when Put has returned
	late     chan struct{} // closed when it is read even so
}

func (l *lingering) Read(p []byte) (int, error) {
	if l.reads++; l.reads == 3 {
		l.stop()
	}
	if l.reads >= 3 {
		select {
		case <-l.returned:
			close(l.late)
			return 0, io.ErrClosedPipe
		case <-time.After(5 * time.Millisecond):
		}
	}
	return min(len(p), 100), nil
}

// The length of a file says nothing about the memory it takes here.
func TestPutStreamsInBoundedMemory(t *testing.T) {
	const size, limit = 300 << 20, 64 << 20
	b := create(t, target(t, "put"))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := before.HeapAlloc
	src := &zeros{every: 4 << 20, call: func() {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapAlloc)
	}}
	sum := sha256.New()
	must.Get(io.CopyN(sum, &zeros{}, size))(t)
	up := storage.Upload{Size: size, SHA256: [32]byte(sum.Sum(nil))}
	must.Get(b.Put(t.Context(), "big", src, up))(t)
	if used := peak - before.HeapAlloc; used > limit {
		t.Errorf("%d MiB of heap at the peak, want at most %d", used>>20, limit>>20)
	}
}

// zeros never ends, and calls every so many bytes.
type zeros struct {
	n, every int64
	call     func()
}

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	if z.call != nil && z.n/z.every != (z.n+int64(len(p)))/z.every {
		z.call()
	}
	z.n += int64(len(p))
	return len(p), nil
}

// A caller that is asked to stop must not wait for an upload to end.
func TestPutStopsWithItsContext(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "put"))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	src := &zeros{every: 1 << 20, call: cancel}
	_, err := b.Put(ctx, "key", src, storage.Upload{Size: 4 << 30})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Put = %v, want context.Canceled", err)
	}
}
