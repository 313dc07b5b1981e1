package copies

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// errDescription says that the bytes of a copy may be right, and what describes them is not.
var errDescription = errors.New("described otherwise")

// CompareIn compares a copy in a bucket as [Compare] does. What its store changes or loses of every
// object is not compared: it says nothing of the bytes, and the registry has it too.
func CompareIn(ctx context.Context, b *storage.Bucket, object storage.Object, want storage.Upload, f *Content) error {
	err := Compare(object, want, f)
	if !errors.Is(err, errDescription) {
		return err
	}
	return Compare(object, keptOf(ctx, b, want), f)
}

// keptOf is what a store keeps of an object. If that is not known, a trial tells: another
// program may have written the copy.
func keptOf(ctx context.Context, b *storage.Bucket, want storage.Upload) storage.Upload {
	_, types := b.Can(ability.MediaType)
	_, all := b.Can(ability.Metadata)
	if !types || !all {
		tryDescription(ctx, b, want)
	}
	if b.Lacks(ability.MediaType) {
		want.ContentType = ""
	}
	if b.Lacks(ability.Metadata) {
		want.Metadata = nil
	}
	return want
}

// tryDescription writes an object of no bytes, looks at it and deletes it. It is not written where
// it could not be deleted. If we die here, it is left, where farol check --write leaves its own;
// if the store fails here, nothing is learnt, and the copy counts as bad until it is looked at again.
func tryDescription(ctx context.Context, b *storage.Bucket, want storage.Upload) {
	lock, err := b.Lock(ctx)
	if lock != "" || err != nil {
		return
	}
	key := "farol-check/" + strings.ToLower(rand.Text())
	if b.MayErase(ctx, key) != nil {
		return
	}
	trial := storage.Upload{SHA256: sha256.Sum256(nil), MD5: md5.Sum(nil), ContentType: want.ContentType, Metadata: want.Metadata}
	if _, err := b.Put(ctx, key, http.NoBody, trial); err != nil {
		return
	}
	if object, err := b.Head(ctx, key); err == nil {
		b.Described(object, trial)
	}
	_ = b.Erase(ctx, key) // see above
}
