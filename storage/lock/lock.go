// Package lock reads what S3 keeps under Object Lock.
//
// A [Config] is what a bucket does about it, a [Kept] until when a version stays. Nothing here changes
// a lock or bypasses one.
package lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage/wire"
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

// A Config is what a bucket does about Object Lock.
type Config struct {
	Enabled   bool
	Retention *types.DefaultRetention // of new objects; nil: there is none by default
}

// String is the Object Lock of the bucket, for people; "" is none.
func (c Config) String() string {
	switch {
	case !c.Enabled:
		return ""
	case c.Retention == nil:
		return "on"
	}
	if years := aws.ToInt32(c.Retention.Years); years > 0 {
		return fmt.Sprintf("%s, %d years", c.Retention.Mode, years)
	}
	return fmt.Sprintf("%s, %d days", c.Retention.Mode, aws.ToInt32(c.Retention.Days))
}

// Configured asks for the Config of a bucket. Its error is the SDK's: servers have many ways of
// saying that there is none.
func Configured(ctx context.Context, c *wire.Conn) (Config, error) {
	out, err := c.API.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &c.Target.Bucket})
	if err != nil || out.ObjectLockConfiguration == nil {
		return Config{}, err
	}
	has := Config{Enabled: out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled}
	if rule := out.ObjectLockConfiguration.Rule; rule != nil {
		has.Retention = rule.DefaultRetention
	}
	return has, nil
}

// Of reads the lock of a version, nil being the latest; nil if it has none, or is not there.
func Of(ctx context.Context, c *wire.Conn, key string, version *string) (*Kept, error) {
	head, err := c.API.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &c.Target.Bucket, Key: &key, VersionId: version})
	if failed := Unanswered(ctx, c, err); failed != nil {
		return nil, c.Wrap("read the lock of", key, failed)
	}
	k := &Kept{}
	switch {
	case err == nil && (head.ObjectLockMode != "" || head.ObjectLockLegalHoldStatus != ""):
		k.Until, k.Mode = aws.ToTime(head.ObjectLockRetainUntilDate), string(head.ObjectLockMode)
		k.LegalHold = head.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn
	case errors.Is(c.Explain(ctx, err), wire.ErrNotFound):
		return nil, nil
	default:
		if k, err = apart(ctx, c, key, version); err != nil {
			return nil, c.Wrap("read the lock of", key, err)
		}
	}
	if ahead, _ := c.Skew(); !k.Until.After(time.Now().Add(ahead)) {
		k.Until, k.Mode = time.Time{}, ""
	}
	if *k == (Kept{}) {
		return nil, nil
	}
	return k, nil
}

// apart asks for the lock where HEAD does not show it: to a key that lacks the right
// for that, or on a server that never does.
func apart(ctx context.Context, c *wire.Conn, key string, version *string) (*Kept, error) {
	k := &Kept{}
	r, err := c.API.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{Bucket: &c.Target.Bucket, Key: &key, VersionId: version})
	if err == nil && r.Retention != nil {
		k.Until, k.Mode = aws.ToTime(r.Retention.RetainUntilDate), string(r.Retention.Mode)
	}
	if err = Unanswered(ctx, c, err); err != nil {
		return nil, err
	}
	h, err := c.API.GetObjectLegalHold(ctx, &s3.GetObjectLegalHoldInput{Bucket: &c.Target.Bucket, Key: &key, VersionId: version})
	k.LegalHold = err == nil && h.LegalHold != nil && h.LegalHold.Status == types.ObjectLockLegalHoldStatusOn
	return k, Unanswered(ctx, c, err)
}

// Unanswered is the failure of a question about locks; nil if the server has answered,
// even if it is that there is no lock, that it does not know the question, or that it is
// not for us.
func Unanswered(ctx context.Context, c *wire.Conn, err error) error {
	if err == nil {
		return nil
	}
	var response *smithyhttp.ResponseError
	explained := c.Explain(ctx, err)
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
