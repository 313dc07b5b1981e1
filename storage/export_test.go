package storage

import "context"

// HeadAlone is Head without its question whether the bucket is there. Its error is not explained.
func (b *Bucket) HeadAlone(ctx context.Context, key string) error {
	_, err := b.head(ctx, key, "", 0)
	return err
}
