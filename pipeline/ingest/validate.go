package ingest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/lists"
)

// validate judges the bag by BagIt and by the profile that it names, from its
// inventory alone, which has what Receive found wrong too. All errors are collected;
// each is the depositor's to correct, so none is tried again. What it judged by, and
// the warnings, are kept for the record.
type validate struct {
	Profiles bag.Profiles
	software string
}

func (s *validate) Run(ctx context.Context, w *work) error {
	b, inventoryID, err := w.lists.Inventory(ctx, nil)
	if err != nil {
		return err
	}
	profile := s.Profiles.Of(b)
	verdict := b.Validate(profile)
	switch {
	case verdict.Unknown: // nobody can say that it breaks a rule, and it cannot be preserved as a valid one
		return claim.Fatal("manifest-unsupported", "%w", &badBag{verdict})
	case !verdict.Valid:
		return claim.Fatal("invalid-bag", "%w", &badBag{verdict})
	}
	w.Remark = interim.Warnings(verdict.Warnings)
	if w.Remark != "" {
		w.Note += ". " + w.Remark
	}
	version, _ := b.Tag("bagit.txt", "BagIt-Version")
	return lists.Write[struct{}](ctx, w.lists, lists.VerdictName, inventoryID, lists.Verdict{
		By:       fmt.Sprintf("%s, BagIt %s", cmp.Or(profile.Identifier(), profile.String()), lists.CleanText(version)),
		Software: s.software, Warnings: len(verdict.Warnings), Found: w.Remark, At: time.Now().UTC(),
	}, 0, func(func(struct{}) bool) {})
}
