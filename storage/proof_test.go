package storage_test

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/proof"
)

// digest computes what a proof is of in pieces, interrupted at one place.
func digest(t *testing.T, p proof.Proof, content []byte) []byte {
	t.Helper()
	h, cut := p.New(), rand.IntN(len(content)+1)
	for piece := range slices.Chunk(content[:cut], 100_000) {
		_, _ = h.Write(piece)
	}
	state := must.Get(h.(encoding.BinaryMarshaler).MarshalBinary())(t)
	h = p.New()
	must.Do(t, h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state))
	_, _ = h.Write(content[cut:])
	if a, b := h.Sum(nil), h.Sum(nil); string(a) != string(b) || len(a) != h.Size() {
		t.Errorf("two sums of one digest are %x and %x", a, b)
	}
	return h.Sum(nil)
}

// What a server says of an object proves its bytes, and no others, whichever way it
// was uploaded and however much the server tells.
func TestProofOfWhatIsThere(t *testing.T) {
	t.Parallel()
	sha, etag := target(t, "proof"), target(t, "proof-etag")
	etag.Checksum = storage.ChecksumETag
	content := noise(12 << 20)
	small, parts := content[:1000], describeParts(content)
	usual := storage.Parts{Size: 8 << 20, Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[offset : offset+length])), nil
	}}
	for name, at := range map[string]storage.Target{"sha256": sha, "etag": etag} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := create(t, at)
			put(t, b, "small", small)
			must.Get(b.PutParts(t.Context(), "parts", describe(content), parts))(t)
			up := describe(content)
			up.SHA256 = [32]byte{}
			must.Get(b.PutParts(t.Context(), "usual parts", up, usual))(t)
			for key, content := range map[string][]byte{"small": small, "parts": content, "usual parts": content} {
				for how, change := range map[string]func(http.Header){
					"":            func(http.Header) {},
					"no checksum": noChecksum,
					"no count":    func(h http.Header) { noChecksum(h); h.Del("x-amz-mp-parts-count") },
				} {
					asked, etag := changed(t, at, change), head(t, b, key).ETag
					p := must.Get(asked.Proof(t.Context(), key, etag))(t)
					if read := readProven(t, asked, key, etag, content); !read.Agrees(digest(t, p, content)) && p.Agrees(digest(t, p, content)) ||
						read.Name() != p.Name() || read.Known() != p.Known() {
						t.Errorf("%s %s: reading it gives the proof %s, asking for it %s", key, how, read.Name(), p.Name())
					}
					t.Logf("%s %s: %s", key, how, p.Name())
					other := slices.Clone(content)
					other[len(other)/2] ^= 1
					agrees := p.Agrees(digest(t, p, content))
					if guessed := key == "parts" && how == "no count"; agrees == guessed { // of 5 MiB each, which are not what it guesses
						t.Errorf("%s %s by its %s: agrees %v", key, how, p.Name(), agrees)
					}
					if p.Agrees(digest(t, p, other)) || p.Agrees(nil) {
						t.Errorf("%s %s by its %s agrees with other bytes", key, how, p.Name())
					}
				}
				p, err := changed(t, at, func(h http.Header) {
					noChecksum(h)
					h.Set("x-amz-server-side-encryption", "aws:kms")
				}).Proof(t.Context(), key, "")
				if err != nil || p.Known() || p.Agrees(digest(t, p, content)) {
					t.Errorf("%s with a key of KMS: %+v, %v", key, p, err)
				}
			}
			if _, err := b.Proof(t.Context(), "small", "another"); !errors.Is(err, storage.ErrChanged) {
				t.Errorf("of another ETag: %v", err)
			}
			if _, _, err := b.GetProven(t.Context(), "small", "another"); !errors.Is(err, storage.ErrChanged) {
				t.Errorf("read by another ETag: %v", err)
			}
		})
	}
}

// readProven reads an object, which must have this content, and returns the proof that comes with it.
func readProven(t *testing.T, b *storage.Bucket, key, etag string, content []byte) proof.Proof {
	t.Helper()
	body, p, err := b.GetProven(t.Context(), key, etag)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s has %d bytes, %v", key, len(got), err)
	}
	return p
}

// changed is a target whose server answers with other headers.
func changed(t *testing.T, at storage.Target, change func(http.Header)) *storage.Bucket {
	t.Helper()
	g := newGate(t, at, nil)
	g.forward.ModifyResponse = func(r *http.Response) error {
		change(r.Header)
		return nil
	}
	return open(t, g.through(at), storage.Options{})
}

func noChecksum(h http.Header) {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "x-amz-checksum") {
			h.Del(name)
		}
	}
}
