package upkeep

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// notified are arrivals that run, and what came of their events.
type notified struct {
	*Arrivals

	a     *archive
	scans atomic.Int64

	mu      sync.Mutex
	results map[string]int
}

func newNotified(t *testing.T) *notified {
	t.Helper()
	a := newArchive(t)
	must.Do(t, upkeep.In(a.Deps.Registry).SetSchedule(t.Context(), ReadBucketsJob, time.Hour))
	n := &notified{a: a, results: map[string]int{}}
	reader := &BucketReader{Registry: a.Deps.Registry, Log: a.Deps.Log, Receiving: func(bucket string) (*storage.Bucket, error) {
		n.scans.Add(1)
		return a.Deps.Receiving(bucket)
	}}
	n.Arrivals = NewArrivals(reader, func(result string, events int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.results[result] += events
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return n
}

// event is what a store says of a new object.
func event(bucket string) string {
	return fmt.Sprintf(`{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":"forged.tar","size":1}}}]}`, bucket)
}

// comesOf takes notifications and waits until their events came to this, since the last call.
func (n *notified) comesOf(want map[string]int, notifications ...string) {
	n.a.T.Helper()
	for _, text := range notifications {
		if err := n.Take([]byte(text)); (err != nil) != (text == "hello") {
			n.a.T.Errorf("%s: %v", text, err)
		}
	}
	total := 0
	for _, events := range want {
		total += events
	}
	testenv.Eventually(n.a.T, "the events to be counted", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		sum := 0
		for _, events := range n.results {
			sum += events
		}
		return sum >= total
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if !maps.Equal(n.results, want) {
		n.a.T.Errorf("events: %v, want %v", n.results, want)
	}
	n.results = map[string]int{}
}

func (n *notified) items() int {
	n.a.T.Helper()
	return pipelinetest.Value[int](n.a.Archive, `SELECT count(*) FROM work_items`)
}

// An event makes no item: it has the bucket scanned that it names, once for all events of a moment.
func TestEventBringsAScanForward(t *testing.T) {
	t.Parallel()
	n := newNotified(t)
	bucket := n.a.In.ReceivingBucket
	n.comesOf(map[string]int{EventScanned: 1}, event(bucket))
	if n.items() != 0 {
		t.Errorf("a forged event made an item")
	}
	n.a.DepositRaw("one.tar")
	n.scans.Store(0)
	tick := time.NewTicker(gather / 25)
	defer tick.Stop()
	const events = 20 // which come within a second, and not at once
	for range events {
		<-tick.C
		must.Do(t, n.Take([]byte(event(bucket))))
	}
	n.comesOf(map[string]int{EventScanned: events})
	if n.items() != 1 || n.scans.Load() > 2 {
		t.Errorf("%d items after %d scans; want 1 after one, or two if the machine is slow", n.items(), n.scans.Load())
	}
	n.comesOf(map[string]int{EventScanned: 1}, event(bucket))
	if n.items() != 1 {
		t.Errorf("a doubled event made %d items", n.items())
	}
}

// What names no receiving bucket of an active institution leads to no request to a store, and
// nothing does while the job is paused.
func TestOtherEventsLeadToNothing(t *testing.T) {
	t.Parallel()
	n := newNotified(t)
	n.a.DepositRaw("one.tar")
	bucket := n.a.In.ReceivingBucket
	n.comesOf(map[string]int{EventIgnored: 4, EventMalformed: 1},
		event("elsewhere"), event(n.a.In.RestoreBucket), strings.Replace(event(bucket), "Created", "Removed", 1), `{"Event":"s3:TestEvent"}`, "hello")
	n.a.Exec(`UPDATE schedules SET paused = true WHERE job = 'read-buckets'`)
	n.comesOf(map[string]int{EventIgnored: 1}, event(bucket))
	n.a.Exec(`UPDATE schedules SET paused = false WHERE job = 'read-buckets'`)
	n.a.Exec(`UPDATE institutions SET state = 'D'`)
	n.comesOf(map[string]int{EventIgnored: 1}, event(bucket))
	if n.scans.Load() != 0 || n.items() != 0 {
		t.Errorf("%d scans, %d items", n.scans.Load(), n.items())
	}
	n.a.Exec(`UPDATE institutions SET state = 'A'`)
	n.comesOf(map[string]int{EventScanned: 1}, event(bucket))
	if n.items() != 1 {
		t.Errorf("%d items in the end", n.items())
	}
}

// A bucket that cannot be scanned is left to the next scan of all, and others are scanned.
func TestFailedScanIsLeftToThePoll(t *testing.T) {
	t.Parallel()
	n := newNotified(t)
	n.a.DepositRaw("one.tar")
	absent := n.a.S3.Prefix + "absent"
	must.Get(n.a.Deps.Registry.AddInstitution(t.Context(), record.Institution{
		Name: "Absent", Identifier: "absent.edu", ReceivingBucket: absent, RestoreBucket: n.a.S3.Prefix + "none",
	}))(t)
	n.comesOf(map[string]int{EventScanned: 1, EventFailed: 1}, event(absent), event(n.a.In.ReceivingBucket))
	if n.items() != 1 || !strings.Contains(n.a.Log.String(), "the next scan of all buckets") {
		t.Errorf("%d items, and the log:\n%s", n.items(), n.a.Log)
	}
}

// Names that nobody has may be sent without end, and take no more memory.
func TestNamesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	var ignored atomic.Int64
	a := NewArrivals(nil, func(result string, n int) {
		if result != EventIgnored {
			t.Errorf("%d events were %s", n, result)
		}
		ignored.Add(int64(n))
	})
	for i := range mostNamed + 500 {
		must.Do(t, a.Take([]byte(event(fmt.Sprint("bucket-", i)))))
	}
	must.Do(t, a.Take([]byte(event("bucket-1"))))
	if len(a.named) != mostNamed || ignored.Load() != 500 || a.named["bucket-1"] != 2 {
		t.Errorf("%d names wait, %d events were ignored, and the last name has %d", len(a.named), ignored.Load(), a.named["bucket-1"])
	}
}
