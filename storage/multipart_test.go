package storage_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// S3 takes no smaller parts, but for the last.
const minPart = 5 << 20

func TestPutPartsKeepsDigestMetadataAndStorageClass(t *testing.T) {
	t.Parallel()
	at := target(t, "parts")
	at.StorageClass = "GLACIER"
	b := create(t, at)
	content := noise(2*minPart + 17)
	up, parts := describe(content), describeParts(content)
	saved := ""
	parts.SaveID = func(_ context.Context, id string) error { saved = id; return nil }

	stored := must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	var sums [][16]byte
	for from := 0; from < len(content); from += minPart {
		sums = append(sums, md5.Sum(content[from:min(from+minPart, len(content))]))
	}
	want := storage.Object{
		Key: "key", Size: up.Size, ContentType: up.ContentType, Metadata: up.Metadata, StorageClass: "GLACIER",
		ETag:   storage.ExpectedETag([16]byte{}, sums),
		SHA256: storage.ExpectedChecksum([32]byte{}, parts.SHA256),
	}
	ignore := cmpopts.IgnoreFields(storage.Object{}, "LastModified", "VersionID")
	if diff := cmp.Diff(want, stored, ignore); diff != "" {
		t.Errorf("PutParts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, head(t, b, "key"), ignore); diff != "" {
		t.Errorf("Head (-want +got):\n%s", diff)
	}
	if saved == "" {
		t.Error("the upload's ID was not saved")
	}
	if _, err := b.Get(t.Context(), "key", storage.Range{Length: -1}); !errors.Is(err, storage.ErrArchived) {
		t.Errorf("Get = %v, want ErrArchived", err)
	}
}

// A worker that died with three of four parts sent must send one.
func TestResumeSendsOnlyTheMissingParts(t *testing.T) {
	t.Parallel()
	at := target(t, "parts")
	create(t, at)
	g := newGate(t, at, nil)
	b := open(t, g.through(at), storage.Options{Concurrency: 1})
	content := noise(3*minPart + 17)
	up, parts := describe(content), describeParts(content)

	ctx, die := context.WithCancel(t.Context())
	defer die()
	openPart := parts.Open
	parts.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		if offset == 3*minPart {
			die()
			return nil, ctx.Err()
		}
		return openPart(ctx, offset, length)
	}
	id := ""
	parts.SaveID = func(_ context.Context, begun string) error { id = begun; return nil }
	var before, sent []int64
	parts.Sent = func(n int64, earlier bool) {
		if earlier {
			before = append(before, n)
			return
		}
		sent = append(sent, n)
	}
	if _, err := b.PutParts(ctx, "key", up, parts); !errors.Is(err, context.Canceled) {
		t.Fatalf("PutParts = %v, want context.Canceled", err)
	}
	if len(before) != 0 || !slices.Equal(sent, []int64{minPart, minPart, minPart}) {
		t.Errorf("parts that were reported: %d before, %d now", before, sent)
	}
	before, sent = nil, nil
	if n := g.count(isPart); n != 3 {
		t.Fatalf("%d parts were sent before, want 3", n)
	}

	parts.Open, parts.Resume = openPart, id
	parts.SaveID = func(context.Context, string) error { return errors.New("no new upload is needed") }
	must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	if n := g.count(isPart); n != 4 {
		t.Errorf("%d parts were sent in all, want 4", n)
	}
	if !slices.Equal(before, []int64{minPart, minPart, minPart}) || !slices.Equal(sent, []int64{17}) {
		t.Errorf("parts that were reported: %d before, %d now", before, sent)
	}
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("the object has other bytes")
	}
}

// The parts that an earlier, different attempt left are not this content's.
func TestResumeReplacesPartsOfOtherContent(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(2*minPart + 17)
	other := bytes.Clone(content)
	other[minPart]++
	id := leave(t, b, "key", other)

	up, parts := describe(content), describeParts(content)
	parts.Resume = id
	must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("the object has other bytes")
	}
}

// leave begins an upload and dies when all its parts but the last are there.
func leave(t *testing.T, b *storage.Bucket, key string, content []byte) string {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	up, parts := describe(content), describeParts(content)
	var ready atomic.Int32
	openPart := parts.Open
	parts.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		body, err := openPart(ctx, offset, length)
		if length < minPart {
			return body, err
		}
		return &closing{body, func() {
			if int(ready.Add(1)) == len(content)/minPart {
				die()
			}
		}}, err
	}
	last := parts.Open
	parts.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		if length < minPart {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return last(ctx, offset, length)
	}
	id := ""
	parts.SaveID = func(_ context.Context, begun string) error { id = begun; return nil }
	if _, err := b.PutParts(ctx, key, up, parts); !errors.Is(err, context.Canceled) {
		t.Fatalf("PutParts = %v, want context.Canceled", err)
	}
	return id
}

type closing struct {
	io.ReadCloser
	closed func()
}

func (c *closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
}

func TestUploadThatTheServerForgotStartsAgain(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(minPart + 17)
	id := leave(t, b, "key", content)
	if n, err := b.AbortUploads(t.Context(), "key", time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Fatalf("AbortUploads = %d, %v", n, err)
	}
	other := bytes.Clone(content)
	other[0]++
	put(t, b, "key", other) // alike in all but its bytes

	up, parts := describe(content), describeParts(content)
	parts.Resume = id
	saved := ""
	parts.SaveID = func(_ context.Context, id string) error { saved = id; return nil }
	must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	if saved == "" || saved == id {
		t.Errorf("the new upload's ID %q was not saved", saved)
	}
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("the object has other bytes")
	}
}

// A worker may die between the server's "complete" and writing that down. Five
// terabytes are not sent twice for that.
func TestACompletedUploadIsRecognized(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(minPart + 17)
	up, parts := describe(content), describeParts(content)
	id := ""
	parts.SaveID = func(_ context.Context, begun string) error { id = begun; return nil }
	first := must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	parts.Resume = id
	parts.Open = func(context.Context, int64, int64) (io.ReadCloser, error) {
		return nil, errors.New("nothing need be read")
	}
	second, err := b.PutParts(t.Context(), "key", up, parts)
	if err != nil || second.ETag != first.ETag {
		t.Errorf("PutParts again = %+v, %v; want the same object", second, err)
	}
}

// The server may complete the upload and lose the connection before it says so.
func TestALostAnswerToCompleteIsNotALostObject(t *testing.T) {
	t.Parallel()
	for _, mode := range []storage.ChecksumMode{storage.ChecksumSHA256, storage.ChecksumETag} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			at := target(t, "parts")
			direct := create(t, at)
			var lost atomic.Bool
			var g *gate
			g = newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") {
					return false
				}
				if lost.Swap(true) {
					answer(w, http.StatusNotFound, "NoSuchUpload") // which the gateway itself does not say
					return true
				}
				g.forward.ServeHTTP(&nowhere{header: http.Header{}}, r)
				panic(http.ErrAbortHandler) // cuts the connection
			})
			at = g.through(at)
			at.Checksum = mode
			b := open(t, at, storage.Options{})
			content := noise(minPart + 17)
			must.Get(b.PutParts(t.Context(), "key", describe(content), describeParts(content)))(t)
			if !lost.Load() {
				t.Error("no answer was lost")
			}
			if got := get(t, direct, "key"); !bytes.Equal(got, content) {
				t.Error("the object has other bytes")
			}
		})
	}
}

type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

// One glitch among ten thousand parts must not end an upload.
func TestAPartThatFailsIsOpenedAgain(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(2*minPart + 17)
	up, parts := describe(content), describeParts(content)
	var opened atomic.Int32
	openPart := parts.Open
	parts.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		body, err := openPart(ctx, offset, length)
		if opened.Add(1) == 2 {
			return io.NopCloser(io.LimitReader(body, length/2)), err
		}
		return body, err
	}
	must.Get(b.PutParts(t.Context(), "key", up, parts))(t)
	if n := opened.Load(); n != 4 {
		t.Errorf("3 parts were opened %d times, want 4", n)
	}
	if got := get(t, b, "key"); !bytes.Equal(got, content) {
		t.Error("the object has other bytes")
	}
}

// What can never be completed must not stay and cost money; what can, must.
func TestOnlyAnUploadThatCanBeResumedStays(t *testing.T) {
	t.Parallel()
	save := func(context.Context, string) error { return nil }
	down := errors.New("the source is down")
	for name, tt := range map[string]struct {
		change func(*storage.Parts)
		want   error
		stays  int
	}{
		"wrong digest":         {func(p *storage.Parts) { p.SHA256[1][0] ^= 1; p.SaveID = save }, storage.ErrDigest, 0},
		"wrong digest, alone":  {func(p *storage.Parts) { p.SHA256[1][0] ^= 1 }, storage.ErrDigest, 0},
		"source is down":       {func(p *storage.Parts) { p.Open = fails(down); p.SaveID = save }, down, 1},
		"source is down,alone": {func(p *storage.Parts) { p.Open = fails(down) }, down, 0},
		"source has changed":   {func(p *storage.Parts) { p.Open = fails(storage.ErrChanged); p.SaveID = save }, storage.ErrChanged, 0},
		"ID cannot be saved":   {func(p *storage.Parts) { p.SaveID = func(context.Context, string) error { return down } }, down, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := create(t, target(t, "parts"))
			content := noise(minPart + 17)
			parts := describeParts(content)
			tt.change(&parts)
			if _, err := b.PutParts(t.Context(), "key", describe(content), parts); !errors.Is(err, tt.want) {
				t.Errorf("PutParts = %v, want %v", err, tt.want)
			}
			if n, err := b.AbortUploads(t.Context(), "", time.Now().Add(time.Hour)); n != tt.stays || err != nil {
				t.Errorf("%d uploads stay, want %d (%v)", n, tt.stays, err)
			}
			if _, err := b.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Head = %v, want ErrNotFound", err)
			}
		})
	}
}

func fails(err error) func(context.Context, int64, int64) (io.ReadCloser, error) {
	return func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, err }
}

// The uploads of a dead worker go, those of the living stay.
func TestAbortUploadsLooksAtPrefixAndAge(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(minPart + 17)
	for _, key := range []string{"12/a", "12/b", "123/c"} {
		leave(t, b, key, content)
	}
	for _, tt := range []struct {
		prefix string
		before time.Time
		want   int
	}{
		{"12/", time.Now().Add(-time.Hour), 0},
		{"12/", time.Now().Add(time.Hour), 2},
		{"", time.Now().Add(time.Hour), 1},
		{"", time.Now().Add(time.Hour), 0},
	} {
		if n, err := b.AbortUploads(t.Context(), tt.prefix, tt.before); n != tt.want || err != nil {
			t.Errorf("AbortUploads(%q, %s) = %d, %v; want %d", tt.prefix, tt.before, n, err, tt.want)
		}
	}
}

func TestPutPartsRefusesPartsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "parts"))
	content := noise(minPart + 17)
	for name, change := range map[string]func(*storage.Upload, *storage.Parts){
		"a digest is missing": func(_ *storage.Upload, p *storage.Parts) { p.SHA256 = p.SHA256[:1] },
		"nothing to open":     func(_ *storage.Upload, p *storage.Parts) { p.Open = nil },
		"no content":          func(u *storage.Upload, p *storage.Parts) { u.Size, p.SHA256 = 0, nil },
		"too many parts":      func(u *storage.Upload, p *storage.Parts) { u.Size, p.SHA256 = 1<<40, nil },
		"metadata":            func(u *storage.Upload, _ *storage.Parts) { u.Metadata = map[string]string{"a": "\r"} },
	} {
		up, parts := describe(content), describeParts(content)
		change(&up, &parts)
		if _, err := b.PutParts(t.Context(), "key", up, parts); err == nil {
			t.Errorf("%s: PutParts succeeds", name)
		}
	}
	if n, err := b.AbortUploads(t.Context(), "", time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("%d uploads were begun (%v)", n, err)
	}
}
