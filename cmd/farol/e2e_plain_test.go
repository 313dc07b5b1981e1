package main

import (
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// plainS3 is a client as depositors have it, with the SDK's own defaults.
func plainS3(t testing.TB, settings map[string]string) *s3.Client {
	t.Helper()
	gateway := devstack.GatewayOf(settings)
	transport := must.Get(gateway.Transport())(t)
	t.Cleanup(transport.CloseIdleConnections)
	return gateway.Client(transport)
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
