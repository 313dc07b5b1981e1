package lists

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// What the stages leave for each other: small lists with the end of the stage in the registry, others
// under <item>/ in the staging bucket. Each is written once, whole, when its stage is done. A list names the
// inventory that it goes with, so that what an earlier pass of the item left
// behind is never taken for this one's.
const (
	InventoryName = "inventory.jsonl.zst" // by Receive
	VerdictName   = "verdict.jsonl.zst"   // by Validate
	PlanName      = "plan.jsonl.zst"      // by Reingest Check
	FormatsName   = "formats.jsonl.zst"   // by Format Identification
	CopiesName    = "copies.jsonl.zst"    // by Storage Validation
)

// StagedTar is what the names of ranges of the tar begin with that earlier versions of Farol have
// copied to the staging bucket; their first byte and length follow.
const StagedTar = "tar-"

// An Area is the lists of an item.
type Area struct {
	Bucket   *storage.Bucket // for staging, where the item has a prefix of its own
	Registry *registry.Registry
	Item     int64
	Log      *slog.Logger
	Check    func(ctx context.Context) error            // whether this claim may still write; nil: the area is only read
	Enter    func(ctx context.Context, files int) error // waits for memory for the lists of so many files; nil: there is enough
	Leave    func(claim.List)                           // has a list written with the end of the claim; nil: the area is only read
	Recent   *Recent                                    // inventories that this process has decoded; nil: it keeps none
	Makers   map[string]registry.Stage                  // the stage that makes each list; Receive, of any other
}

// Key is the key in the staging bucket of something of an item. Cleanup deletes
// what begins with Key(item, "").
func Key(item int64, name string) string { return fmt.Sprintf("%d/%s", item, name) }

// Gone sends an item back to the stage that makes what the staging area does not have. A
// process that looks into the wrong bucket would find the same, so the bucket is doubted.
func (a *Area) Gone(name string) error { return claim.Doubt(a.Bucket.Service(), a.missing(name)) }

// missing sends an item back to the stage that makes a list that is missing or unusable.
func (a *Area) missing(name string) error {
	a.Recent.Forget(a.Item)
	if name == InventoryName {
		return claim.SendBack(registry.Receive, "The inventory of the bag is no longer in the staging area. The bag is read again.")
	}
	return claim.SendBack(cmp.Or(a.Makers[name], registry.Receive), "The list "+name+" is not in the staging area, or unusable. It is made again.")
}

// ErrDamaged sends an item back whose inventory cannot be read.
var ErrDamaged = claim.SendBack(registry.Receive, "The inventory of the bag in the staging area is damaged. The bag is read again.")
