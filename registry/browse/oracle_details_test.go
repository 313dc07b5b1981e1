package browse_test

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry/browse"
)

// between reports whether a time is in a window whose ends may be open.
func between(t, after, before time.Time) bool {
	return !t.Before(after) && or(!before.IsZero(), t.Before(before))
}

func itemDetails(r *rand.Rand, like itemRow) (d browse.ItemDetails) {
	some(r, 20, &d.ETag, like.ETag)
	some(r, 12, &d.Bucket, like.Bucket)
	some(r, 12, &d.User, like.User)
	some(r, 20, &d.ObjectID, like.ObjectID)
	some(r, 20, &d.FileID, like.FileID)
	some(r, 20, &d.File, like.File)
	some(r, 12, &d.AltIdentifier, like.Alt)
	some(r, 12, &d.BagGroup, like.Grp)
	some(r, 12, &d.Profile, like.Profile)
	yes := r.IntN(2) == 0
	some(r, 12, &d.HasObject, &yes)
	some(r, 12, &d.HasFile, &yes)
	some(r, 12, &d.Queued, &yes)
	some(r, 12, &d.Retry, &yes)
	some(r, 12, &d.NeedsReview, &yes)
	some(r, 12, &d.BagDateAfter, day(r))
	some(r, 12, &d.BagDateBefore, day(r))
	some(r, 12, &d.ProcessedAfter, day(r))
	some(r, 12, &d.ProcessedBefore, day(r))
	return d
}

func (w itemRow) meets(d browse.ItemDetails) bool {
	is := func(wanted *bool, have bool) bool { return wanted == nil || *wanted == have }
	return or(d.ETag != "", w.ETag == d.ETag) && or(d.Bucket != "", w.Bucket == d.Bucket) && or(d.User != "", w.User == d.User) &&
		or(d.ObjectID != 0, w.ObjectID == d.ObjectID) && or(d.FileID != 0, w.FileID == d.FileID) && or(d.File != "", w.File == d.File) &&
		or(d.AltIdentifier != "", w.Alt == d.AltIdentifier) && or(d.BagGroup != "", w.Grp == d.BagGroup) && or(d.Profile != "", w.Profile == d.Profile) &&
		is(d.HasObject, w.ObjectID != 0) && is(d.HasFile, w.FileID != 0) && is(d.Queued, w.Queued) && is(d.Retry, w.Retry) && is(d.NeedsReview, w.Review) &&
		between(w.BagDate, d.BagDateAfter, d.BagDateBefore) && between(w.ProcessedAt, d.ProcessedAfter, d.ProcessedBefore)
}

func objectDetails(r *rand.Rand, like objectRow) (d browse.ObjectDetails) {
	some(r, 12, &d.ETag, like.ETag)
	some(r, 12, &d.BagName, like.BagName)
	some(r, 12, &d.Profile, like.Profile)
	some(r, 12, &d.SourceOrganization, like.Source)
	some(r, 12, &d.InternalSenderIdentifier, like.Sender)
	some(r, 12, &d.InternalSenderDescription, like.About)
	some(r, 12, &d.BagGroupPrefix, like.Grp[:len(like.Grp)-1])
	some(r, 40, &d.Parent, 1)
	some(r, 12, &d.CreatedAfter, day(r))
	some(r, 12, &d.CreatedBefore, day(r))
	some(r, 4, &d.ByUpdate, true)
	return d
}

// meets compares an object, whose institution belongs to no other.
func (x objectRow) meets(d browse.ObjectDetails) bool {
	return or(d.ETag != "", x.ETag == d.ETag) && or(d.BagName != "", x.BagName == d.BagName) && or(d.Profile != "", x.Profile == d.Profile) &&
		or(d.SourceOrganization != "", x.Source == d.SourceOrganization) && or(d.InternalSenderIdentifier != "", x.Sender == d.InternalSenderIdentifier) &&
		or(d.InternalSenderDescription != "", x.About == d.InternalSenderDescription) && strings.HasPrefix(x.Grp, d.BagGroupPrefix) && d.Parent == 0 &&
		between(x.CreatedAt, d.CreatedAfter, d.CreatedBefore)
}
