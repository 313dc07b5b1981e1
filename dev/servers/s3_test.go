package servers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func s3Client(t *testing.T, s *devstack.Stack) *s3.Client {
	t.Helper()
	transport := must.Get(s.Gateway().Transport())(t)
	t.Cleanup(transport.CloseIdleConnections)
	return s.Gateway().Client(transport)
}

func makeBucket(t *testing.T, client *s3.Client, bucket string) {
	t.Helper()
	must.Get(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}))(t)
}

func put(t *testing.T, client *s3.Client, bucket, key, content string, class types.StorageClass) {
	t.Helper()
	must.Get(client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: strings.NewReader(content), StorageClass: class,
	}))(t)
}

func get(t *testing.T, client *s3.Client, bucket, key string) string {
	t.Helper()
	out := must.Get(client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key}))(t)
	defer out.Body.Close() //nolint:errcheck // read to its end
	b := must.Get(io.ReadAll(out.Body))(t)
	return string(b)
}

func head(t *testing.T, client *s3.Client, bucket, key string) *s3.HeadObjectOutput {
	t.Helper()
	out := must.Get(client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &key}))(t)
	return out
}

// code is S3's name for an error.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// gateway runs S3 alone, on a file system with extended attributes or as if it
// had none.
func gateway(t *testing.T, sidecar bool) *s3.Client {
	t.Helper()
	dir := filepath.Join(tempDir(t), "data")
	if sidecar {
		must.Do(t, os.MkdirAll(filepath.Join(dir, "s3", "sidecar"), 0o700))
	}
	return s3Client(t, start(t, devstack.Options{
		Dir: dir, Only: []devstack.Service{devstack.S3}, RestoreDelay: 200 * time.Millisecond,
	}))
}

func withAndWithoutAttributes(t *testing.T, test func(*testing.T, *s3.Client)) {
	t.Helper()
	for name, sidecar := range map[string]bool{"attributes": false, "sidecar": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, gateway(t, sidecar))
		})
	}
}

func TestStorageClassIsKept(t *testing.T) {
	t.Parallel()
	withAndWithoutAttributes(t, func(t *testing.T, client *s3.Client) {
		t.Helper()
		ctx := t.Context()
		makeBucket(t, client, "classes")
		put(t, client, "classes", "plain", "content", "")
		put(t, client, "classes", "put", "content", types.StorageClassGlacier)
		must.Get(client.CopyObject(ctx, &s3.CopyObjectInput{
			Bucket: aws.String("classes"), Key: aws.String("copy"), CopySource: aws.String("classes/plain"),
			StorageClass: types.StorageClassDeepArchive,
		}))(t)
		multipart(t, client, "classes", "multi", types.StorageClassGlacierIr)

		want := map[string]types.StorageClass{
			"plain": "", "put": types.StorageClassGlacier,
			"copy": types.StorageClassDeepArchive, "multi": types.StorageClassGlacierIr,
		}
		list := must.Get(client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("classes")}))(t)
		listed := map[string]types.ObjectStorageClass{}
		for _, o := range list.Contents {
			listed[*o.Key] = o.StorageClass
		}
		for key, class := range want {
			if got := head(t, client, "classes", key).StorageClass; got != class {
				t.Errorf("HEAD of %s has class %q, want %q", key, got, class)
			}
			if class == "" {
				class = types.StorageClassStandard
			}
			if got := listed[key]; string(got) != string(class) {
				t.Errorf("the list has class %q for %s, want %q", got, key, class)
			}
		}

		// An object that replaces a cold one is what it says itself.
		put(t, client, "classes", "put", "new", "")
		if got := get(t, client, "classes", "put"); got != "new" {
			t.Errorf("read %q", got)
		}
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("classes"), Key: aws.String("odd"), StorageClass: "GLACIAL"})
		if code(err) != "InvalidStorageClass" {
			t.Errorf("PUT with an unknown class = %v, want InvalidStorageClass", err)
		}
	})
}

func multipart(t *testing.T, client *s3.Client, bucket, key string, class types.StorageClass) {
	t.Helper()
	up := must.Get(client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key, StorageClass: class}))(t)
	var parts []types.CompletedPart
	for n, size := range []int{5 << 20, 10} {
		number := aws.Int32(int32(n + 1))
		part := must.Get(client.UploadPart(t.Context(), &s3.UploadPartInput{
			Bucket: &bucket, Key: &key, UploadId: up.UploadId, PartNumber: number, Body: bytes.NewReader(make([]byte, size)),
		}))(t)
		parts = append(parts, types.CompletedPart{ETag: part.ETag, PartNumber: number})
	}
	must.Get(client.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: &bucket, Key: &key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}))(t)
}

func TestColdObjectIsReadableOnlyOnceRestored(t *testing.T) {
	t.Parallel()
	withAndWithoutAttributes(t, func(t *testing.T, client *s3.Client) {
		t.Helper()
		ctx := t.Context()
		makeBucket(t, client, "cold")
		put(t, client, "cold", "key", "content", types.StorageClassGlacier)
		if _, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("cold"), Key: aws.String("key")}); code(err) != "InvalidObjectState" {
			t.Errorf("GET = %v, want InvalidObjectState", err)
		}
		_, err := client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: aws.String("cold"), Key: aws.String("other"), CopySource: aws.String("cold/key")})
		if code(err) != "InvalidObjectState" {
			t.Errorf("COPY = %v, want InvalidObjectState", err)
		}

		must.Do(t, restore(ctx, client, "key"))
		if got := aws.ToString(head(t, client, "cold", "key").Restore); got != `ongoing-request="true"` {
			t.Errorf("x-amz-restore is %q just after the request", got)
		}
		if err := restore(ctx, client, "key"); code(err) != "RestoreAlreadyInProgress" {
			t.Errorf("a second RestoreObject = %v, want RestoreAlreadyInProgress", err)
		}
		testenv.Eventually(t, "the object is not restored", func() bool {
			return strings.HasPrefix(aws.ToString(head(t, client, "cold", "key").Restore), `ongoing-request="false", expiry-date="`)
		})
		if got := get(t, client, "cold", "key"); got != "content" {
			t.Errorf("read %q after the restoration", got)
		}
		if got := head(t, client, "cold", "key").StorageClass; got != types.StorageClassGlacier {
			t.Errorf("the class became %q", got)
		}
		if err := restore(ctx, client, "key"); err != nil {
			t.Errorf("RestoreObject of a restored object = %v, want it to stay for longer", err)
		}
		if got := get(t, client, "cold", "key"); got != "content" {
			t.Errorf("read %q after the second restoration", got)
		}

		put(t, client, "cold", "warm", "content", "")
		if err := restore(ctx, client, "warm"); code(err) != "InvalidObjectState" {
			t.Errorf("RestoreObject of a standard object = %v, want InvalidObjectState", err)
		}
		if err := restore(ctx, client, "missing"); code(err) != "NoSuchKey" {
			t.Errorf("RestoreObject of nothing = %v, want NoSuchKey", err)
		}
	})
}

func restore(ctx context.Context, client *s3.Client, key string) error {
	_, err := client.RestoreObject(ctx, &s3.RestoreObjectInput{
		Bucket: aws.String("cold"), Key: &key, RestoreRequest: &types.RestoreRequest{Days: aws.Int32(2)},
	})
	return err
}

// Writers race for one key with If-None-Match, which decides who owns it.
func TestConditionalPutHasOneWinner(t *testing.T) {
	t.Parallel()
	client := gateway(t, false)
	makeBucket(t, client, "race")
	results := make(chan error, 16)
	for range cap(results) {
		go func() {
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("race"), Key: aws.String("key"), Body: strings.NewReader("x"), IfNoneMatch: aws.String("*"),
			})
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		switch err := <-results; {
		case err == nil:
			won++
		case code(err) != "PreconditionFailed":
			t.Errorf("a loser got %v, want PreconditionFailed", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers won", won, cap(results))
	}
}

// Who counts requests finds a line for each, also for one that is refused.
func TestGatewayLogsRequests(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	client := s3Client(t, start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.S3}, S3Log: true}))
	makeBucket(t, client, "logged")
	lines := func() int {
		text := must.Get(os.ReadFile(filepath.Join(dir, "log", "s3-requests.log")))(t)
		return strings.Count(string(text), "\n")
	}
	before := lines()
	put(t, client, "logged", "key", "content", "")
	head(t, client, "logged", "key")
	if got := get(t, client, "logged", "key"); got != "content" {
		t.Errorf("read %q", got)
	}
	if _, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("logged"), Key: aws.String("missing")}); err == nil {
		t.Error("an object was found that is not there")
	}
	must.Get(client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("logged")}))(t)
	if n := lines() - before; n != 5 {
		t.Errorf("%d lines were written for 5 requests", n)
	}
}
