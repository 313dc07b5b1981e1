package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"

	"github.com/farol-preservation/farol/storage"
)

// agreed reads a content of a bucket until two reads have the same SHA-256, and
// returns that. It is asked before anything is sent back, given up or passed over for
// its bytes: what differs between two reads is the way's fault.
func agreed(ctx context.Context, b *storage.Bucket, what string, open func() (io.ReadCloser, error)) ([32]byte, error) {
	const most = 4
	var seen [][32]byte
	for range most {
		sum, err := digestOnce(open)
		if err != nil {
			return sum, fmt.Errorf("read %s again: %w", what, err)
		}
		if slices.Contains(seen, sum) {
			return sum, nil
		}
		if seen = append(seen, sum); ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
	}
	return [32]byte{}, wrongAnswer(b, "each read has other bytes", "read %s in %s %d times: each time it has other bytes", what, b.TargetName(), most)
}

func digestOnce(open func() (io.ReadCloser, error)) (sum [32]byte, err error) {
	r, err := open()
	if err != nil {
		return sum, err
	}
	defer r.Close() //nolint:errcheck // it was read to its end, or the error says more
	hash := sha256.New()
	_, err = io.Copy(hash, r)
	return [32]byte(hash.Sum(nil)), err
}
