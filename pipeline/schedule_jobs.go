package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// The recurring jobs by their names.
const (
	ReadBucketsJob = "read-buckets"
	FixityFeedJob  = "fixity-feed"
	GlacierPollJob = "glacier-poll"
	JanitorJob     = upkeep.JanitorJob
	SpotRestoreJob = "spot-restore"
	TopicLogJob    = "topic-log"
)

// Job is the reader's looks into the receiving buckets.
func (r *BucketReader) Job(every time.Duration) Job {
	return Job{ReadBucketsJob, every, func(ctx context.Context) (string, error) {
		created, err := r.ReadAll(ctx)
		return fmt.Sprintf("items made: %d", created), err
	}}
}

// FixityFeed lets up to n copies be checked from each run to the next.
func (d Deps) FixityFeed(every time.Duration, n int) Job {
	return Job{FixityFeedJob, every, func(ctx context.Context) (string, error) {
		left, err := fixity.In(d.Registry).Feed(ctx, n, every)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d copies may be checked; %d were left of the last feed", n, left), nil
	}}
}

// GlacierPoll has items that wait for an archive class taken up as soon as the last
// of their files can be read, rather than when the time of their own is over. It
// asks about one file of each: a look of the item's own asks about all.
func (d Deps) GlacierPoll(every time.Duration) Job {
	return Job{GlacierPollJob, every, func(ctx context.Context) (string, error) {
		p := glacierPoll{Deps: d}
		err := p.run(ctx)
		return fmt.Sprintf("items that wait: %d; woken: %d", p.waiting, p.woken), err
	}}
}

// KeepTopicLog makes room for messages in the topic log, and drops old ones.
func (d Deps) KeepTopicLog(every time.Duration, keep registry.TopicLogKeep) Job {
	return Job{TopicLogJob, every, func(ctx context.Context) (string, error) {
		dropped, err := d.Registry.KeepTopicLog(ctx, keep)
		if len(dropped) == 0 {
			return "nothing to drop", err
		}
		return "dropped: " + strings.Join(dropped, ", "), err
	}}
}

type glacierPoll struct {
	Deps

	mu             sync.Mutex
	waiting, woken int
	failed         few
}

func (p *glacierPoll) run(ctx context.Context) error {
	const page, atOnce = 200, 8
	for after := int64(0); ; {
		list, err := upkeep.In(p.Registry).WaitingRetrievals(ctx, after, page)
		if err != nil {
			return p.failed.with(err)
		}
		p.waiting += len(list)
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, w := range list {
			group.Go(func() error { return p.one(groupCtx, w) })
		}
		if err := group.Wait(); err != nil || len(list) < page {
			return p.failed.with(err)
		}
		after = list[len(list)-1].Item
	}
}

// errProvider ends a poll in which too much goes wrong for it to be the files.
var errProvider = errors.New("the others were not asked about")

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
	if p.failed.tooMany(err) {
		return errProvider
	}
	return nil
}

// readable tells whether the copy that an item has restored of its last file can be
// read, for as long as the item asks for.
func (p *glacierPoll) readable(ctx context.Context, w upkeep.WaitingRetrieval) (bool, error) {
	look := retrieving{glacierRestore: &glacierRestore{p.Deps}, r: requests.Retrieval{Class: w.Class}}
	c, ok := look.archived(registry.StoredFile{Copies: w.Copies})
	if !ok || !w.Rested {
		return false, nil
	}
	b, err := p.holding(c.Target, c.Bucket)
	if err != nil {
		return false, err
	}
	o, err := b.Head(ctx, c.Key)
	return err == nil && o.Readable(time.Now().Add(readableFor)), err
}
