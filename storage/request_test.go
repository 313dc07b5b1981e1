package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/storage"
)

// oddKeys are those whose path in a URL is not what it looks like.
var oddKeys = []string{
	"plain", "a b", "a+b", "100%", "100%25", "%2F", "a//b", "/a", "a/", "//", ".", "..", "a/../b", "~user", "a~b_c-d.e",
	"é", "日本/語", "e\u0301", "\u202f\u2028", "?x=1&y", "#", "a&b=c;d", "\"'`<>|\\^{}[]", "!$()*,:@", "tab\tand\nline", "\x7f\xff",
	strings.Repeat("k", 1024),
}

// Both is an operation as this package does it and as the SDK does it.
type both struct {
	ours func(ctx context.Context, b *storage.Bucket, key string) error
	sdks func(ctx context.Context, b *storage.Bucket, key string) error
}

// bothOf are all operations that are not sent by the SDK, in each form that they have.
func bothOf() map[string]both {
	small, large := noise(100), noise(3<<20) // the server is asked first whether it wants the large one
	all := map[string]both{
		"HEAD": {
			func(ctx context.Context, b *storage.Bucket, key string) error { return b.HeadAlone(ctx, key) },
			func(ctx context.Context, b *storage.Bucket, key string) error {
				_, err := b.Conn().API.HeadObject(ctx, &s3.HeadObjectInput{Bucket: aws.String(b.Name()), Key: &key, ChecksumMode: types.ChecksumModeEnabled})
				return err
			},
		},
		"copy": {
			func(ctx context.Context, b *storage.Bucket, key string) error {
				_, err := b.CopyWhole(ctx, storage.Source{Bucket: b, Key: "a b+~/é", IfMatch: "0f"}, key, alone(small))
				return err
			},
			func(ctx context.Context, b *storage.Bucket, key string) error {
				up := describe(small)
				_, err := b.Conn().API.CopyObject(ctx, &s3.CopyObjectInput{
					Bucket: aws.String(b.Name()), Key: &key, CopySource: aws.String(b.Name() + "/a%20b%2B~/%C3%A9"),
					CopySourceIfMatch: aws.String(`"0f"`), MetadataDirective: types.MetadataDirectiveReplace,
					ContentType: &up.ContentType, Metadata: up.Metadata, StorageClass: types.StorageClass(b.Class()),
					ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
				})
				return err
			},
		},
	}
	for name, r := range map[string]storage.Range{
		"GET": {Length: -1}, "GET from": {Offset: 7, Length: -1}, "GET range": {Offset: 7, Length: 50, IfMatch: "0f"},
	} {
		all[name] = both{
			func(ctx context.Context, b *storage.Bucket, key string) error { return drained(b.Get(ctx, key, r)) },
			func(ctx context.Context, b *storage.Bucket, key string) error { return getBySDK(ctx, b, key, r) },
		}
	}
	for name, content := range map[string][]byte{"PUT": small, "PUT of nothing": {}, "PUT, streamed": large} {
		up := alone(content)
		all[name] = bothPuts(content, up)
		up.ContentType, up.Metadata, up.SHA256 = "", map[string]string{"empty": ""}, [32]byte{}
		all[name+", undescribed"] = bothPuts(content, up)
	}
	return all
}

// alone describes content that nothing but its own request has to prove.
func alone(content []byte) storage.Upload {
	up := describe(content)
	up.Later = true
	return up
}

func drained(r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

func getBySDK(ctx context.Context, b *storage.Bucket, key string, r storage.Range) error {
	in := &s3.GetObjectInput{Bucket: aws.String(b.Name()), Key: &key}
	switch {
	case r.Length > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	case r.Offset > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.Offset))
	}
	if r.IfMatch != "" {
		in.IfMatch = aws.String(`"` + r.IfMatch + `"`)
	}
	out, err := b.Conn().API.GetObject(ctx, in)
	if err != nil {
		return err
	}
	return drained(out.Body, nil)
}

func bothPuts(content []byte, up storage.Upload) both {
	return both{
		func(ctx context.Context, b *storage.Bucket, key string) error {
			_, err := b.Put(ctx, key, onlyReader{bytes.NewReader(content)}, up)
			return err
		},
		func(ctx context.Context, b *storage.Bucket, key string) error {
			in := &s3.PutObjectInput{
				Bucket: aws.String(b.Name()), Key: &key, ContentLength: &up.Size, Metadata: up.Metadata, StorageClass: types.StorageClass(b.Class()),
			}
			if up.ContentType != "" {
				in.ContentType = &up.ContentType
			}
			if len(content) > 0 {
				in.Body = bytes.NewReader(content)
			}
			if up.SHA256 == [32]byte{} {
				_, err := b.Conn().API.PutObject(ctx, in, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
				return err
			}
			in.ChecksumSHA256 = aws.String(base64.StdEncoding.EncodeToString(up.SHA256[:]))
			_, err := b.Conn().API.PutObject(ctx, in)
			return err
		},
	}
}

// A seen request is what of a request counts for a server.
type seen struct {
	Method, Target, Host, Body string
	Header                     http.Header
	Signed                     []string // names of headers
}

// see leaves out what differs with each request: times, signatures, numbers of the SDK.
func see(t *testing.T, r *http.Request) seen {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error("read the body:", err)
	}
	own := func(name string) bool {
		return strings.HasPrefix(strings.ToLower(name), "amz-sdk-")
	}
	h := r.Header.Clone()
	_, signed, _ := strings.Cut(h.Get("Authorization"), "SignedHeaders=")
	signed, signature, _ := strings.Cut(signed, ", Signature=")
	if len(signature) != 64 || h.Get("X-Amz-Date") == "" || h.Get("User-Agent") == "" {
		t.Errorf("%s %s: headers %v", r.Method, r.RequestURI, h)
	}
	names := strings.Split(signed, ";")
	for _, name := range names {
		if !strings.HasPrefix(name, "x-amz-") && !slices.Contains([]string{"host", "content-length", "content-md5", "content-type"}, name) {
			t.Errorf("%s %s: the signature covers %s, which a proxy may change", r.Method, r.RequestURI, name)
		}
	}
	if r.URL.Query().Has("x-id") {
		t.Errorf("%s %s: x-id is in the query", r.Method, r.RequestURI)
	}
	for name := range h {
		if own(name) || slices.Contains([]string{"Authorization", "X-Amz-Date", "User-Agent"}, name) {
			h.Del(name)
		}
	}
	return seen{
		Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: h, Body: fmt.Sprintf("%d bytes, %x", len(body), sha256.Sum256(body)),
		Signed: names,
	}
}

// To a server it makes no difference which of both clients asks.
func TestRequestsAreThoseOfTheSDK(t *testing.T) {
	t.Parallel()
	var last atomic.Pointer[seen]
	at := storage.Target{Bucket: "127", AccessKeyID: "key", SecretAccessKey: "secret", StorageClass: "GLACIER", Region: "eu-west-3", Checksum: storage.ChecksumSHA256}
	g := newGate(t, target(t, "equal"), func(w http.ResponseWriter, r *http.Request) bool {
		s := see(t, r)
		last.Store(&s)
		w.WriteHeader(http.StatusTeapot) // whatever it is, it is the last word
		return true
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(g.URL, "http://"), ":")
	for name, change := range map[string]func(*storage.Target){
		"bucket in the path":            func(at *storage.Target) { at.Endpoint, at.PathStyle = g.URL, true },
		"bucket in the name":            func(at *storage.Target) { at.Endpoint = "http://0.0.1:" + port },
		"endpoint with a path":          func(at *storage.Target) { at.Endpoint, at.PathStyle = g.URL+"/some/where/", true },
		"endpoint with a path, by name": func(at *storage.Target) { at.Endpoint = "http://0.0.1:" + port + "/s3" },
	} {
		at := at
		change(&at)
		b := open(t, at, storage.Options{})
		for op, do := range bothOf() {
			keys := oddKeys
			if strings.Contains(op, "streamed") {
				keys = oddKeys[:2]
			}
			for _, key := range keys {
				var was [2]*seen
				for i, one := range []func(context.Context, *storage.Bucket, string) error{do.ours, do.sdks} {
					if err := one(t.Context(), b, key); err == nil {
						t.Fatal("the teapot is a server of objects")
					}
					if was[i] = last.Swap(nil); was[i] == nil {
						t.Fatalf("%s, %s of %q: no request by client %d", name, op, key, i)
					}
				}
				asked := was[0].Header.Get("Expect") != "" // the SDK would ask, and not wait for the answer
				if was[0].Header.Del("Expect"); asked != strings.Contains(op, "streamed") {
					t.Errorf("%s, %s of %q: the server was asked whether it wants the body: %t", name, op, key, asked)
				}
				if diff := cmp.Diff(was[1], was[0]); diff != "" {
					t.Errorf("%s, %s of %q (-SDK +ours):\n%s", name, op, key, diff)
				}
			}
		}
	}
}
