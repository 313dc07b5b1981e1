package upkeep

import (
	"context"
	"sync"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage/events"
)

// What comes of an event.
const (
	EventScanned   = "scanned"   // its bucket was scanned
	EventFailed    = "failed"    // its bucket could not be scanned; the next scan of all does
	EventIgnored   = "ignored"   // it says nothing new of a receiving bucket, or the job is paused
	EventMalformed = "malformed" // it cannot be read
)

const (
	// gather is how long events are gathered: those of a bucket within it are one scan.
	gather = time.Second
	// mostNamed bounds the names that wait. Real ones are as many as there are institutions.
	mostNamed = 10_000
)

// Arrivals scans receiving buckets as soon as an event names them. An event makes no item and
// is not believed: one that is lost, doubled, late or forged changes when a bucket is scanned,
// and nothing else.
type Arrivals struct {
	reader  *BucketReader // no other goroutine may have it
	observe func(result string, events int)

	mu    sync.Mutex
	named map[string]int // events by bucket
	wake  chan struct{}
}

// NewArrivals returns arrivals that nobody has named yet. observe is called for each event, and may
// be called at the same time as itself.
func NewArrivals(reader *BucketReader, observe func(result string, events int)) *Arrivals {
	return &Arrivals{reader: reader, observe: observe, named: map[string]int{}, wake: make(chan struct{}, 1)}
}

// Take has the buckets scanned that an S3 event notification names. It does not wait for that.
func (a *Arrivals) Take(notification []byte) error {
	names, err := events.Buckets(notification)
	switch {
	case err != nil:
		a.observe(EventMalformed, 1)
		return err //nolint:wrapcheck // it says all that there is to say
	case len(names) == 0:
		a.observe(EventIgnored, 1)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		if len(a.named) >= mostNamed && a.named[name] == 0 {
			a.observe(EventIgnored, 1)
			continue
		}
		a.named[name]++
	}
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
	return nil
}

// Run scans what is named until ctx is done, at most half of the time.
func (a *Arrivals) Run(ctx context.Context) {
	wait := gather
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		if !retry.Pause(ctx, wait) {
			return
		}
		began := time.Now()
		a.scan(ctx)
		wait = max(gather, time.Since(began))
	}
}

// scan scans each bucket that was named, if it is the receiving bucket of an active institution.
func (a *Arrivals) scan(ctx context.Context) {
	a.mu.Lock()
	named := a.named
	a.named = map[string]int{}
	a.mu.Unlock()
	rest := EventIgnored
	_, unpaused, err := upkeep.In(a.reader.Registry).DueIn(ctx, ReadBucketsJob, "")
	if err == nil && unpaused {
		err = eachInstitution(ctx, a.reader.Registry, true, "scan the receiving bucket of", func(ctx context.Context, in record.Institution) error {
			n := named[in.ReceivingBucket]
			if n == 0 {
				return nil
			}
			delete(named, in.ReceivingBucket)
			_, err := a.reader.read(ctx, in)
			if err != nil {
				a.observe(EventFailed, n)
				return err
			}
			a.observe(EventScanned, n)
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		rest = EventFailed
		a.reader.Log.WarnContext(ctx, "cannot scan buckets that events name; the next scan of all buckets finds what has arrived", "err", err)
	}
	for _, n := range named {
		a.observe(rest, n)
	}
}
