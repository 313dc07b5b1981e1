package storage

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/lock"
)

// Kept says until when a store keeps versions under Object Lock: see [lock.Kept].
type Kept = lock.Kept

// ErrKept says that the store removes a version for nobody: see [lock.ErrKept].
var ErrKept = lock.ErrKept

// Locks returns those of the keys that the store keeps, whichever of their versions it
// is. A bucket without Object Lock is asked once whether it has it, and then nothing.
func (b *Bucket) Locks(ctx context.Context, keys ...string) (map[string]*Kept, error) {
	if may, err := b.mayLock(ctx); err != nil || !may {
		return nil, err
	}
	versions, err := b.versionsOf(ctx, keys...)
	if err != nil {
		return nil, err
	}
	return b.locked(ctx, versions)
}

// free returns the [*Kept] of those of some versions that the store keeps for longest.
func (b *Bucket) free(ctx context.Context, versions []Version) error {
	if may, err := b.mayLock(ctx); err != nil || !may {
		return err
	}
	locks, err := b.locked(ctx, versions)
	if err != nil {
		return err
	}
	var all *Kept
	var one string
	for key, k := range locks {
		all, one = all.And(k), key
	}
	if all == nil {
		return nil
	}
	return b.conn.Wrap("erase", one, all)
}

// locked reads the locks of versions, by key.
func (b *Bucket) locked(ctx context.Context, versions []Version) (map[string]*Kept, error) {
	var mu sync.Mutex
	kept := map[string]*Kept{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.options.Concurrency)
	for _, v := range versions {
		if v.DeleteMarker { // which nothing locks
			continue
		}
		group.Go(func() error {
			k, err := lock.Of(ctx, b.conn, v.Key, nonEmpty(v.ID))
			if k != nil {
				mu.Lock()
				defer mu.Unlock()
				kept[v.Key] = kept[v.Key].And(k)
			}
			return err
		})
	}
	err := group.Wait()
	return kept, err
}

// mayLock asks the server whether the bucket has Object Lock, and remembers the answer. If
// it does not answer us, any bucket may that keeps versions.
func (b *Bucket) mayLock(ctx context.Context) (bool, error) {
	if known := b.locks.Load(); known != nil {
		return *known, nil
	}
	has, err := lock.Configured(ctx, b.conn)
	if failed := lock.Unanswered(ctx, b.conn, err); failed != nil {
		return false, fmt.Errorf("lock configuration of %s: %w", b.conn.Name(), failed)
	}
	if err != nil && errors.Is(b.conn.Explain(ctx, err), ErrDenied) {
		if has.Enabled, err = b.KeepsVersions(ctx); err != nil {
			return false, err
		}
	}
	b.locks.Store(&has.Enabled)
	b.store.Note(b.Name(), func(f *ability.Facts) { f.Lock = has.String() })
	return has.Enabled, nil
}

// Lock is the Object Lock that the bucket gives to objects: "" is none, "on" is one for those who
// ask for it, and else the mode and time that each object gets.
func (b *Bucket) Lock(ctx context.Context) (string, error) {
	if _, err := b.mayLock(ctx); err != nil {
		return "", err
	}
	return b.store.Bucket(b.conn.Target.Bucket).Lock, nil
}

// speaksOfLocks finds the words by which servers refuse to remove what is locked:
// "object protected by object lock", "Object is WORM protected", "ObjectLocked", "object is
// under legal hold".
var speaksOfLocks = regexp.MustCompile(`(?i)object ?lock|\bworm\b|legal ?hold|retention`)

// asKept finds out whether a removal was refused because its version is locked, which we
// had not seen: the error is a [*Kept] then, or else stays what it was.
func (b *Bucket) asKept(ctx context.Context, id types.ObjectIdentifier, code, message string, err error) error {
	speaks := speaksOfLocks.MatchString(code + " " + message)
	if !speaks && !errors.Is(err, ErrDenied) {
		return err
	}
	b.locks.Store(nil) // the bucket may have got it since we asked
	k, failed := lock.Of(ctx, b.conn, aws.ToString(id.Key), nonEmpty(aws.ToString(id.VersionId)))
	if failed != nil {
		return err
	}
	if k == nil && speaks { // and the lock is not shown to us
		if may, failed := b.mayLock(ctx); failed == nil && may {
			k = &Kept{}
		}
	}
	if k == nil {
		return err
	}
	return k
}
