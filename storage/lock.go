package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/fault"
)

// ErrKept says that the store keeps a version under Object Lock and removes it for
// nobody. It is not the store's failure, and a matter of time: the error is a [*Kept].
var ErrKept = errors.New("kept by the store")

// Kept says until when a store keeps versions under Object Lock.
type Kept struct {
	Until     time.Time // end of the retention, by the store's clock; zero: it has none, or the store does not say
	LegalHold bool      // until a person lifts it
	Mode      string    // of the retention: GOVERNANCE, which Farol never bypasses, or COMPLIANCE; "": not known
}

// Error says until when, in words for people.
func (k *Kept) Error() string {
	text := ErrKept.Error()
	if !k.Until.IsZero() {
		text += " until " + k.Until.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	switch {
	case k.LegalHold && !k.Until.IsZero():
		text += " and under a legal hold"
	case k.LegalHold:
		text += " under a legal hold"
	case k.Until.IsZero():
		text += ", which does not say until when"
	}
	return text
}

// Is has callers that look for [ErrKept] find it.
func (k *Kept) Is(target error) bool { return target == ErrKept }

// And is what keeps both. nil keeps nothing.
func (k *Kept) And(other *Kept) *Kept {
	switch {
	case k == nil:
		return other
	case other == nil:
		return k
	}
	both := *k
	both.LegalHold = k.LegalHold || other.LegalHold
	if other.Until.After(k.Until) {
		both.Until, both.Mode = other.Until, other.Mode
	}
	return &both
}

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
			k, err := b.lockOf(ctx, v.Key, v.ID)
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

// lockOf reads the lock of a version; nil if it has none, or is not there.
func (b *Bucket) lockOf(ctx context.Context, key, version string) (*Kept, error) {
	head, err := b.conn.API.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.conn.Target.Bucket, Key: &key, VersionId: nonEmpty(version)})
	if failed := b.unanswered(ctx, err); failed != nil {
		return nil, b.conn.Wrap("read the lock of", key, failed)
	}
	k := &Kept{}
	switch {
	case err == nil && (head.ObjectLockMode != "" || head.ObjectLockLegalHoldStatus != ""):
		k.Until, k.Mode = aws.ToTime(head.ObjectLockRetainUntilDate), string(head.ObjectLockMode)
		k.LegalHold = head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn
	case errors.Is(b.conn.Explain(ctx, err), ErrNotFound):
		return nil, nil
	default:
		if k, err = b.lockApart(ctx, key, version); err != nil {
			return nil, b.conn.Wrap("read the lock of", key, err)
		}
	}
	if ahead, _ := b.conn.Skew(); !k.Until.After(time.Now().Add(ahead)) {
		k.Until, k.Mode = time.Time{}, ""
	}
	if *k == (Kept{}) {
		return nil, nil
	}
	return k, nil
}

// lockApart asks for the lock where HEAD does not show it: to a key that lacks the right
// for that, or on a server that never does.
func (b *Bucket) lockApart(ctx context.Context, key, version string) (*Kept, error) {
	k := &Kept{}
	r, err := b.conn.API.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{Bucket: &b.conn.Target.Bucket, Key: &key, VersionId: nonEmpty(version)})
	if err == nil && r.Retention != nil {
		k.Until, k.Mode = aws.ToTime(r.Retention.RetainUntilDate), string(r.Retention.Mode)
	}
	if err = b.unanswered(ctx, err); err != nil {
		return nil, err
	}
	h, err := b.conn.API.GetObjectLegalHold(ctx, &s3.GetObjectLegalHoldInput{Bucket: &b.conn.Target.Bucket, Key: &key, VersionId: nonEmpty(version)})
	k.LegalHold = err == nil && h.LegalHold != nil && h.LegalHold.Status == types.ObjectLockLegalHoldStatusOn
	return k, b.unanswered(ctx, err)
}

// mayLock asks the server whether the bucket has Object Lock, and remembers the answer. If
// it does not answer us, any bucket may that keeps versions.
func (b *Bucket) mayLock(ctx context.Context) (bool, error) {
	if known := b.locks.Load(); known != nil {
		return *known, nil
	}
	out, err := b.conn.API.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &b.conn.Target.Bucket})
	may := err == nil && out.ObjectLockConfiguration != nil && out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled
	if failed := b.unanswered(ctx, err); failed != nil {
		return false, fmt.Errorf("lock configuration of %s: %w", b.conn.Name(), failed)
	}
	if err != nil && errors.Is(b.conn.Explain(ctx, err), ErrDenied) {
		if may, err = b.KeepsVersions(ctx); err != nil {
			return false, err
		}
	}
	b.locks.Store(&may)
	b.store.noteBucket(b.conn.Target.Bucket, func(f *BucketFacts) { f.Lock = lockText(may, out) })
	return may, nil
}

// lockText is the Object Lock of a bucket, for people; "" is none.
func lockText(may bool, out *s3.GetObjectLockConfigurationOutput) string {
	switch {
	case !may:
		return ""
	case out == nil || out.ObjectLockConfiguration == nil || out.ObjectLockConfiguration.Rule == nil || out.ObjectLockConfiguration.Rule.DefaultRetention == nil:
		return "on"
	}
	d := out.ObjectLockConfiguration.Rule.DefaultRetention
	if years := aws.ToInt32(d.Years); years > 0 {
		return fmt.Sprintf("%s, %d years", d.Mode, years)
	}
	return fmt.Sprintf("%s, %d days", d.Mode, aws.ToInt32(d.Days))
}

// Lock is the Object Lock that the bucket gives to objects: "" is none, "on" is one for those who
// ask for it, and else the mode and time that each object gets.
func (b *Bucket) Lock(ctx context.Context) (string, error) {
	if _, err := b.mayLock(ctx); err != nil {
		return "", err
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.store.known.Buckets[b.conn.Target.Bucket].Lock, nil
}

// unanswered is the failure of a question about locks; nil if the server has answered,
// even if it is that there is no lock, that it does not know the question, or that it is
// not for us.
func (b *Bucket) unanswered(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var response *smithyhttp.ResponseError
	explained := b.conn.Explain(ctx, err)
	f := fault.In(explained)
	switch {
	case ctx.Err() != nil:
		return explained
	case f == nil, f.Kind == fault.Denied, f.Kind == fault.WrongAnswer, f.Kind == fault.Refused,
		errors.As(err, &response) && response.HTTPStatusCode() == http.StatusNotImplemented:
		return nil
	}
	return explained
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
	k, failed := b.lockOf(ctx, aws.ToString(id.Key), aws.ToString(id.VersionId))
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
