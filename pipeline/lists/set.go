package lists

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/storage"
)

// A Set is the lists of an item, fetched to be read beside each other. None of them is
// in memory.
type Set struct {
	Area     *Area
	Bag      bag.Bag    // without its files
	ID       string     // of the inventory
	Plan     Plan       // without what it says of files
	Verified VerifiedIn // likewise
	spools   map[string]spooled
}

// NewSet is a set of no lists yet.
func NewSet(a *Area) *Set { return &Set{Area: a, spools: map[string]spooled{}} }

// Fetch gets a list, and checks its bytes and that it belongs to the inventory, which is
// fetched first. One that is unreadable is read again. A missing list is [storage.ErrNotFound].
func (s *Set) Fetch(ctx context.Context, name string) error {
	err := s.fetchOnce(ctx, name)
	if Unreadable(ctx, err) && !errors.Is(err, storage.ErrNotFound) {
		s.Area.Log.WarnContext(ctx, "list is unreadable; reading it again", "list", name, "err", err)
		err = s.fetchOnce(ctx, name)
	}
	return err
}

func (s *Set) fetchOnce(ctx context.Context, name string) error {
	s.Drop(name)
	spool, id, err := s.Area.fetch(ctx, name)
	if err != nil {
		return err
	}
	s.spools[name] = spool
	if name != InventoryName {
		return s.goesWith(name)
	}
	s.ID = id
	for _, err := range s.Inventory() { // to know the bag, and that it is whole
		if err != nil {
			return err
		}
	}
	return nil
}

// Has tells whether a list was fetched.
func (s *Set) Has(name string) bool { return s.spools[name] != nil }

// Drop forgets a list that was fetched.
func (s *Set) Drop(name string) {
	if spool := s.spools[name]; spool != nil {
		_ = spool.Close() // nothing is written to it any more
	}
	delete(s.spools, name)
}

// Close forgets all lists.
func (s *Set) Close() {
	for name := range s.spools {
		s.Drop(name)
	}
}

// Inventory reads the bag, and its files one after the other.
func (s *Set) Inventory() iter.Seq2[*bag.File, error] {
	return func(yield func(*bag.File, error) bool) {
		inv, err := bag.OpenInventory(fromStart(s.spools[InventoryName]))
		if err != nil {
			yield(nil, damaged(err))
			return
		}
		defer inv.Close()
		s.Bag = inv.Bag
		for f, err := range inv.Files() {
			if !yield(f, damaged(err)) || err != nil {
				return
			}
		}
	}
}

func damaged(err error) error {
	if errors.Is(err, bag.ErrInventory) {
		return ErrDamaged
	}
	return err
}

// goesWith checks that a list belongs to the inventory, and its bytes.
func (s *Set) goesWith(name string) error {
	var about any
	switch name {
	case PlanName:
		s.Plan = Plan{}
		about = &s.Plan
	case CopiesName:
		s.Verified = VerifiedIn{}
		about = &s.Verified
	}
	l, err := openList[struct{}](fromStart(s.spools[name]), name, s.ID, about)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := io.Copy(io.Discard, l.z); err != nil { // the checksum is at the end
		return &UselessError{name, err}
	}
	return nil
}

// Rows are the lists beside the inventory. Those that were not fetched have none.
type Rows struct {
	Plan    beside[Known]
	Formats beside[Format]
	Copies  beside[Copies]
}

// Open begins to read the lists beside the inventory.
func (s *Set) Open() (_ *Rows, err error) {
	r := &Rows{}
	r.Plan, err = readBeside(s, PlanName, func(k Known) int { return k.Index })
	if err == nil {
		r.Formats, err = readBeside(s, FormatsName, func(f Format) int { return f.Index })
	}
	if err == nil {
		r.Copies, err = readBeside(s, CopiesName, func(c Copies) int { return c.Index })
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func readBeside[T any](s *Set, name string, index func(T) int) (beside[T], error) {
	if !s.Has(name) {
		return beside[T]{}, nil
	}
	l, err := openList[T](fromStart(s.spools[name]), name, s.ID, nil)
	return beside[T]{listReader: l, index: index}, err
}

// Close ends the reading.
func (r *Rows) Close() {
	r.Plan.close()
	r.Formats.close()
	r.Copies.close()
}
