package interim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Sources are the places where the files of items are known. Each is opened when an item
// needs it.
type Sources struct {
	Registry *registry.Registry
	InWork   func(context.Context) (Reader, error)          // of what the stages of an ingest have left
	Kept     func(context.Context) (*storage.Bucket, error) // of what was kept of that; nil: nothing is kept
}

// Listing is a page of the files of an item.
type Listing struct {
	Files []File
	Known bool   // false: nothing is known of the item's files
	Note  string // a sentence about where the files are known from, or why nothing is known; "": there is nothing to say
}

// UnreadError says that a place did not answer where the files of an item are known.
type UnreadError struct{ Err error }

// Error is of the place.
func (e UnreadError) Error() string { return e.Err.Error() }

// Unwrap is the error of the place.
func (e UnreadError) Unwrap() error { return e.Err }

// List lists a page of the files of an item: from what the stages leave while it is being
// ingested, and afterwards from what was kept of that, or from the records. A place that
// does not answer is an [UnreadError].
func (s Sources) List(ctx context.Context, item record.WorkItem, page Page) (Listing, error) {
	attempts, err := s.Registry.Attempts(ctx, item.ID)
	if err != nil {
		return Listing{}, err
	}
	ingest := item.Action == "Ingest"
	if ingest && item.Status != "Success" {
		if l, err := s.inWork(ctx, item, attempts, page); err != nil || l.Known {
			return l, err
		}
	}
	if ingest && !item.Retry || item.Stage == registry.Cleanup {
		if l, err := s.kept(ctx, item, page); err != nil || l.Known {
			return l, err
		}
	}
	switch {
	case !ingest || item.Stage == registry.Cleanup:
		return s.onRecord(ctx, item, attempts, page)
	case item.Stage == registry.Receive:
		return Listing{Note: fmt.Sprintf("Nothing is known of the files of item %d: its bag was not read, or not far enough.", item.ID)}, nil
	}
	return Listing{Note: fmt.Sprintf("Nothing is kept of the files of item %d any more: its interim metadata was removed.", item.ID)}, nil
}

func (s Sources) inWork(ctx context.Context, item record.WorkItem, attempts []record.Attempt, page Page) (l Listing, err error) {
	reader, err := s.InWork(ctx)
	if err != nil {
		return l, err
	}
	m, err := reader.Read(ctx, item, attempts)
	if err != nil {
		return l, UnreadError{err}
	}
	defer m.Close()
	if l.Files, err = page.Of(m.Files(ctx)); err != nil {
		return l, UnreadError{err}
	}
	if m.Faults != nil && m.Faults.More > 0 && slices.ContainsFunc(l.Files, func(f File) bool { return f.State == fileFailed }) {
		l.Note = fmt.Sprintf("The last attempt had %d more faults, whose files are not known.", m.Faults.More)
	}
	l.Known = m.Known() || len(l.Files) > 0
	return l, nil
}

func (s Sources) kept(ctx context.Context, item record.WorkItem, page Page) (l Listing, err error) {
	if s.Kept == nil {
		return l, nil
	}
	bucket, err := s.Kept(ctx)
	if err != nil || bucket == nil {
		return l, err
	}
	k, err := Open(ctx, bucket, item.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return l, nil
	}
	if err != nil {
		return l, UnreadError{err}
	}
	defer k.Close() //nolint:errcheck // only read
	if l.Files, err = page.Of(k.Files()); err != nil {
		return l, UnreadError{err}
	}
	l.Known, l.Note = true, fmt.Sprintf("The states were kept at %s, when the item was at %s.", k.At.UTC().Format(time.RFC3339), k.Stage)
	return l, nil
}

func (s Sources) onRecord(ctx context.Context, item record.WorkItem, attempts []record.Attempt, page Page) (Listing, error) {
	f := registry.ItemFileFilter{Item: item, Ended: time.Now(), State: page.State, After: page.After, Limit: page.Limit}
	if n := len(attempts); n > 0 && attempts[n-1].EndedAt != nil {
		f.Ended = *attempts[n-1].EndedAt
	}
	found, err := s.Registry.ItemFiles(ctx, f)
	l := Listing{Known: true}
	for _, x := range found {
		of := File{Path: x.Path, Size: x.Size, State: x.State, Message: x.Message, UUID: x.UUID, Format: x.Format, PUID: x.PUID}
		for _, target := range x.Targets {
			of.Copies = append(of.Copies, Copy{Target: target})
		}
		l.Files = append(l.Files, of)
	}
	return l, err
}
