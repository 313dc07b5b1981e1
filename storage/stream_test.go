package storage_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// A producer makes content, and notes what is asked of it.
type producer struct {
	content []byte
	piece   func(offset int64, p []byte) error // looks at what is given away; empty at the end

	from, told []int64  // where it was asked to begin, and what it was notified of
	ids        []string // of uploads
	made       int64    // bytes given away
	open       int      // readers that were not closed
}

func (p *producer) stream() storage.Stream {
	return storage.Stream{
		Size: int64(len(p.content)), PartSize: minPart,
		From: func(_ context.Context, offset int64) (io.ReadCloser, error) {
			p.from = append(p.from, offset)
			p.open++
			return &production{p, offset}, nil
		},
		Sent: func(_ context.Context, offset int64) error {
			p.told = append(p.told, offset)
			return nil
		},
		SaveID: func(_ context.Context, id string) error {
			p.ids = append(p.ids, id)
			return nil
		},
	}
}

type production struct {
	producer *producer
	offset   int64
}

func (r *production) Read(p []byte) (int, error) {
	n := copy(p, r.producer.content[r.offset:])
	if r.producer.piece != nil {
		if err := r.producer.piece(r.offset, p[:n]); err != nil {
			return n, err
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	r.offset += int64(n)
	r.producer.made += int64(n)
	return n, nil
}

func (r *production) Close() error {
	r.producer.open--
	return nil
}

// ends are the offsets behind the parts of so many bytes.
func ends(size int64) (all []int64) {
	for end := int64(0); end < size; {
		end = min(end+minPart, size)
		all = append(all, end)
	}
	return all
}

// holds compares the MD5 of each part that the object "key" is made of.
func holds(t *testing.T, b *storage.Bucket, content []byte) {
	t.Helper()
	var sums [][16]byte
	for part := range slices.Chunk(content, minPart) {
		sums = append(sums, md5.Sum(part))
	}
	if o := head(t, b, "key"); o.ETag != storage.ExpectedETag([16]byte{}, sums) || o.Size != int64(len(content)) {
		t.Errorf("the object has other bytes: %+v", o)
	}
}

// ways are those in which a server is made to prove what it has. Its lists of parts
// are changed on each of them, unless list is nil.
func ways(t *testing.T, at storage.Target, list func(string) string) map[string]storage.Target {
	t.Helper()
	secure, plain := newTLSGate(t, at, nil), newGate(t, at, nil)
	if list != nil {
		isList := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("uploadId") }
		secure.rewrite(isList, list)
		plain.rewrite(isList, list)
	}
	etag := secure.through(at)
	etag.Checksum = storage.ChecksumETag
	return map[string]storage.Target{"TLS": secure.through(at), "ETag": etag, "HTTP": plain.through(at)}
}

// What is produced becomes an object with all that is said of it, whatever its length.
func TestPutStreamKeepsWhatIsProduced(t *testing.T) {
	t.Parallel()
	at := target(t, "stream")
	at.StorageClass = "STANDARD_IA"
	direct := create(t, at)
	for name, way := range ways(t, at, nil) {
		b := open(t, way, storage.Options{})
		for _, size := range []int{0, 1, 64<<10 + 1, minPart - 1, minPart, minPart + 1, 2 * minPart, 2*minPart + 17} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				t.Parallel()
				p := &producer{content: noise(size)}
				up, key := describe(p.content), fmt.Sprint(name, size)
				up.Size, up.SHA256, up.MD5 = -1, [32]byte{1}, [16]byte{1}
				stored := must.Get(b.PutStream(t.Context(), key, up, p.stream()))(t)
				var sums [][32]byte
				var md5s [][16]byte
				for part := range slices.Chunk(p.content, minPart) {
					sums, md5s = append(sums, sha256.Sum256(part)), append(md5s, md5.Sum(part))
				}
				want := storage.Object{
					Key: key, Size: int64(size), ContentType: up.ContentType, Metadata: up.Metadata, StorageClass: "STANDARD_IA",
					ETag: storage.ExpectedETag(md5.Sum(nil), md5s), SHA256: storage.ExpectedChecksum(sha256.Sum256(nil), sums),
				}
				if name != "TLS" {
					want.SHA256, stored.SHA256 = "", ""
				}
				ignore := cmpopts.IgnoreFields(storage.Object{}, "LastModified", "VersionID")
				if diff := cmp.Diff(want, stored, ignore); diff != "" {
					t.Errorf("PutStream (-want +got):\n%s", diff)
				}
				found := head(t, direct, key)
				if name != "TLS" {
					found.SHA256 = ""
				}
				if diff := cmp.Diff(want, found, ignore); diff != "" {
					t.Errorf("Head (-want +got):\n%s", diff)
				}
				if got := get(t, direct, key); !bytes.Equal(got, p.content) {
					t.Error("the object has other bytes")
				}
				if len(p.from) > 1 || p.open != 0 || p.made != int64(size) || !slices.Equal(p.told, ends(int64(size))) {
					t.Errorf("begun at %v, %d left open, %d bytes, notified of %v", p.from, p.open, p.made, p.told)
				}
			})
		}
	}
}

// A worker that was stopped near the end goes on near the end, if the server can
// still be held to what it has.
func TestStreamGoesOnWhereItStood(t *testing.T) {
	t.Parallel()
	const size = 3*minPart + 17
	// change is for what the server says of part n.
	change := func(n int, pattern, with string) func(string) string {
		return func(list string) string {
			return regexp.MustCompile(`(?s)<Part>.*?</Part>`).ReplaceAllStringFunc(list, func(p string) string {
				if !strings.Contains(p, fmt.Sprintf("<PartNumber>%d<", n)) {
					return p
				}
				return regexp.MustCompile(pattern).ReplaceAllString(p, with)
			})
		}
	}
	for name, tt := range map[string]struct {
		first, then string // ways
		offset      int64
		list        func(string) string // changes what the server says that it has
		from        int64
		restarts    bool
	}{
		"over TLS":                   {"TLS", "TLS", 2 * minPart, nil, 2 * minPart, false},
		"over HTTP":                  {"HTTP", "HTTP", 2 * minPart, nil, 2 * minPart, false},
		"with ETags":                 {"ETag", "ETag", 2 * minPart, nil, 2 * minPart, false},
		"without checksums so far":   {"HTTP", "TLS", 2 * minPart, nil, 2 * minPart, false},
		"with checksums so far":      {"TLS", "HTTP", 2 * minPart, nil, 0, true},
		"the caller kept less":       {"TLS", "TLS", minPart, nil, minPart, false},
		"the caller kept an odd one": {"TLS", "TLS", minPart + 1, nil, minPart, false},
		"the caller kept nothing":    {"TLS", "TLS", 0, nil, 0, false},
		"the server has less":        {"TLS", "TLS", size, nil, 2 * minPart, false},
		"the server lost a part":     {"TLS", "TLS", 2 * minPart, change(2, `(?s).*`, ""), minPart, false},
		"the server lost the first":  {"HTTP", "HTTP", 2 * minPart, change(1, `(?s).*`, ""), 0, true},
		"a part is of another size":  {"HTTP", "HTTP", 2 * minPart, change(2, `<Size>\d`, "<Size>"), minPart, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := target(t, "stream")
			direct := create(t, at)
			p := &producer{content: noise(size)}
			ctx, die := context.WithCancel(t.Context())
			defer die()
			p.piece = func(offset int64, _ []byte) error {
				if offset > size*9/10 {
					die()
				}
				return ctx.Err()
			}
			b := open(t, ways(t, at, nil)[tt.first], storage.Options{})
			if _, err := b.PutStream(ctx, "key", describe(p.content), p.stream()); !errors.Is(err, context.Canceled) {
				t.Fatalf("PutStream = %v, want context.Canceled", err)
			}
			if !slices.Equal(p.told, ends(size)[:2]) || p.open != 0 || len(p.ids) != 1 {
				t.Fatalf("notified of %v and uploads %v, %d left open", p.told, p.ids, p.open)
			}

			again := &producer{content: p.content}
			s := again.stream()
			s.Resume, s.Offset = p.ids[0], tt.offset
			b = open(t, ways(t, at, tt.list)[tt.then], storage.Options{})
			must.Get(b.PutStream(t.Context(), "key", describe(p.content), s))(t)
			if !slices.Equal(again.from, []int64{tt.from}) || again.made != size-tt.from || (len(again.ids) > 0) != tt.restarts {
				t.Errorf("begun at %v, %d bytes, uploads %v; want from %d on, from the beginning %t", again.from, again.made, again.ids, tt.from, tt.restarts)
			}
			holds(t, direct, p.content)
			nothingOpen(t, direct, 0)
		})
	}
}

// nothingOpen looks for uploads that stay.
func nothingOpen(t *testing.T, b *storage.Bucket, want int) {
	t.Helper()
	if n, err := b.AbortUploads(t.Context(), "", time.Now().Add(time.Hour)); n != want || err != nil {
		t.Errorf("%d uploads stay, want %d (%v)", n, want, err)
	}
}

// An upload that is gone is begun again, from the first byte.
func TestStreamBeginsAgainIfItsUploadIsGone(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "stream"))
	p := &producer{content: noise(minPart + 17)}
	id := leave(t, b, "key", p.content)
	nothingOpen(t, b, 1)
	s := p.stream()
	s.Resume, s.Offset = id, minPart
	must.Get(b.PutStream(t.Context(), "key", describe(p.content), s))(t)
	if !slices.Equal(p.from, []int64{0}) || len(p.ids) != 1 || p.ids[0] == id {
		t.Errorf("begun at %v, uploads %v after %s", p.from, p.ids, id)
	}
	holds(t, b, p.content)
}

// The caller may die when all is sent, and the connection when all is done.
func TestStreamThatWasSentNeedsNoProducer(t *testing.T) {
	t.Parallel()
	content := noise(2*minPart + 17)
	for _, way := range []string{"TLS", "HTTP"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			at := target(t, "stream")
			direct := create(t, at)
			p := &producer{content: content}
			s := p.stream()
			sent, died := s.Sent, errors.New("died")
			s.Sent = func(ctx context.Context, offset int64) error {
				if offset == s.Size {
					return died
				}
				return sent(ctx, offset)
			}
			b := open(t, ways(t, at, nil)[way], storage.Options{})
			if _, err := b.PutStream(t.Context(), "key", describe(content), s); !errors.Is(err, died) {
				t.Fatalf("PutStream = %v, want %v", err, died)
			}
			if _, err := direct.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Head = %v, want ErrNotFound", err)
			}
			s.Resume, s.Offset, s.Sent = p.ids[0], s.Size, nil
			s.From = func(context.Context, int64) (io.ReadCloser, error) {
				return nil, errors.New("nothing need be produced")
			}
			build, lost := newTLSGate, false
			if way == "HTTP" {
				build = newGate
			}
			var g *gate
			g = build(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				if !isComplete(r) {
					return false
				}
				if lost {
					answer(w, http.StatusNotFound, "NoSuchUpload")
					return true
				}
				lost = true
				g.forward.ServeHTTP(&nowhere{header: http.Header{}}, r)
				panic(http.ErrAbortHandler) // cuts the connection
			})
			if _, err := open(t, g.through(at), storage.Options{}).PutStream(t.Context(), "key", describe(content), s); err != nil || !lost {
				t.Fatal(err)
			}
			holds(t, direct, content)
		})
	}
}

// The length of a part says nothing about the memory that it takes here.
func TestPutStreamKeepsNoPartInMemory(t *testing.T) {
	const size, limit = 256 << 20, 16 << 20
	b := create(t, target(t, "stream"))
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
	must.Get(b.PutStream(t.Context(), "big", storage.Upload{}, storage.Stream{
		Size: size, PartSize: 64 << 20,
		From: func(context.Context, int64) (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(src, size)), nil
		},
	}))(t)
	if used := peak - before.HeapAlloc; used > limit {
		t.Errorf("%d MiB of heap at the peak, want at most %d", used>>20, limit>>20)
	}
}

func TestPutStreamRefusesWhatMakesNoParts(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "stream"))
	for name, change := range map[string]func(*storage.Upload, *storage.Stream){
		"no producer":    func(_ *storage.Upload, s *storage.Stream) { s.From = nil },
		"no part size":   func(_ *storage.Upload, s *storage.Stream) { s.PartSize = 0 },
		"negative parts": func(_ *storage.Upload, s *storage.Stream) { s.PartSize = -minPart },
		"too many parts": func(_ *storage.Upload, s *storage.Stream) { s.Size = 10_001 * minPart },
		"negative size":  func(_ *storage.Upload, s *storage.Stream) { s.Size = -1 },
		"metadata":       func(u *storage.Upload, _ *storage.Stream) { u.Metadata = map[string]string{"a": "\r"} },
	} {
		p := &producer{content: noise(17)}
		up, s := describe(p.content), p.stream()
		change(&up, &s)
		if _, err := b.PutStream(t.Context(), "key", up, s); err == nil || p.from != nil || p.ids != nil {
			t.Errorf("%s: PutStream = %v, begun at %v", name, err, p.from)
		}
	}
}
