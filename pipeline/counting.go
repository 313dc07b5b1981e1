package pipeline

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/retry"
)

const (
	// countAfter is how long a stage runs before its figures are written for the
	// first time: shorter stages have no figures.
	countAfter = 250 * time.Millisecond
	// countEvery is the time between two writes.
	countEvery = time.Second
	// lastCount is how long the last write of an attempt that failed may take.
	lastCount = time.Second
)

// Counting is how far an attempt has come with its stage, for people to see. It
// costs Redis one small write a second, whatever the number of files. Figures grow
// within an attempt, and never beyond their totals.
type Counting struct {
	mu      sync.Mutex
	c       progress.Counters
	done    int64 // bytes of finished files
	begun   time.Time
	hands   map[*group]struct{}
	byFile  map[int]*group
	save    func(context.Context, progress.Counters) error
	compare func(ctx context.Context, before int64) // see highWater
	again   bool                                    // there was an attempt before
	stop    context.CancelFunc
	ended   chan struct{}
}

// A group is some files that are being worked on.
type group struct {
	index  int // of the first file in the inventory, and its path
	path   string
	files  int
	size   int64
	copies int64            // that are made of it
	sent   map[string]int64 // bytes of a large file that are in a bucket
	before map[string]bool  // buckets of which it is known what an earlier attempt sent
}

func (h *group) bytes() int64 {
	var sum int64
	for _, n := range h.sent {
		sum += n
	}
	return min(sum/h.copies, h.size)
}

// StartCounting starts counting, with the totals and what earlier attempts have finished.
// Figures are written until end, or until ctx is done.
func (w *Work) StartCounting(ctx context.Context, start progress.Counters) {
	c := &w.Count
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		return // a stage that begins again within its attempt goes on counting
	}
	start.Stage, start.Token = w.Item.Stage, w.Item.Token
	start.Files, start.Bytes = start.FilesBefore, start.BytesBefore
	c.c, c.done, c.begun = start, start.BytesBefore, time.Now()
	c.hands, c.byFile = map[*group]struct{}{}, map[int]*group{}
	c.save = func(ctx context.Context, n progress.Counters) error { return w.Progress.Count(ctx, w.Claim(), n) }
	c.compare, c.again = (&highWater{w, -1}).compare, w.Item.Attempt > 1
	ctx, c.stop = context.WithCancel(ctx)
	c.ended = make(chan struct{})
	go c.run(ctx)
}

// run writes the figures. If Redis does not accept them, the item loses nothing.
func (c *Counting) run(ctx context.Context) {
	defer close(c.ended)
	look := func(n progress.Counters) { c.compare(ctx, n.FilesBefore+n.BytesBefore) }
	if c.again {
		look(c.now())
	}
	for next := countAfter; retry.Pause(ctx, next); next = countEvery {
		n := c.now()
		_ = c.save(ctx, n)
		look(n)
	}
}

// end stops writing. The last figures of an attempt that did not finish stay.
func (c *Counting) end(ctx context.Context, finished bool) {
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-c.ended
	if finished {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCount)
	defer cancel()
	_ = c.save(ctx, c.now())
}

// now returns the figures as they are.
func (c *Counting) now() progress.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.c
	n.Elapsed, n.Busy = time.Since(c.begun), max(n.Busy, len(c.hands))
	n.CurrentFiles = slices.Clone(n.CurrentFiles)
	for h := range c.hands {
		n.CurrentFiles = append(n.CurrentFiles, progress.CurrentFile{Path: h.path, Files: h.files, Size: h.size, Bytes: h.bytes()})
	}
	slices.SortFunc(n.CurrentFiles, func(a, b progress.CurrentFile) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Path, b.Path))
	})
	return n
}

// Take notes that a group is in progress: so many files of so many bytes in all, the first
// of which has this index and path.
func (c *Counting) Take(index int, path string, files int, size int64) *group {
	h := &group{index: index, path: path, files: files, size: size, copies: 1, sent: map[string]int64{}, before: map[string]bool{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands[h] = struct{}{}
	c.byFile[index] = h
	return h
}

// Drop notes that a group is no longer in progress, finished or not.
func (c *Counting) Drop(h *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hands, h)
	delete(c.byFile, h.index)
}

// Finish counts a file of a group, which has this size.
func (c *Counting) Finish(h *group, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.Files++
	c.done += size
	if h.files--; h.files == 0 {
		delete(c.hands, h) // its bytes are counted now
	} else {
		h.size -= size
	}
	c.moved()
}

// Copies says of a large file how many copies are made of it.
func (c *Counting) Copies(index, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.byFile[index]; h != nil {
		h.copies = int64(max(n, 1))
	}
}

// Parts returns what counts the parts of a large file that come to be in a bucket.
// What an earlier attempt sent is counted first.
func (c *Counting) Parts(index int, bucket string) func(bytes int64, before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.byFile[index]
	if h == nil {
		return nil
	}
	h.sent[bucket] = 0 // another try counts it again
	earlier := !h.before[bucket]
	h.before[bucket] = true
	return func(bytes int64, before bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		h.sent[bucket] += bytes
		if before && earlier {
			c.c.BytesBefore += bytes / h.copies
		}
		c.moved()
	}
}

// Read notes how far the tar was read, and what is read now.
func (c *Counting) Read(path string, files int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		return
	}
	c.c.Files, c.done = max(c.c.Files, int64(files)), max(c.done, bytes)
	c.c.CurrentFiles, c.c.Busy = nil, 0
	if path != "" {
		c.c.CurrentFiles, c.c.Busy = []progress.CurrentFile{{Path: path, Files: 1, Size: -1}}, 1
	}
	c.moved()
}

// moved adds up the bytes. The bytes of a file that failed stay, so that people never see
// figures fall.
func (c *Counting) moved() {
	sum := c.done
	for h := range c.hands {
		sum += h.bytes()
	}
	c.c.Bytes = min(max(c.c.Bytes, sum), c.c.BytesTotal)
	c.c.Moved = time.Since(c.begun)
}
