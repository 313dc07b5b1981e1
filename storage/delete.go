package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// deleteAtOnce is how many keys S3 takes in one DeleteObjects.
const deleteAtOnce = 1000

// Delete removes objects. Keys that are not there count as removed. After an
// error some of the keys may be gone; asking again does the rest. What the store keeps
// under Object Lock is a [*Kept]; a bucket that keeps versions gets a delete marker.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	return b.remove(ctx, ids)
}

func (b *Bucket) remove(ctx context.Context, ids []types.ObjectIdentifier) error {
	for batch := range slices.Chunk(ids, deleteAtOnce) {
		if len(batch) == 1 || b.conn.Target.Checksum == ChecksumETag || !b.can(ability.Batch) { // a batch has a checksum
			if err := b.deleteEach(ctx, batch); err != nil {
				return err
			}
			continue
		}
		err := b.deleteBatch(ctx, batch)
		if err == nil {
			b.learn(ability.Batch, nil)
		}
		if wire.OtherWay(err) {
			why := err
			if err = b.deleteEach(ctx, batch); err == nil {
				b.learn(ability.Batch, why)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) deleteBatch(ctx context.Context, ids []types.ObjectIdentifier) error {
	out, err := b.conn.API.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket:            &b.conn.Target.Bucket,
		Delete:            &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	}, s3.WithAPIOptions(smithyhttp.AddContentChecksumMiddleware)) // S3 demands one of the two, others the second
	if err != nil {
		return fmt.Errorf("delete %d keys from %s: %w", len(ids), b.conn.Name(), b.conn.Explain(ctx, err))
	}
	for _, e := range out.Errors {
		code, message := aws.ToString(e.Code), aws.ToString(e.Message)
		err := b.conn.ErrorOf("DeleteObject", code, message)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		err = b.asKept(ctx, types.ObjectIdentifier{Key: e.Key, VersionId: e.VersionId}, code, message, err)
		return b.conn.Wrap("delete", aws.ToString(e.Key), err)
	}
	return nil
}

func (b *Bucket) deleteEach(ctx context.Context, ids []types.ObjectIdentifier) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.options.Concurrency)
	for _, id := range ids {
		group.Go(func() error {
			_, err := b.conn.API.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.conn.Target.Bucket, Key: id.Key, VersionId: id.VersionId})
			if err == nil {
				return nil
			}
			if err = b.conn.Explain(ctx, err); errors.Is(err, ErrNotFound) {
				return nil
			}
			code, message := wire.Words(err)
			return b.conn.Wrap("delete", *id.Key, b.asKept(ctx, id, code, message, err))
		})
	}
	return group.Wait()
}

// AbortUploads aborts the unfinished multipart uploads of keys with this prefix
// that began before a time, by the server's clock, and says how many. It is for
// uploads whose owner died; give those that may be resumed the time they need.
// It goes on after an upload that cannot be aborted and reports the first error.
func (b *Bucket) AbortUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	count := 0
	var first error
	for u, err := range b.uploads(ctx, prefix) {
		if err != nil {
			return count, fmt.Errorf("list uploads in %s: %w", b.conn.Name(), err)
		}
		if u.Begun.IsZero() || !u.Begun.Before(before) || !strings.HasPrefix(u.Key, prefix) {
			continue
		}
		if err := b.Abort(ctx, u); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		count++
	}
	return count, first
}
