package lists

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/storage"
)

// Inventory reads the item's inventory, and returns its id, the digest of the stored bytes. With
// do nil all files are in memory; the caller changes nothing of the bag: another stage in this
// process may get the same. Callers that need only a part of each file pass do, which gets the
// files in their order; none is kept if there are many. An unreadable inventory is read once
// more, so with file 0 do has to forget the files that it was given before; without an
// inventory the item goes back to Receive. After
// an error, the files that do was given are of no use.
func (a *Area) Inventory(ctx context.Context, do func(i int, f *bag.File)) (b *bag.Bag, id string, err error) {
	b, id, err = a.inventoryOnce(ctx, do)
	if Unreadable(ctx, err) {
		a.Log.WarnContext(ctx, "inventory is unreadable; reading it again")
		b, id, err = a.inventoryOnce(ctx, do)
	}
	return b, id, err
}

func (a *Area) inventoryOnce(ctx context.Context, do func(i int, f *bag.File)) (b *bag.Bag, id string, err error) {
	body, err := a.open(ctx, InventoryName)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, "", a.Gone(InventoryName)
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()

	const most = 8 << 20 // bytes of an inventory that is worth keeping
	head, err := io.ReadAll(io.LimitReader(body, most+1))
	if err != nil {
		return nil, "", fmt.Errorf("read the inventory: %w", err)
	}
	whole := sha256.Sum256(head)
	id = hex.EncodeToString(whole[:])
	keep := false
	if b = a.Recent.bag(id); len(head) > most || b == nil {
		hash := sha256.New()
		b, keep, err = a.decode(ctx, io.TeeReader(io.MultiReader(bytes.NewReader(head), body), hash), do)
		id = hex.EncodeToString(hash.Sum(nil))
	}
	if errors.Is(err, bag.ErrInventory) {
		a.Recent.Forget(a.Item)
		return nil, "", ErrDamaged
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the inventory: %w", err)
	}
	if keep {
		a.Recent.keepBag(id, b)
	}
	if do != nil {
		for i, f := range b.Files {
			do(i, f)
		}
	}
	return b, id, nil
}

// decode reads an inventory to its end. If there is someone to take the files of
// a large bag, the bag is returned without them, and is not whole.
func (a *Area) decode(ctx context.Context, source io.Reader, do func(i int, f *bag.File)) (_ *bag.Bag, whole bool, err error) {
	inv, err := bag.OpenInventory(source)
	if err != nil {
		return nil, false, err
	}
	defer inv.Close()
	if a.Enter != nil {
		if err := a.Enter(ctx, inv.Count); err != nil {
			return nil, false, err
		}
	}
	b := inv.Bag
	whole = do == nil || inv.Count <= mostRecent
	i := 0
	for f, err := range inv.Files() {
		if err != nil {
			return nil, false, err
		}
		if whole {
			b.Files = append(b.Files, f)
		} else {
			do(i, f)
		}
		i++
	}
	_, err = io.Copy(io.Discard, source)
	return &b, whole, err
}
