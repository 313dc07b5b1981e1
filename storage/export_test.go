package storage

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// SDK is the client by which the bucket sends what is not a request of its own.
func (b *Bucket) SDK() *s3.Client { return b.api }

// Explained is what this package makes of an error of either client.
func (b *Bucket) Explained(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return b.explain(ctx, err)
}

// HeadAlone is Head without its question whether the bucket is there.
func (b *Bucket) HeadAlone(ctx context.Context, key string) error {
	_, _, err := b.head(ctx, key, "", 0)
	return b.Explained(ctx, err)
}
