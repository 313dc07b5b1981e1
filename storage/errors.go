package storage

import (
	"context"
	"errors"

	"github.com/farol-preservation/farol/storage/wire"
)

// What the wire tells apart has its names here too; the comments are there.
var (
	ErrNotFound    = wire.ErrNotFound
	ErrChanged     = wire.ErrChanged
	ErrDenied      = wire.ErrDenied
	ErrDigest      = wire.ErrDigest
	ErrArchived    = wire.ErrArchived
	ErrUnsupported = wire.ErrUnsupported
)

var (
	// ErrStillThere says that an object was to be gone, and it, a version of it or
	// a delete marker is not.
	ErrStillThere = errors.New("still there")

	// errNoTrailers: the server does not understand checksums that follow the bytes.
	errNoTrailers = errors.New("no trailing checksums")
	// errNotWhole: nobody knows whether a listing is complete.
	errNotWhole = errors.New("the answer does not say whether the listing is complete")
)

// final reports whether trying the same again at once is of no use.
func final(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	for _, kind := range []error{
		ErrNotFound, ErrChanged, ErrDenied, ErrArchived, ErrUnsupported, errNoTrailers, wire.ErrNoUpload,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	if code, _ := wire.Words(err); errors.Is(err, ErrDigest) && code == "" { // what the server refused, it does not have
		return true
	}
	var rewind *RewindError
	return errors.As(err, &rewind) || wire.OtherWay(err)
}
