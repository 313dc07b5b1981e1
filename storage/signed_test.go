package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/setup"
)

// page sends what a page in a browser sends, which has no key of ours.
type page struct {
	t      *testing.T
	client *http.Client
}

func newPage(t *testing.T) page {
	t.Helper()
	pem := must.Get(os.ReadFile(testenv.S3(t).CAFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return page{t, &http.Client{Transport: transport}}
}

// puts sends bytes to a URL, and returns the status and the words of the answer; 0: there was
// none.
func (p page) puts(at storage.PartURL, content []byte) (int, string) {
	p.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPut, at.URL, bytes.NewReader(content)))(p.t)
	for k, v := range at.Header {
		r.Header[k] = v
	}
	answer, err := p.client.Do(r)
	if err != nil { // the server may close the connection on what it does not want
		return 0, err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(answer.Body)
	if err != nil { // likewise, before its answer has been read
		return answer.StatusCode, err.Error()
	}
	return answer.StatusCode, string(text)
}

func begin(t *testing.T, b *storage.Bucket, key string) storage.OpenUpload {
	t.Helper()
	return must.Get(b.BeginUpload(t.Context(), key, "application/x-tar"))(t)
}

func sign(t *testing.T, b *storage.Bucket, u storage.OpenUpload, number int, content []byte) storage.PartURL {
	t.Helper()
	return must.Get(b.SignPart(t.Context(), u, number, int64(len(content)), sha256.Sum256(content), time.Hour))(t)
}

// cut is content in the parts in which a program sends it.
func cut(content []byte) (parts [][]byte) {
	size := int(storage.SignedPartSize(int64(len(content))))
	for from := 0; from < len(content); from += size {
		parts = append(parts, content[from:min(from+size, len(content))])
	}
	return parts
}

// sends has the page send parts of an upload.
func (p page) sends(b *storage.Bucket, u storage.OpenUpload, parts [][]byte, numbers ...int) {
	p.t.Helper()
	for _, n := range numbers {
		if status, text := p.puts(sign(p.t, b, u, n, parts[n-1]), parts[n-1]); status != http.StatusOK {
			p.t.Fatalf("part %d: %d %s", n, status, text)
		}
	}
}

// What one page has begun, another can go on with, and what comes of it is the file.
func TestOthersSendPartsBySignedURLs(t *testing.T) {
	t.Parallel()
	b, p := create(t, target(t, "signed")), newPage(t)
	content := noise(40 << 20)
	parts, key := cut(content), "a bag+ö%2F.tar"
	u := begin(t, b, key)
	p.sends(b, u, parts, 3, 1)
	sent, err := b.SentParts(t.Context(), u)
	if err != nil || len(sent) != 2 || sent[0].Number != 1 || sent[1].Number != 3 || sent[1].Size != 8<<20 ||
		sent[0].SHA256 != storage.ExpectedChecksum(sha256.Sum256(parts[0]), nil) {
		t.Fatalf("%+v, %v", sent, err)
	}
	for _, size := range []int64{40 << 20, 24 << 20} {
		if _, err = b.CompleteUpload(t.Context(), u, size, false); !errors.Is(err, storage.ErrIncomplete) {
			t.Fatalf("%d bytes without part 2: %v", size, err)
		}
	}
	p.sends(b, u, parts, 2)
	for _, size := range []int{0, len(content) - 1, len(content) + 1, 48<<20 + 1, 32 << 20} {
		if _, err := b.CompleteUpload(t.Context(), u, int64(size), false); !errors.Is(err, storage.ErrIncomplete) {
			t.Errorf("as %d bytes: %v", size, err)
		}
	}
	o := must.Get(b.CompleteUpload(t.Context(), u, int64(len(content)), false))(t)
	if !bytes.Equal(get(t, b, key), content) || head(t, b, key).ETag != o.ETag {
		t.Error("the object is not what was sent")
	}
	if _, err := b.CompleteUpload(t.Context(), u, int64(len(content)), false); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("once more: %v", err)
	}
}

// A URL is good for one part of one content, and for nothing else.
func TestASignedURLIsForOnePart(t *testing.T) {
	t.Parallel()
	b, p := create(t, target(t, "signed")), newPage(t)
	u, content, other := begin(t, b, "bag.tar"), noise(6<<20), noise(6<<20)
	other[0]++
	good := sign(t, b, u, 1, content)
	refused := func(what string, at storage.PartURL, content []byte) {
		t.Helper()
		if status, text := p.puts(at, content); status/100 == 2 {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	refused("another content", good, other)
	refused("a longer one", good, append(content, 'x'))
	refused("without the checksum", storage.PartURL{URL: good.URL}, content)
	refused("another checksum", storage.PartURL{URL: good.URL, Header: sign(t, b, u, 1, other).Header}, other)
	for old, with := range map[string]string{"partNumber=1": "partNumber=2", "bag.tar": "bog.tar", "X-Amz-Expires=3600": "X-Amz-Expires=7200", u.ID: begin(t, b, "bag.tar").ID} {
		at := bytes.Replace([]byte(good.URL), []byte(old), []byte(with), 1)
		if string(at) == good.URL {
			t.Fatalf("%s is not in %s", old, good.URL)
		}
		refused(with, storage.PartURL{URL: string(at), Header: good.Header}, content)
	}
	if sent, err := b.SentParts(t.Context(), u); err != nil || len(sent) != 0 {
		t.Errorf("%+v, %v", sent, err)
	}
}

// An object is replaced where that was decided, and an upload is known by its key, too.
func TestCompletingReplacesNothingByItself(t *testing.T) {
	t.Parallel()
	b, p := create(t, target(t, "signed")), newPage(t)
	content := noise(1000)
	before := put(t, b, "bag.tar", noise(10))
	u := begin(t, b, "bag.tar")
	p.sends(b, u, cut(content), 1)
	if _, err := b.CompleteUpload(t.Context(), u, 1000, false); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("over another object: %v", err)
	}
	if head(t, b, "bag.tar").ETag != before.ETag {
		t.Error("the object was replaced")
	}
	other := storage.OpenUpload{Key: "other.tar", ID: u.ID}
	if _, err := b.CompleteUpload(t.Context(), other, 1000, true); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	must.Get(b.CompleteUpload(t.Context(), u, 1000, true))(t)
	if !bytes.Equal(get(t, b, "bag.tar"), content) {
		t.Error("the object was not replaced")
	}
	u = begin(t, b, "gone.tar")
	must.Do(t, b.Abort(t.Context(), u))
	if _, err := b.SentParts(t.Context(), u); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("an aborted upload: %v", err)
	}
}

func TestSignedParts(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{1: 16 << 20, 100 << 30: 16 << 20, 156 << 30: 16 << 20, 160 << 30: 17 << 20, storage.MaxObject: 525 << 20} {
		part := storage.SignedPartSize(size)
		if part != want || (size+part-1)/part > 10_000 {
			t.Errorf("%d bytes are sent in parts of %d", size, part)
		}
	}
}

// Browsers are let in from one origin, and the rules that others have made stay.
func TestAllowUploads(t *testing.T) {
	t.Parallel()
	at := target(t, "signed")
	b, p := create(t, at), newPage(t)
	const ours, origin = "https://old.example.org", "https://farol.example.org"
	if ok, err := setup.AllowsUploads(t.Context(), b.Conn(), origin); ok || err != nil {
		t.Fatalf("at first: %v, %v", ok, err)
	}
	client := testenv.S3(t).Client(t)
	must.Get(client.PutBucketCors(t.Context(), &s3.PutBucketCorsInput{Bucket: &at.Bucket, CORSConfiguration: &types.CORSConfiguration{CORSRules: []types.CORSRule{
		{ID: aws.String("theirs"), AllowedMethods: []string{"GET"}, AllowedOrigins: []string{"*"}},
		{AllowedMethods: []string{"PUT"}, AllowedOrigins: []string{"https://*.example.com"}, AllowedHeaders: []string{"x-amz-*"}},
	}}}))(t)
	for _, o := range []string{ours, origin, origin} {
		must.Do(t, setup.AllowUploads(t.Context(), b.Conn(), o))
	}
	for o, want := range map[string]bool{origin: true, ours: false, "https://a.example.com": true, "https://a.example.com.evil.org": false, "http://farol.example.org": false} {
		if ok, err := setup.AllowsUploads(t.Context(), b.Conn(), o); ok != want || err != nil {
			t.Errorf("%s: %v, %v", o, ok, err)
		}
		if got := p.preflight(sign(t, b, begin(t, b, "bag.tar"), 1, nil).URL, o); got != want {
			t.Errorf("the server lets in %s: %v", o, got)
		}
	}
	out, err := client.GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &at.Bucket})
	if err != nil || len(out.CORSRules) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
}

// preflight asks as a browser does whether a page of an origin may send a part.
func (p page) preflight(url, origin string) bool {
	p.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodOptions, url, nil))(p.t)
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", http.MethodPut)
	r.Header.Set("Access-Control-Request-Headers", "x-amz-checksum-sha256")
	answer, err := p.client.Do(r)
	must.Do(p.t, err)
	defer answer.Body.Close() //nolint:errcheck // not read
	allowed := answer.Header.Get("Access-Control-Allow-Origin")
	return answer.StatusCode/100 == 2 && (allowed == origin || allowed == "*")
}
