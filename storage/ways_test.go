package storage_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/storeways"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// lacks is what a client learns of a store that goes one of [storeways.All].
func lacks() map[string]ability.Way {
	return map[string]ability.Way{
		"no checksums": ability.SHA256, "refuses checksums": ability.PartSHA256, "no checksums of copied parts": ability.CopiedSHA256,
		"no trailing checksums": ability.Trailers, "no ETag of what is completed": ability.CompleteETag, "another ETag of what is completed": ability.CompleteETag, "no batches": ability.Batch,
		"no copies": ability.ServerCopy, "no copies of parts": ability.CopyPart, "no conditions on what was uploaded in parts": ability.CopyIfMatch, "no condition on writing": ability.CreateOnly,
		"short metadata": ability.LongMetadata, "short metadata, said": ability.LongMetadata, "ETags of its own": ability.ETagMD5,
	}
}

// Whatever a store does otherwise than S3, all that the pipeline does comes to the same end, with
// the same bytes; and what the store refused once is not asked again.
func TestEveryWayOfAStore(t *testing.T) {
	t.Parallel()
	s := testenv.S3(t)
	for _, way := range storeways.All(s.AccessKeyID, s.SecretAccessKey) {
		t.Run(way.Name, func(t *testing.T) {
			t.Parallel()
			to := livedThrough(t, way.Name)
			lacked, known := lacks()[way.Name]
			if can, seen := to.Can(lacked); known && (can || !seen) {
				t.Errorf("%s: Can = %t, %t; the store does not", lacked, can, seen)
			}
			for _, w := range ability.Ways() {
				if can, seen := to.Can(w); seen && !can && !slices.Contains(alsoLacks(way.Name), w) && w != lacked {
					t.Errorf("the store is said to lack %s", w)
				}
			}
		})
	}
}

// A store that lacks one thing may lack another.
func TestStoreOfSeveralWays(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{
		{"refuses checksums", "short metadata, said"},
		{"refuses checksums", "short metadata", "no ETag of what is completed"},
		{"no checksums", "ETags of its own", "no ETag of what is completed"},
		{"no checksums of copied parts", "no conditions on what was uploaded in parts", "no trailing checksums"},
		{"HTML without content", "batches need Content-MD5", "no conditions on what was uploaded in parts", "short metadata"},
		{"answers without a length", "weak ETags", "no ETag of what is written", "no copies", "does not want to be asked"},
		{"refuses checksums", "no copies", "no batches", "no condition on writing", "ETags of its own", "short metadata, said"},
	} {
		t.Run(strings.Join(names, ", "), func(t *testing.T) {
			t.Parallel()
			livedThrough(t, names...)
		})
	}
}

// livedThrough has a store that goes some ways go through all, twice, and returns it.
func livedThrough(t *testing.T, ways ...string) *storage.Bucket {
	t.Helper()
	at, from := target(t, "to"), target(t, "from")
	direct := create(t, at)
	create(t, from)
	g, refused := going(t, at, func(*http.Request) {}, ways...)
	client := storage.NewClient(storage.Options{})
	t.Cleanup(client.Close)
	to, source := within(t, client, g.through(at)), within(t, client, g.through(from))
	lifeOf(t, "first", direct, source, to)
	refused.Store(0)
	lifeOf(t, "second", direct, source, to)
	if n := refused.Load(); n > 0 {
		t.Errorf("%d requests were refused again", n)
	}
	return to
}

// going is a gate that goes some of [storeways.All], after see was shown each request, and
// counts what it refuses.
func going(t *testing.T, at storage.Target, see func(*http.Request), names ...string) (*gate, *atomic.Int32) {
	t.Helper()
	ways := storeways.All(at.AccessKeyID, string(at.SecretAccessKey))
	ways = slices.DeleteFunc(ways, func(w storeways.Way) bool { return !slices.Contains(names, w.Name) })
	if len(ways) != len(names) {
		t.Fatalf("some of %q are no ways", names)
	}
	refused := new(atomic.Int32)
	g := newTLSGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		see(r)
		for _, way := range ways {
			if way.Request != nil && way.Request(w, r) {
				refused.Add(1)
				return true
			}
		}
		return false
	})
	g.forward.ModifyResponse = func(r *http.Response) error {
		var all []error
		for _, way := range ways {
			if way.Response != nil {
				all = append(all, way.Response(r))
			}
		}
		return errors.Join(all...)
	}
	return g, refused
}

// alsoLacks is what else follows from the way.
func alsoLacks(way string) []ability.Way {
	return map[string][]ability.Way{
		"no checksums":      {ability.PartSHA256, ability.CopiedSHA256, ability.Trailers},
		"refuses checksums": {ability.SHA256, ability.CopiedSHA256, ability.Trailers},
		"no conditions on what was uploaded in parts": {ability.ReadIfMatch},
	}[way]
}

func within(t *testing.T, c *storage.Client, at storage.Target) *storage.Bucket {
	t.Helper()
	return must.Get(c.Bucket(at))(t)
}

// lifeOf is what the pipeline does in a store. direct is the bucket of to, past the store's ways.
func lifeOf(t *testing.T, pass string, direct, from, to *storage.Bucket) {
	t.Helper()
	ctx := t.Context()
	small, large := noise(1000), noise(minPart+70_000)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %s: %v", pass, what, err)
		}
	}
	same := func(key string, want []byte) {
		t.Helper()
		if !bytes.Equal(get(t, direct, pass+key), want) {
			t.Errorf("%s: %s has other bytes", pass, key)
		}
	}
	up := describe(small)
	up.Metadata = map[string]string{"institution": "test.edu", "bagpath-encoded": strings.Repeat("a%20", 300)}
	o, err := to.Put(ctx, pass+"small", onlyReader{bytes.NewReader(small)}, up)
	must("Put", err)
	same("small", small)
	kept := head(t, direct, pass+"small").Metadata
	key, short := storage.Beginning("bagpath-encoded", up.Metadata["bagpath-encoded"])
	if kept["institution"] != "test.edu" || kept["bagpath-encoded"] != up.Metadata["bagpath-encoded"] && kept[key] != short {
		t.Errorf("%s: the metadata is %v", pass, kept)
	}
	r, err := to.Get(ctx, pass+"small", storage.Range{Offset: 10, Length: 20, IfMatch: o.ETag})
	must("Get", err)
	must("Close", r.Close())
	if r, err = to.Get(ctx, pass+"small", storage.Range{Length: 20, IfMatch: "0123"}); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("%s: Get of another version = %v, %v", pass, r, err)
	}
	parts := describeParts(large)
	for part := range slices.Chunk(large, minPart) {
		parts.MD5 = append(parts.MD5, md5.Sum(part))
	}
	o, err = from.PutParts(ctx, pass+"tar", describe(large), parts)
	must("PutParts", err)
	r, err = from.Get(ctx, pass+"tar", storage.Range{Length: 20, IfMatch: o.ETag})
	must("Get of an upload in parts", err)
	must("Close", r.Close())
	_, err = to.Copy(ctx, storage.Source{Bucket: from, Key: pass + "tar", IfMatch: o.ETag}, pass+"whole", describe(large), storage.Parts{})
	must("Copy", err)
	same("whole", large)
	_, err = to.Copy(ctx, storage.Source{Bucket: from, Key: pass + "tar", IfMatch: o.ETag, Range: true}, pass+"parts", describe(large), parts)
	must("Copy of parts", err)
	same("parts", large)
	p := &producer{content: large}
	_, err = to.PutStream(ctx, pass+"stream", storage.Upload{ContentType: "text/x-test"}, p.stream())
	must("PutStream", err)
	same("stream", large)

	ended, err := to.BeginUpload(ctx, pass+"resumed", "text/x-test")
	must("BeginUpload", err)
	must("Abort", to.Abort(ctx, ended))
	must("Abort again", to.Abort(ctx, ended))
	again := parts
	again.Resume = ended.ID
	_, err = to.PutParts(ctx, pass+"resumed", describe(large), again)
	must("PutParts after the upload has ended", err)
	same("resumed", large)

	signed(t, to, pass+"signed", small)
	same("signed", small)
	must("Delete", to.Delete(ctx, pass+"small", pass+"whole", pass+"nothing"))
	must("Erase", to.Erase(ctx, pass+"parts", pass+"stream"))
	for _, key := range []string{"small", "whole", "parts", "stream"} {
		if err := to.Absent(ctx, pass+key); err != nil {
			t.Errorf("%s: %s: %v", pass, key, err)
		}
	}
}

// Whether a store heeds the condition that there is no object is found out on one that may go. A
// client that does not know it replaces none.
func TestConditionOnWritingIsTried(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ways []string
		can  bool
	}{{nil, true}, {[]string{"conditions unheeded"}, false}, {[]string{"no condition on writing"}, false}} {
		t.Run(strings.Join(tt.ways, ""), func(t *testing.T) {
			t.Parallel()
			at := target(t, "new")
			create(t, at)
			g, _ := going(t, at, func(*http.Request) {}, tt.ways...)
			b, content := open(t, g.through(at), storage.Options{}), noise(1000)
			must.Get(b.Put(t.Context(), "key", bytes.NewReader(content), describe(content)))(t)
			for range 2 {
				u := sent(t, b, "key", content)
				if _, err := b.CompleteUpload(t.Context(), u, 1000, false); !errors.Is(err, storage.ErrChanged) {
					t.Errorf("CompleteUpload = %v, want ErrChanged", err)
				}
				if err := b.TryCreateOnly(t.Context(), u, 1000); err != nil {
					t.Error(err)
				}
				if can, seen := b.Can(ability.CreateOnly); can != tt.can || !seen {
					t.Errorf("Can = %t, %t, want %t", can, seen, tt.can)
				}
				_ = b.Abort(context.WithoutCancel(t.Context()), u)
			}
		})
	}
}

// sent is an upload whose only part was sent as a browser does.
func sent(t *testing.T, b *storage.Bucket, key string, content []byte) storage.OpenUpload {
	t.Helper()
	u := must.Get(b.BeginUpload(t.Context(), key, ""))(t)
	up := describe(content)
	part := must.Get(b.SignPart(t.Context(), u, 1, up.Size, up.SHA256, testenv.Patience))(t)
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, part.URL, bytes.NewReader(content)))(t)
	r.Header = part.Header.Clone()
	response, err := (&http.Client{Transport: b.Conn().Transport()}).Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("PUT by a signed URL: %v, %v", response, err)
	}
	_ = response.Body.Close()
	return u
}

// signed sends an object as a browser does, and once more, which the first one forbids.
func signed(t *testing.T, b *storage.Bucket, key string, content []byte) {
	t.Helper()
	for n := range 2 {
		u := sent(t, b, key, content)
		_, err := b.CompleteUpload(t.Context(), u, int64(len(content)), false)
		if n == 0 && err != nil || n == 1 && !errors.Is(err, storage.ErrChanged) {
			t.Errorf("CompleteUpload = %v for object %d of the key", err, n)
		}
		_ = b.Abort(context.WithoutCancel(t.Context()), u)
	}
}

// A beginning is never longer than the value, ends in no half of an escaped byte, and is the value
// itself where that is short.
func TestBeginningOfMetadata(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "b": "b", "%4": "%4", "a%41": "a%41",
		strings.Repeat("x", 256):              strings.Repeat("x", 256),
		strings.Repeat("x", 255) + "%41":      strings.Repeat("x", 255),
		strings.Repeat("x", 254) + "%41":      strings.Repeat("x", 254),
		strings.Repeat("x", 253) + "%41y":     strings.Repeat("x", 253) + "%41",
		strings.Repeat("x", 250) + "      yz": strings.Repeat("x", 250),
	} {
		if name, got := storage.Beginning("bagpath-encoded", value); got != want || name != "bagpath-encoded-beginning" {
			t.Errorf("Beginning(%q) = %s, %q; want %q", value, name, got, want)
		}
	}
}

// A body that nobody was to be asked about is sent all the same, from where it can be read once.
func TestBodyIsSentUnasked(t *testing.T) {
	t.Parallel()
	at := target(t, "unasked")
	create(t, at)
	var asked atomic.Int32
	g, _ := going(t, at, func(r *http.Request) {
		if r.Header.Get("Expect") != "" {
			asked.Add(1)
		}
	}, "does not want to be asked")
	b, content := open(t, g.through(at), storage.Options{}), noise(3<<20)
	for range 2 {
		must.Get(b.Put(t.Context(), "key", onlyReader{bytes.NewReader(content)}, describe(content)))(t)
		if !bytes.Equal(get(t, b, "key"), content) {
			t.Error("other bytes were stored")
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the store was asked %d times, want once", n)
	}
}

// An object that is as long as nobody says is read whole or not at all.
func TestLengthThatNobodySays(t *testing.T) {
	t.Parallel()
	at := target(t, "length")
	create(t, at)
	g, _ := going(t, at, func(*http.Request) {}, "answers without a length")
	b := open(t, g.through(at), storage.Options{})
	for _, size := range []int{0, 1, 70_000} {
		content := noise(size)
		put(t, b, "key", content)
		if o := head(t, b, "key"); o.Size != int64(size) {
			t.Errorf("Head has %d bytes, want %d", o.Size, size)
		}
		if !bytes.Equal(get(t, b, "key"), content) {
			t.Errorf("other bytes than the %d", size)
		}
		if size < 2 {
			continue
		}
		r := must.Get(b.Get(t.Context(), "key", storage.Range{Offset: 2, Length: -1}))(t)
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content[2:]) {
			t.Errorf("the rest has %d bytes, %v", len(got), err)
		}
	}
	cut := newTLSGate(t, at, nil)
	cut.forward.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodGet {
			r.Header.Del("Content-Length")
			r.ContentLength, r.Body = -1, io.NopCloser(io.LimitReader(r.Body, 100))
		}
		return nil
	}
	r, err := open(t, cut.through(at), storage.Options{}).Get(t.Context(), "key", storage.Range{Length: -1})
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a beginning was read as the whole: %v", err)
	}
}

// Parts whose MD5 is known before carry it where the store takes no checksums: under a lock, some
// take nothing without.
func TestPartsCarryTheirMD5(t *testing.T) {
	t.Parallel()
	at := target(t, "md5")
	create(t, at)
	var parts, without atomic.Int32
	g, _ := going(t, at, func(r *http.Request) {
		if r.URL.Query().Has("partNumber") && r.Header.Get("X-Amz-Checksum-Sha256") == "" {
			parts.Add(1)
			if r.Header.Get("Content-Md5") == "" {
				without.Add(1)
			}
		}
	}, "refuses checksums")
	content := noise(minPart + 100)
	p := describeParts(content)
	for part := range slices.Chunk(content, minPart) {
		p.MD5 = append(p.MD5, md5.Sum(part))
	}
	must.Get(open(t, g.through(at), storage.Options{}).PutParts(t.Context(), "key", describe(content), p))(t)
	if parts.Load() != 2 || without.Load() != 0 {
		t.Errorf("%d of %d parts had no MD5", without.Load(), parts.Load())
	}
}
