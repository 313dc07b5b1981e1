package storage

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Restoration is what became of the request to make an archived object
// readable. It is zero if there was none, or if it has run out.
type Restoration struct {
	Ongoing bool      // the object is not readable yet
	Expires time.Time // until when it can be read, by the server's clock; zero while it cannot
}

// Readable reports whether [Bucket.Get] can read the object, which an archived
// one must be restored for. It knows that of an object from [Bucket.Head] only:
// elsewhere every archived object counts as one that is not restored.
func (o Object) Readable(now time.Time) bool {
	switch types.StorageClass(o.StorageClass) {
	case types.StorageClassGlacier, types.StorageClassDeepArchive:
		return now.Before(o.Restoration.Expires)
	default:
		return true
	}
}

// restoration reads the header x-amz-restore. What is not as S3's API reference
// has it counts as no restoration: then the object is not read too early.
func restoration(header string) Restoration {
	if strings.Contains(header, `ongoing-request="true"`) {
		return Restoration{Ongoing: true}
	}
	_, date, _ := strings.Cut(header, `expiry-date="`)
	date, _, _ = strings.Cut(date, `"`)
	expires, err := http.ParseTime(date)
	if err != nil || !strings.Contains(header, `ongoing-request="false"`) {
		return Restoration{}
	}
	return Restoration{Expires: expires}
}

// A Retrieval says how an archived object is to be made readable.
type Retrieval struct {
	Days int    // for which it stays so, from when it is
	Tier string // Expedited, Standard or Bulk; "" is S3's default, Standard
}

// A RetrievalState is what a server made of a request to restore an object.
type RetrievalState string

const (
	// RetrievalDone says that the object can be read: it had been restored, and stays
	// so for the days of this request, or it need not be.
	RetrievalDone RetrievalState = "done"
	// RetrievalStarted says that it will be readable in minutes to days, by class and
	// tier.
	RetrievalStarted RetrievalState = "started"
	// RetrievalOngoing says that an earlier request is under way; it stays as it was.
	RetrievalOngoing RetrievalState = "ongoing"
	// RetrievalBusy says that Expedited has no capacity now; nothing was begun.
	RetrievalBusy RetrievalState = "busy"
)

// Restore asks the server to make an archived object readable; [Bucket.Head]
// tells when it is. An object that is not there is [ErrNotFound]. Asking again is
// no harm: if the answer to a first request was lost, the state is
// [RetrievalOngoing].
func (b *Bucket) Restore(ctx context.Context, key string, r Retrieval) (RetrievalState, error) {
	in := &s3.RestoreObjectInput{
		Bucket: &b.conn.Target.Bucket, Key: &key,
		RestoreRequest: &types.RestoreRequest{Days: aws.Int32(int32(r.Days))}, //nolint:gosec // five million years
	}
	if r.Tier != "" {
		in.RestoreRequest.GlacierJobParameters = &types.GlacierJobParameters{Tier: types.Tier(r.Tier)}
	}
	out, err := b.conn.API.RestoreObject(ctx, in)
	if err == nil {
		b.learn(ability.Archive, nil)
		// The status is all that tells a new restoration from one that is prolonged.
		raw, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response)
		if ok && raw.StatusCode == http.StatusAccepted {
			return RetrievalStarted, nil
		}
		return RetrievalDone, nil
	}
	switch code, _ := wire.Words(err); code {
	case "InvalidObjectState", "ObjectAlreadyInActiveTierError":
		return RetrievalDone, nil // it is in no class that would have to be restored
	case "RestoreAlreadyInProgress":
		return RetrievalOngoing, nil
	case wire.NoCapacity:
		return RetrievalBusy, nil
	}
	err = b.conn.Explain(ctx, err)
	if errors.Is(err, ErrUnsupported) {
		b.learn(ability.Archive, err)
	}
	return "", b.conn.Wrap("restore", key, err)
}
