package upkeep

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// Compared says with which S3 Inventory a target was compared.
type Compared struct {
	Store    string    `json:"store"`
	Manifest string    `json:"manifest"` // its key
	Taken    time.Time `json:"taken"`    // when S3 began to read the bucket
	Same     int64     `json:"same"`     // copies that it has as they are on record
	Wrong    int64     `json:"wrong"`    // copies that are as on record, though it has them otherwise
	Newer    int64     `json:"newer"`    // copies that were stored later, and not looked for
}

func (c *comparison) compared() Compared {
	return Compared{c.name, c.inventory.Manifest, c.inventory.Taken, c.same, c.wrong, c.newer}
}

// sides are the objects of the bucket and the copies on record, in one order. Only an S3 Inventory
// is compared by sizes: the index that a listing is read with does not have them.
func (c *comparison) sides(ctx context.Context) (iter.Seq2[storage.Object, error], iter.Seq2[upkeep.RecordedCopy, error], error) {
	source, ok := c.Inventories[c.name]
	if !ok {
		return c.target.List(ctx, "", ""), func(yield func(upkeep.RecordedCopy, error) bool) {
			for key, err := range upkeep.In(c.Registry).CopyKeys(ctx, c.name) {
				if !yield(upkeep.RecordedCopy{Key: key, Size: -1}, err) {
					return
				}
			}
		}, nil
	}
	// An inventory that has all that it should says nothing of a bucket that was removed since.
	if err := c.target.Check(ctx); err != nil {
		return nil, nil, err
	}
	var err error
	if c.inventory, err = source.Newest(ctx, c.target.Name()); err != nil {
		return nil, nil, err
	}
	return c.inventory.Objects(ctx), upkeep.In(c.Registry).CopySizes(ctx, c.name), nil
}

// matches compares a copy with the object that has its key.
func (c *comparison) matches(copied upkeep.RecordedCopy, o storage.Object) {
	if copied.Size >= 0 && o.Size >= 0 && copied.Size != o.Size {
		c.doubts(copied)
		return
	}
	c.same++
}

// doubts notes a copy to ask the bucket for. Of one that was stored after the inventory was
// taken, that says nothing: the next one will.
func (c *comparison) doubts(copied upkeep.RecordedCopy) {
	if c.inventory != nil && copied.StoredAt.After(c.inventory.Taken) {
		c.newer++
		return
	}
	c.absent = append(c.absent, copied)
}

// trusted is an error if an inventory lacks so many copies which the bucket has that it is not one of
// the whole bucket: each costs a request.
func (c *comparison) trusted() error {
	const few, share = 10_000, 10
	if c.inventory == nil || c.wrong <= few || c.wrong <= c.same/share {
		return nil
	}
	return fmt.Errorf("the S3 Inventory %s lacks %d copies that are there, and has %d: see that its configuration has no filter by prefix, or unset %s to list the bucket",
		c.inventory.Manifest, c.wrong, c.same, c.Inventories[c.name].Setting)
}
