package upkeep

import (
	"context"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/requests"
)

// restorations aborts the multipart uploads that restorations have left in restoration
// buckets. A worker that died while it gave a bag its name leaves one, and its item may
// be cancelled before another attempt removes it.
func (r *round) restorations(ctx context.Context) error {
	return eachInstitution(ctx, r.Registry, false, "the restoration bucket of", r.restorationsOf)
}

func (r *round) restorationsOf(ctx context.Context, in record.Institution) error {
	bucket, err := r.Receiving(in.RestoreBucket)
	if err != nil {
		return err
	}
	for u, err := range bucket.OpenUploads(ctx) {
		if err != nil {
			return err
		}
		if !strings.HasPrefix(u.Key, in.Identifier+"/") {
			continue // restorations make no such names
		}
		// The upload is older than the look, so that no restoration that begins now owns it.
		live, err := requests.In(r.Registry).BeingRestored(ctx, u.Key)
		if err != nil {
			return err
		}
		if live {
			continue
		}
		t := thing{store: "restoration", name: in.RestoreBucket + "/" + u.Key}
		if err := r.ownerless(ctx, bucket, u, t, r.OrphanAge); err != nil {
			return err
		}
	}
	return nil
}
