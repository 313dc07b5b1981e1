package storage

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// resume learns what the server has of an earlier upload. If we died between its
// completion and the report of it, the upload is gone and the object is there:
// then it is returned, and nothing has to be sent again.
func (u *upload) resume(ctx context.Context) (Object, error) {
	if u.parts.Resume == "" {
		return Object{}, nil
	}
	err := u.learn(ctx)
	if errors.Is(err, wire.ErrNoUpload) {
		clear(u.done)
		o, err := u.finished(ctx)
		if errors.Is(err, ErrNotFound) || errors.Is(err, errOther) {
			return Object{}, nil
		}
		return o, err
	}
	if err != nil {
		return Object{}, fmt.Errorf("upload %s: %w", u.parts.Resume, err)
	}
	u.id, u.kept = u.parts.Resume, true
	if u.mixed { // the parts of an upload have checksums, or none has
		u.abort(ctx)
		clear(u.done)
		u.id, u.kept = "", false
	}
	return Object{}, nil
}

// learn takes over the parts of the earlier upload that are as they should be.
func (u *upload) learn(ctx context.Context) error {
	for p, err := range u.bucket.parts(ctx, u.key, u.parts.Resume) {
		if err != nil {
			return err
		}
		u.mixed = u.mixed || u.checksums() != (p.ChecksumSHA256 != nil)
		if u.usable(p) {
			u.done[*p.PartNumber] = types.CompletedPart{PartNumber: p.PartNumber, ETag: p.ETag, ChecksumSHA256: p.ChecksumSHA256}
		}
	}
	return nil
}

func (u *upload) usable(p types.Part) bool {
	if p.PartNumber == nil || p.ETag == nil {
		return false
	}
	want := u.part(*p.PartNumber)
	if want.length <= 0 || aws.ToInt64(p.Size) != want.length {
		return false
	}
	switch {
	case !want.checksums() && known(want.md5[:]) && u.bucket.can(ability.ETagMD5):
		return wire.Unquoted(aws.ToString(p.ETag)) == ExpectedETag(want.md5, nil)
	case !want.checksums() || !known(want.sum[:]):
		u.unproven.Store(u.unproven.Load() || !want.checksums())
		return true // nothing else to go by
	}
	return aws.ToString(p.ChecksumSHA256) == ExpectedChecksum(want.sum, nil)
}

// composite is "" if the parts' digests are not known.
func (u *upload) composite() string {
	sums := u.parts.SHA256
	if u.proof == byTrailer {
		sums = u.sums()
	}
	if !u.checksums() || len(sums) == 0 {
		return ""
	}
	return ExpectedChecksum([32]byte{}, sums)
}

// sums are the digests of the parts that the server has; nil if it does not tell all.
func (u *upload) sums() [][32]byte {
	var sums [][32]byte
	for number := range int32(len(u.done)) { //nolint:gosec // at most maxParts
		sum, err := base64.StdEncoding.DecodeString(aws.ToString(u.done[number+1].ChecksumSHA256))
		if err != nil || len(sum) != sha256.Size {
			return nil
		}
		sums = append(sums, [sha256.Size]byte(sum))
	}
	return sums
}

// etag is "" unless every part is known by its MD5.
func (u *upload) etag() string {
	if u.parts.MD5 != nil {
		return ExpectedETag([md5.Size]byte{}, u.parts.MD5)
	}
	var sums [][16]byte
	for number := int32(1); ; number++ {
		p, ok := u.done[number]
		if !ok {
			break
		}
		sum, err := hex.DecodeString(wire.Unquoted(aws.ToString(p.ETag)))
		if err != nil || len(sum) != md5.Size {
			return ""
		}
		sums = append(sums, [md5.Size]byte(sum))
	}
	if len(sums) == 0 || int64(len(sums))*u.parts.Size < u.up.Size {
		return ""
	}
	return ExpectedETag([16]byte{}, sums)
}

var errOther = errors.New("another object has the key")

// describes reports whether an object may be this one, by all but its bytes.
func (u *upload) describes(o Object) bool {
	sameType := u.up.ContentType == "" || o.ContentType == u.up.ContentType || u.bucket.Lacks(ability.MediaType)
	return o.Size == u.up.Size && sameType && (maps.Equal(o.Metadata, u.up.Metadata) || u.bucket.Lacks(ability.Metadata))
}

// finished returns the object if it is beyond doubt the one of this upload. What the server says
// of it may not tell: then it is read.
func (u *upload) finished(ctx context.Context) (Object, error) {
	o, err := u.bucket.Head(ctx, u.key)
	if err != nil {
		return Object{}, err
	}
	sum, etag := u.composite(), u.etag()
	switch {
	case !u.describes(o), sum != "" && o.SHA256 != "" && o.SHA256 != sum:
		return Object{}, errOther
	case sum != "" && o.SHA256 == sum, etag != "" && o.ETag == etag:
		return o, nil
	case !u.canReadBack():
		return Object{}, errOther
	}
	if err := u.readBack(ctx); err != nil {
		if errors.Is(err, ErrDigest) {
			err = errOther
		}
		return Object{}, err
	}
	return o, nil
}
