package restore

import (
	"context"
	"iter"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/tagfile"
	"github.com/farol-preservation/farol/registry"
)

// writeTar writes all of a restored bag.
func (l *layout) writeTar(ctx context.Context, out *outlet) error {
	if _, err := l.head(out); err != nil {
		return err
	}
	if err := l.writeFiles(ctx, out); err != nil {
		return err
	}
	for _, m := range l.lists {
		if err := l.writeManifest(ctx, out, m); err != nil {
			return err
		}
	}
	return out.put(bag.EndOfArchive())
}

// aheadBytes is how many bytes of small files are read ahead, since one request after the
// other would take longer than their bytes do.
const aheadBytes = 8 << 20

// an entry is a file on its way into the tar.
type entry struct {
	file    registry.StoredFile
	header  []byte
	size    int64
	content chan fetched // of a small file that is read ahead; nil of others
}

type fetched struct {
	bytes []byte
	err   error
}

// writeFiles writes the files one after the other, while those that follow are read.
func (l *layout) writeFiles(ctx context.Context, out *outlet) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	entries, failed := make(chan entry, 64), make(chan error, 1)
	budget := semaphore.NewWeighted(aheadBytes)
	readers.Go(func() {
		defer close(entries)
		failed <- l.readAhead(ctx, out.giving, out.from-out.at, budget, &readers, entries)
	})
	files := 0
	for e := range entries {
		files++
		if err := l.writeEntry(ctx, out, e, files); err != nil {
			return err
		}
		if e.content != nil {
			budget.Release(e.size)
		}
	}
	return <-failed
}

// readAhead lists the files with their headers, and begins to read small ones that
// lie behind the first so many bytes. How much of them is read at once is bounded by
// budget, which the writer of a file gives back.
func (l *layout) readAhead(
	ctx context.Context, g *giving, skip int64, budget *semaphore.Weighted, readers *sync.WaitGroup, entries chan<- entry,
) error {
	// Not a goroutine for each file: the stack that a request needs is grown once.
	wanted := make(chan entry)
	defer close(wanted)
	for range max(g.Files, 1) {
		readers.Go(func() {
			for e := range wanted {
				bytes, err := g.small(ctx, e.file)
				e.content <- fetched{bytes, err}
			}
		})
	}
	for f, err := range g.Registry.StoredFiles(ctx, l.object.ID, 0) {
		if err != nil {
			return err
		}
		e := entry{file: f}
		if e.header, e.size, err = l.entry(f); err != nil {
			return err
		}
		skip -= int64(len(e.header)) + e.size + bag.Padding(e.size)
		if skip < 0 && e.size > 0 && e.size <= smallContent && l.path(f) != infoName {
			if err := budget.Acquire(ctx, e.size); err != nil {
				return context.Cause(ctx)
			}
			e.content = make(chan fetched, 1)
			select {
			case wanted <- e:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case entries <- e:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *layout) writeEntry(ctx context.Context, out *outlet, e entry, files int) error {
	if out.past(int64(len(e.header)) + e.size + bag.Padding(e.size)) {
		return nil
	}
	if err := out.w.Hold.Check(ctx); err != nil {
		return err
	}
	out.w.Hold.CurrentFile(l.path(e.file))
	out.w.Count.Read(l.path(e.file), files-1, out.at)
	if err := out.put(e.header); err != nil {
		return err
	}
	if err := l.writeContent(ctx, out, e); err != nil {
		return err
	}
	return out.put(make([]byte, bag.Padding(e.size)))
}

func (l *layout) writeContent(ctx context.Context, out *outlet, e entry) error {
	switch {
	case l.path(e.file) == infoName:
		return out.put(l.info)
	case e.size == 0, out.past(e.size):
		return nil
	case e.content == nil:
		return out.large(ctx, e.file)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case got := <-e.content:
		if got.err != nil {
			return got.err
		}
		return out.put(got.bytes)
	}
}

// listed walks the payload files, which lie in one piece, or those before and behind.
func (l *layout) listed(ctx context.Context, r *registry.Registry, tags bool) iter.Seq2[registry.StoredFile, error] {
	payload := l.object.Identifier + "/data/"
	starts := []string{payload}
	if tags {
		starts = []string{"", payload + "\U0010ffff"}
	}
	return func(yield func(registry.StoredFile, error) bool) {
		for i, after := range starts {
			for f, err := range r.StoredFilesAfter(ctx, l.object.ID, 0, after) {
				if err == nil && isPayload(l.path(f)) == tags {
					if i == 0 {
						break
					}
					continue
				}
				if !yield(f, err) {
					return
				}
			}
		}
	}
}

// writeManifest writes one manifest from the record, line by line.
func (l *layout) writeManifest(ctx context.Context, out *outlet, m manifest) error {
	header, err := bag.EntryHeader(l.top+"/"+m.name(), m.size, l.at)
	if err != nil {
		return err
	}
	if out.past(int64(len(header)) + m.size + bag.Padding(m.size)) {
		return nil
	}
	if err := out.put(header); err != nil {
		return err
	}
	lines, err := tagfile.NewManifestWriter(out, m.algorithm, l.object.TagEncoding)
	if err != nil {
		return err
	}
	for f, err := range l.listed(ctx, out.Registry, m.ofTags) {
		if err != nil {
			return err
		}
		d, err := l.digests(f)
		if err != nil {
			return err
		}
		if err := lines.Add(l.path(f), d); err != nil {
			return err
		}
	}
	if m.ofTags {
		if err := l.ownLines(lines); err != nil {
			return err
		}
	}
	return out.put(make([]byte, bag.Padding(m.size)))
}
