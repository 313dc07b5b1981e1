package storage_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// BenchmarkRequests compares what a request of 1 KiB costs this process: by this package, by
// the SDK as this package configures it, and signed by the SDK's signer alone. The server is
// another process, so its CPU is not counted.
func BenchmarkRequests(b *testing.B) {
	s := testenv.S3(b)
	at := storage.Target{
		Bucket: s.Prefix + "bench", Endpoint: s.Endpoint, Region: s.Region, CAFile: s.CAFile, PathStyle: true,
		AccessKeyID: s.AccessKeyID, SecretAccessKey: storage.Secret(s.SecretAccessKey),
	}
	client := storage.NewClient(storage.Options{})
	b.Cleanup(client.Close)
	bucket, err := client.Bucket(at)
	if err == nil {
		err = bucket.Create(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	content := noise(1 << 10)
	up := describe(content)
	must.Get(bucket.Put(b.Context(), "source", bytes.NewReader(content), up))(b)
	bare := bareClient(b, s, at.Bucket)
	puts := bothPuts(content, up)
	part := storage.Range{Length: 1 << 10}
	described := map[string]string{
		"Content-Type": up.ContentType, "X-Amz-Meta-Bagpath": up.Metadata["bagpath"], "X-Amz-Meta-Institution": up.Metadata["institution"],
	}
	for _, op := range []struct {
		name             string
		bare, sdks, ours func(ctx context.Context) error
	}{
		{
			"HEAD",
			func(ctx context.Context) error { return bare(ctx, http.MethodHead, nil, nil) },
			func(ctx context.Context) error {
				_, err := bucket.Conn().API.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &at.Bucket, Key: aws.String("source"), ChecksumMode: types.ChecksumModeEnabled})
				return err
			},
			func(ctx context.Context) error { _, err := bucket.Head(ctx, "source"); return err },
		},
		{
			"GET",
			func(ctx context.Context) error {
				return bare(ctx, http.MethodGet, nil, map[string]string{"Range": "bytes=0-1023"})
			},
			func(ctx context.Context) error { return getBySDK(ctx, bucket, "source", part) },
			func(ctx context.Context) error { return drained(bucket.Get(ctx, "source", part)) },
		},
		{
			"PUT",
			func(ctx context.Context) error { return bare(ctx, http.MethodPut, content, described) },
			func(ctx context.Context) error { return puts.sdks(ctx, bucket, "key") },
			func(ctx context.Context) error { return puts.ours(ctx, bucket, "key") },
		},
	} {
		b.Run(op.name+"/bare", func(b *testing.B) { measure(b, op.bare) })
		b.Run(op.name+"/sdk", func(b *testing.B) { measure(b, op.sdks) })
		b.Run(op.name+"/ours", func(b *testing.B) { measure(b, op.ours) })
	}
}

func measure(b *testing.B, do func(ctx context.Context) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(4)
	var failed atomic.Pointer[error]
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(b.Context()); err != nil {
				failed.Store(&err)
			}
		}
	})
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// bareClient sends signed requests, and knows nothing of S3.
func bareClient(b *testing.B, s testenv.S3Server, bucket string) func(ctx context.Context, method string, body []byte, headers map[string]string) error {
	b.Helper()
	pem := must.Get(os.ReadFile(s.CAFile))(b)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 64, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	key := aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey}
	return func(ctx context.Context, method string, body []byte, headers map[string]string) error {
		name := "/source"
		if body != nil {
			name = "/key"
		}
		r, err := http.NewRequestWithContext(ctx, method, s.Endpoint+"/"+bucket+name, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		if err := signer.SignHTTP(ctx, key, r, "UNSIGNED-PAYLOAD", "s3", s.Region, time.Now()); err != nil {
			return err
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= http.StatusMultipleChoices {
			return errors.New(response.Status)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}
