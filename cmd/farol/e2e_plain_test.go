package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// plainS3 is a client as depositors have it, with the SDK's own defaults.
func plainS3(t testing.TB, settings map[string]string) *s3.Client {
	t.Helper()
	pem, err := os.ReadFile(settings["FAROL_S3_CA_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("the authority's file holds no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(settings["FAROL_S3_ENDPOINT"]), Region: settings["AWS_REGION"], UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"], ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
}

func putPlainly(t testing.TB, client *s3.Client, bucket, key string, content io.Reader) {
	t.Helper()
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: content}); err != nil {
		t.Fatalf("upload %s: %v", key, err)
	}
}

func plainKeys(t testing.TB, settings map[string]string, bucket string) (keys []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(plainS3(t, settings), &s3.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("list %s: %v", bucket, err)
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys
}
