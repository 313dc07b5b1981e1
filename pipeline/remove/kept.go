package remove

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// released postpones a deletion while a store keeps copies of some files. They are not being
// deleted, whatever was begun before, and their receipts say until when.
func (s *deletion) released(ctx context.Context, d requests.DeletionWork, files []requests.DoomedFile) error {
	going, _, err := s.going(files)
	if err != nil {
		return err
	}
	var all *storage.Kept
	var kept []requests.Receipt
	var targets []string
	for b, list := range going {
		locks, err := b.Locks(ctx, keysOf(list)...)
		if err != nil {
			return cause.Storage(err)
		}
		for _, r := range list {
			if k := locks[r.Key]; k != nil {
				all, r.KeptByStore = all.And(k), k.Error()
				kept, targets = append(kept, r), append(targets, r.Target)
			}
		}
	}
	if len(kept) == 0 {
		return nil
	}
	if err := requests.In(s.Registry).WithdrawDeletions(ctx, d, kept); err != nil {
		return err
	}
	return postponed(all, targets...)
}

// Times of a deletion that waits for a store.
const (
	lookAgain = 24 * time.Hour // at most: a legal hold may be lifted, and a retention shortened
	lookSoon  = time.Minute    // where the time is over by our clock, and not by the store's
)

// postponed has a deletion look again when the store keeps nothing any more. It spends no
// attempt. Notes begin alike, so that the latest time sorts last.
func postponed(k *storage.Kept, targets ...string) error {
	wait := lookAgain
	if !k.LegalHold && !k.Until.IsZero() {
		if wait = min(time.Until(k.Until)+time.Second, lookAgain); wait <= 0 {
			wait = lookSoon
		}
	}
	slices.Sort(targets)
	return claim.SnoozeAs("kept-by-store", wait, fmt.Sprintf(
		"Copies are %s: %s. The deletion goes on by itself, and checks that at least once a day. To stop it, cancel its request.",
		k, strings.Join(slices.Compact(targets), ", ")))
}
