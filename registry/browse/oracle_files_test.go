package browse_test

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
)

func (o *oracle) fileQuestion(r *rand.Rand) question {
	like := pick(r, o.files)
	digest := pick(r, strings.Fields(like.Digests))
	var f browse.FileFilter
	some(r, 3, &f.Institution, institution(r))
	some(r, 6, &f.ObjectID, like.ObjectID)
	some(r, 6, &f.Object, like.Object)
	some(r, 8, &f.Identifier, like.Identifier)
	some(r, 3, &f.Prefix, strings.ToValidUTF8(like.Identifier[:1+r.IntN(len(like.Identifier)-1)], ""))
	some(r, 8, &f.UUID, like.UUID)
	if len(digest) == 32 || len(digest) == 64 {
		some(r, 3, &f.Digest, digest)
	}
	some(r, 6, &f.State, like.State)
	some(r, 6, &f.Format, pick(r, []string{like.PUID, like.Name}))
	some(r, 6, &f.SizeMin, 300)
	some(r, 6, &f.SizeMax, &like.Size)
	some(r, 8, &f.StorageOption, []string{like.Option, "Wasabi-VA"})
	some(r, 8, &f.CreatedAfter, day(r))
	some(r, 8, &f.CreatedBefore, day(r))
	some(r, 8, &f.UpdatedAfter, day(r))
	some(r, 8, &f.UpdatedBefore, day(r))
	some(r, 8, &f.CheckedAfter, day(r))
	some(r, 8, &f.CheckedBefore, day(r))
	if f.ObjectID == 0 && f.Object == "" && f.Identifier == "" && f.UUID == "" && f.Digest == "" && f.Institution == "" && f.Prefix == "" {
		f.Prefix = "test.edu/"
	}
	matches := func(x fileRow) bool {
		return or(f.Institution != "", x.Institution == f.Institution) && or(f.ObjectID != 0, x.ObjectID == f.ObjectID) && or(f.Object != "", x.Object == f.Object) &&
			or(f.Identifier != "", x.Identifier == f.Identifier) && strings.HasPrefix(x.Identifier, f.Prefix) && or(f.UUID != "", x.UUID == f.UUID) &&
			or(f.Digest != "", slices.Contains(strings.Fields(x.Digests), f.Digest)) && or(f.State != "", x.State == f.State) &&
			or(f.Format != "", x.PUID == f.Format || x.Name == f.Format) && x.Size >= f.SizeMin && (f.SizeMax == nil || x.Size <= *f.SizeMax) &&
			or(f.StorageOption != nil, slices.Contains(f.StorageOption, x.Option)) && between(x.CreatedAt, f.CreatedAfter, f.CreatedBefore) &&
			between(x.UpdatedAt, f.UpdatedAfter, f.UpdatedBefore) && between(x.CheckedAt, f.CheckedAfter, f.CheckedBefore)
	}
	list, key := o.files, func(x fileRow) browse.Key { return browse.Key{ID: x.ID} }
	if f.Digest == "" {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b fileRow) int { return strings.Compare(a.Identifier, b.Identifier) })
		key = func(x fileRow) browse.Key { return browse.Key{Identifier: x.Identifier} }
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Files(ctx, f, p)
			return ids(list, func(x record.ListedFile) int64 { return x.ID }), next, err
		},
		found(list, matches, func(x fileRow) place { return place{x.ID, x.InstitutionID, key(x)} }),
	}
}

func (o *oracle) checksumQuestion(r *rand.Rand) question {
	like := pick(r, o.checksums)
	f := browse.ChecksumFilter{File: like.FileID}
	some(r, 3, &f.Institution, institution(r))
	some(r, 3, &f.Digest, like.Digest)
	if like.Algorithm == "md5" || like.Algorithm == "sha256" {
		if r.IntN(3) > 0 {
			f.File, f.Digest = 0, like.Digest
		}
	}
	some(r, 3, &f.Algorithm, pick(r, []string{"md5", "sha1", "sha256", "sha512"}))
	some(r, 6, &f.ObjectID, like.ObjectID)
	some(r, 6, &f.State, like.State)
	some(r, 6, &f.At, like.At)
	matches := func(x checksumRow) bool {
		return or(f.Institution != "", x.Institution == f.Institution) && or(f.File != 0, x.FileID == f.File) && or(f.Digest != "", x.Digest == f.Digest) &&
			or(f.Algorithm != "", x.Algorithm == f.Algorithm) && or(f.ObjectID != 0, x.ObjectID == f.ObjectID) && or(f.State != "", x.State == f.State) &&
			or(!f.At.IsZero(), x.At.Equal(f.At))
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Checksums(ctx, f, p)
			return ids(list, func(x record.ListedChecksum) int64 { return x.ID }), next, err
		},
		found(o.checksums, matches, func(x checksumRow) place {
			return place{x.ID, x.InstitutionID, browse.Key{ID: x.ID, Of: x.FileID}}
		}),
	}
}

func (o *oracle) copyQuestion(r *rand.Rand) question {
	f := browse.CopyFilter{File: pick(r, o.copies).FileID}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Copies(ctx, f, p)
			return ids(list, func(x record.ListedCopy) int64 { return x.ID }), next, err
		},
		found(o.copies, func(x copyRow) bool { return x.FileID == f.File }, func(x copyRow) place {
			return place{x.ID, x.InstitutionID, browse.Key{ID: x.ID}}
		}),
	}
}

func (o *oracle) eventQuestion(r *rand.Rand) question {
	like := pick(r, o.events)
	var f browse.EventFilter
	some(r, 3, &f.Institution, institution(r))
	some(r, 4, &f.Failed, true)
	some(r, 3, &f.Type, pick(r, []string{"deletion", "deletion", "fixity check", "ingestion"}))
	switch r.IntN(4) {
	case 0:
		f.Object = like.ObjectID
	case 1:
		if like.FileID != nil {
			f.File = *like.FileID
		}
	case 2:
		f.RecordedAfter = day(r)
		f.RecordedBefore = f.RecordedAfter.AddDate(0, 0, r.IntN(32))
	}
	if f.Object != 0 || f.File != 0 {
		some(r, 3, &f.Identifier, like.Identifier)
	}
	if f.Object == 0 && f.File == 0 && !f.Failed && f.Type != "deletion" && f.RecordedAfter.IsZero() {
		f.Failed = true
	}
	some(r, 8, &f.HappenedAfter, day(r))
	some(r, 8, &f.HappenedBefore, day(r))
	some(r, 8, &f.Outcome, like.Outcome)
	about := r.IntN(2) == 0
	some(r, 8, &f.AboutFile, &about)
	matches := func(e eventRow) bool {
		return or(f.Institution != "", e.Institution == f.Institution) && or(f.Object != 0, e.ObjectID == f.Object && e.FileID == nil) &&
			or(f.File != 0, e.FileID != nil && *e.FileID == f.File) && or(f.Failed, e.Outcome == "Failure") && or(f.Type != "", e.Type == f.Type) &&
			!e.CreatedAt.Before(f.RecordedAfter) && or(!f.RecordedBefore.IsZero(), e.CreatedAt.Before(f.RecordedBefore)) &&
			or(f.Identifier != "", e.Identifier == f.Identifier) && !e.At.Before(f.HappenedAfter) && or(!f.HappenedBefore.IsZero(), e.At.Before(f.HappenedBefore)) &&
			or(f.Outcome != "", e.Outcome == f.Outcome) && (f.AboutFile == nil || *f.AboutFile == (e.FileID != nil))
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Events(ctx, f, p)
			return ids(list, func(x record.ListedEvent) int64 { return x.ID }), next, err
		},
		found(o.events, matches, func(e eventRow) place {
			return place{e.ID, e.InstitutionID, browse.Key{ID: e.ID, At: e.CreatedAt}}
		}),
	}
}

func (o *oracle) deletionQuestion(r *rand.Rand) question {
	var f browse.DeletionFilter
	some(r, 2, &f.Institution, institution(r))
	some(r, 2, &f.State, pick(r, []string{"open", "approved", "cancelled"}))
	some(r, 3, &f.RequestedAfter, day(r))
	some(r, 3, &f.RequestedBefore, day(r))
	matches := func(d deletionRow) bool {
		return or(f.Institution != "", d.Institution == f.Institution) && or(f.State != "", d.State == f.State) && between(d.RequestedAt, f.RequestedAfter, f.RequestedBefore)
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Deletions(ctx, f, p)
			return ids(list, func(x record.DeletionRequest) int64 { return x.ID }), next, err
		},
		found(o.deletions, matches, func(d deletionRow) place { return place{d.ID, d.InstitutionID, browse.Key{ID: d.ID}} }),
	}
}

func (o *oracle) alertQuestion(r *rand.Rand) question {
	var f browse.AlertFilter
	some(r, 2, &f.Institution, institution(r))
	some(r, 3, &f.Type, "Service Held")
	some(r, 3, &f.CreatedAfter, day(r))
	some(r, 3, &f.CreatedBefore, day(r))
	matches := func(x alertRow) bool {
		return or(f.Institution != "", x.Institution == f.Institution) && or(f.Type != "", x.Type == f.Type) && !x.CreatedAt.Before(f.CreatedAfter) &&
			or(!f.CreatedBefore.IsZero(), x.CreatedAt.Before(f.CreatedBefore))
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Alerts(ctx, f, p)
			return ids(list, func(x record.ListedAlert) int64 { return x.ID }), next, err
		},
		found(o.alerts, matches, func(x alertRow) place { return place{x.ID, x.InstitutionID, browse.Key{ID: x.ID}} }),
	}
}
