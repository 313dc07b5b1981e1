package storage_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

const sse, sseKey = "X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"

// writesObject matches the requests that say how an object is stored: of parts, the first.
func writesObject(r *http.Request) bool {
	return r.Method == http.MethodPut && !r.URL.Query().Has("partNumber") && strings.Count(r.URL.Path, "/") > 1 ||
		r.Method == http.MethodPost && r.URL.Query().Has("uploads")
}

// An encrypting store stands before one that does not encrypt: it answers as one that did, and with ETags that
// are no MD5s if a key of KMS was asked for.
func encrypting(t *testing.T, at storage.Target, ignores bool) *gate {
	t.Helper()
	other := func(etag string) string { // there and back
		b := []byte(strings.Trim(etag, `"`))
		slices.Reverse(b)
		return `"` + string(b) + `"`
	}
	g := newGate(t, at, func(_ http.ResponseWriter, r *http.Request) bool {
		for _, name := range []string{"If-Match", "X-Amz-Copy-Source-If-Match"} {
			if v := r.Header.Get(name); v != "" && strings.HasPrefix(at.Encryption, "aws:kms") {
				r.Header.Set(name, other(v))
			}
		}
		return false
	})
	g.forward.ModifyResponse = func(r *http.Response) error {
		reads := r.Request.Method == http.MethodHead || r.Request.Method == http.MethodGet
		switch {
		case ignores || r.StatusCode >= http.StatusMultipleChoices:
		case writesObject(r.Request):
			r.Header.Set(sse, r.Request.Header.Get(sse))
		case reads && r.Header.Get("Etag") != "":
			r.Header.Set(sse, at.Encryption)
		}
		if etag := r.Header.Get("Etag"); strings.HasPrefix(at.Encryption, "aws:kms") && len(etag) == 34 && !r.Request.URL.Query().Has("partNumber") {
			r.Header.Set("Etag", other(etag))
		}
		return nil
	}
	return g
}

// Every write asks for the encryption of its target, with the key, and believes the answer.
func TestWritesAreEncrypted(t *testing.T) {
	t.Parallel()
	for _, way := range [][2]string{{"AES256", ""}, {"aws:kms", "arn:aws:kms:us-east-1:123456789012:key/a"}, {"aws:kms:dsse", ""}} {
		t.Run(way[0], func(t *testing.T) {
			t.Parallel()
			at := target(t, "encrypted")
			create(t, at)
			at.Encryption, at.KMSKey = way[0], way[1]
			g := encrypting(t, at, false)
			client := storage.NewClient(storage.Options{})
			t.Cleanup(client.Close)
			b := must.Get(client.Bucket(g.through(at)))(t)
			content := noise(2*minPart + 17)
			small := noise(100)
			put(t, b, "small", small)
			must.Get(b.PutParts(t.Context(), "large", describe(content), describeParts(content)))(t)
			o := head(t, b, "small")
			must.Get(b.Copy(t.Context(), storage.Source{Bucket: b, Key: "small", IfMatch: o.ETag}, "copy", describe(small), storage.Parts{}))(t)
			if !bytes.Equal(get(t, b, "copy"), small) || !bytes.Equal(get(t, b, "large"), content) {
				t.Error("other bytes came back")
			}
			if may, known := b.Can(ability.ETagMD5); strings.HasPrefix(way[0], "aws:kms") && (may || !known) {
				t.Error("ETags are believed")
			}
			at.Encryption, at.KMSKey, at.Name = "", "", "other"
			other := must.Get(client.Bucket(g.through(at)))(t)
			if may, known := other.Can(ability.ETagMD5); known && !may {
				t.Error("of another bucket, ETags are not believed either")
			}
			n := g.count(func(r *http.Request) bool {
				if writesObject(r) && (r.Header.Get(sse) != way[0] || r.Header.Get(sseKey) != way[1]) {
					t.Errorf("%s %s asks for %q by %q", r.Method, r.URL, r.Header.Get(sse), r.Header.Get(sseKey))
				}
				return writesObject(r)
			})
			if n < 3 {
				t.Errorf("only %d writes", n)
			}
			if p := must.Get(b.Proof(t.Context(), "small", o.ETag))(t); !p.Known() || p.Name() == "MD5" && at.KMSKey != "" {
				t.Errorf("proof: %s", p.Name())
			}
		})
	}
}

// A store that takes the header and encrypts nothing is found out, and keeps nothing.
func TestStoreThatDoesNotEncrypt(t *testing.T) {
	t.Parallel()
	at := target(t, "plain")
	create(t, at)
	at.Encryption = "AES256"
	g := encrypting(t, at, true)
	b := open(t, g.through(at), storage.Options{})
	content := noise(2*minPart + 17)
	_, small := b.Put(t.Context(), "small", bytes.NewReader(content[:10]), describe(content[:10]))
	_, large := b.PutParts(t.Context(), "large", describe(content), describeParts(content))
	for what, err := range map[string]error{"small": small, "large": large} {
		if err == nil || !strings.Contains(err.Error(), "AES256") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left := leftIn(t, b); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
