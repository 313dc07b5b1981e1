package testenv

import (
	"crypto/rand"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// S3Server is an S3 gateway over TLS, with storage classes. Cold objects take
// [RestoreDelay] to restore.
type S3Server struct {
	devstack.Gateway
	Plain  string // http://127.0.0.1:port: the same for browsers
	Prefix string // of bucket names, 13 characters; no other test has it
}

// S3 returns the gateway, with a prefix for the buckets of this test. Buckets
// need not be removed.
func S3(t testing.TB) S3Server {
	t.Helper()
	s := stack(t, devstack.S3)
	return S3Server{Gateway: s.Gateway(), Plain: s.S3Plain, Prefix: "t" + strings.ToLower(rand.Text()[:11]) + "-"}
}

// Decay changes an object on the server's disk. What the server says of its bytes, which it
// keeps elsewhere, stays.
func (s S3Server) Decay(t testing.TB, bucket, key string, change func(content []byte) []byte) {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.CAFile), "buckets", bucket, key)
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(content), 0) // the file is there, with its attributes
	}
	if err != nil {
		t.Error("testenv: damage an object:", err)
	}
}

// Client is a client of the SDK's own, for a test that must not use Farol's code to see the server.
func (s S3Server) Client(t testing.TB) *s3.Client {
	t.Helper()
	return s.Gateway.Client(s.transport(t))
}

// Proxy forwards requests to the server as they are, since they are signed.
func (s S3Server) Proxy(t testing.TB) *httputil.ReverseProxy {
	t.Helper()
	proxy, err := s.Gateway.Proxy(s.transport(t))
	must(t, err)
	return proxy
}

// transport trusts the server, and passes on the bytes as they come.
func (s S3Server) transport(t testing.TB) *http.Transport {
	t.Helper()
	transport, err := s.Transport()
	must(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// SetVersioning has a bucket keep a version of each object that is replaced or
// deleted, or has one that did so cease to: those that it has stay.
func (s S3Server) SetVersioning(t testing.TB, bucket string, keep bool) {
	t.Helper()
	client := s.Client(t)
	status := types.BucketVersioningStatusSuspended
	if keep {
		status = types.BucketVersioningStatusEnabled
	}
	if _, err := client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: status},
	}); err != nil {
		t.Fatal("testenv: set the versioning of "+bucket+":", err)
	}
}

// CreateLocked makes a bucket with Object Lock, which keeps versions.
func (s S3Server) CreateLocked(t testing.TB, bucket string) {
	t.Helper()
	if _, err := s.Client(t).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket, ObjectLockEnabledForBucket: aws.Bool(true)}); err != nil {
		t.Fatal("testenv: make the locked bucket "+bucket+":", err)
	}
}

// Retain has the server keep all versions of a key until a time to come, under governance. It
// sets an earlier one too, as only an administrator may.
func (s S3Server) Retain(t testing.TB, bucket, key string, until time.Time) {
	t.Helper()
	s.eachVersion(t, bucket, key, func(client *s3.Client, version *string) error {
		_, err := client.PutObjectRetention(t.Context(), &s3.PutObjectRetentionInput{
			Bucket: &bucket, Key: &key, VersionId: version, BypassGovernanceRetention: aws.Bool(true),
			Retention: &types.ObjectLockRetention{Mode: types.ObjectLockRetentionModeGovernance, RetainUntilDate: &until},
		})
		return err
	})
}

// LegalHold puts all versions of a key under a legal hold, or lifts it.
func (s S3Server) LegalHold(t testing.TB, bucket, key string, on bool) {
	t.Helper()
	status := types.ObjectLockLegalHoldStatusOff
	if on {
		status = types.ObjectLockLegalHoldStatusOn
	}
	s.eachVersion(t, bucket, key, func(client *s3.Client, version *string) error {
		_, err := client.PutObjectLegalHold(t.Context(), &s3.PutObjectLegalHoldInput{
			Bucket: &bucket, Key: &key, VersionId: version, LegalHold: &types.ObjectLockLegalHold{Status: status},
		})
		return err
	})
}

// eachVersion does something with each version of a key; there is at least one.
func (s S3Server) eachVersion(t testing.TB, bucket, key string, do func(client *s3.Client, version *string) error) {
	t.Helper()
	client := s.Client(t)
	list, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &key})
	must(t, err)
	done := 0
	for _, v := range list.Versions {
		if *v.Key != key {
			continue
		}
		if err := do(client, v.VersionId); err != nil {
			t.Fatal("testenv: lock "+bucket+"/"+key+":", err)
		}
		done++
	}
	if done == 0 {
		t.Fatalf("testenv: %s/%s has no version to lock", bucket, key)
	}
}
