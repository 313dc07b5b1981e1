package testenv_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestEveryTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	one, two := testenv.Database(t), testenv.Database(t)
	for _, statement := range []string{"CREATE TABLE mine (x int)", "SELECT count(*) FROM work_items"} {
		if _, err := one.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.Exec(t.Context(), "SELECT * FROM mine"); err == nil {
		t.Error("the second database has the table of the first")
	}
}

func TestEveryTestHasARedisDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	one, two := testenv.Redis(t), testenv.Redis(t)
	if err := one.Set(t.Context(), "key", "one", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := two.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("the second database has %d keys, %v; want none", n, err)
	}
}

func TestS3TakesAndGivesOverTLS(t *testing.T) {
	t.Parallel()
	at := testenv.S3(t)
	client := s3Client(t, at, at.Endpoint)
	bucket := aws.String(at.Prefix + "bucket")
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: bucket}); err != nil {
		t.Error(err)
	}
}

func s3Client(t *testing.T, at testenv.S3Server, endpoint string) *s3.Client {
	t.Helper()
	pem, err := os.ReadFile(at.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in the CA file")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return s3.New(s3.Options{
		BaseEndpoint: &endpoint, Region: at.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(at.AccessKeyID, at.SecretAccessKey, ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
}
