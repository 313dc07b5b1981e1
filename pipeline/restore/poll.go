package restore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// Poll wakes items that wait for an archive class as soon as the last of their files can be
// read, and not only at the time of their own next poll. It asks about one file of each item;
// the item's own poll asks about all.
type Poll struct {
	Registry *registry.Registry
	Targets  copies.Targets
}

// Run asks about all items once, and says how many wait and were woken.
func (g Poll) Run(ctx context.Context) (result string, err error) {
	p := glacierPoll{Poll: g}
	err = p.run(ctx)
	return fmt.Sprintf("waiting items: %d; woken: %d", p.waiting, p.woken), err
}

type glacierPoll struct {
	Poll

	mu             sync.Mutex
	waiting, woken int
	failed         cause.Few
}

func (p *glacierPoll) run(ctx context.Context) error {
	const page, atOnce = 200, 8
	for after := int64(0); ; {
		list, err := upkeep.In(p.Registry).WaitingRetrievals(ctx, after, page)
		if err != nil {
			return p.failed.With(err)
		}
		p.waiting += len(list)
		if err := many.AtOnce(ctx, atOnce, list, p.one); err != nil || len(list) < page {
			return p.failed.With(err)
		}
		after = list[len(list)-1].Item
	}
}

// errProvider ends a poll in which so much fails that the provider is at fault.
var errProvider = errors.New("the other copies were not checked")

func (p *glacierPoll) one(ctx context.Context, w upkeep.WaitingRetrieval) error {
	woken := false
	readable, err := p.readable(ctx, w)
	if err == nil && readable {
		woken, err = upkeep.In(p.Registry).WakeRetrieval(ctx, w)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if woken {
		p.woken++
	}
	if err != nil {
		err = fmt.Errorf("item %d: %s: %w", w.Item, w.File, err)
	}
	if p.failed.TooMany(err) {
		return errProvider
	}
	return nil
}

// readable tells whether the copy that an item has restored of its last file can be
// read, for as long as the item asks for.
func (p *glacierPoll) readable(ctx context.Context, w upkeep.WaitingRetrieval) (bool, error) {
	c, ok := archivedIn(p.Targets, w.Class, w.Copies)
	if !ok || !w.Rested {
		return false, nil
	}
	b, err := p.Targets.Holding(c.Target, c.Bucket)
	if err != nil {
		return false, err
	}
	o, err := b.Head(ctx, c.Key)
	return err == nil && o.Readable(time.Now().Add(readableFor)), err
}
