// Package cause says whose fault an error is: the item's, a service's or this host's, in
// the terms of packages claim and fault.
package cause

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// Host says of an error of TMPDIR that it is this host's. Any other stays.
func Host(err error) error {
	if f := fault.Host(err); f != nil {
		return f
	}
	return err
}

// Scanner says of an error of the virus scanner that it is the scanner's. What
// could not be read, or was stopped, is not.
func Scanner(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || fault.In(err) != nil || errors.Is(err, virus.ErrContent) {
		return err
	}
	k, said, ok := fault.Network(err)
	if !ok {
		k, said = fault.WrongAnswer, "no result from clamd"
	}
	return &fault.Error{Service: fault.Scanner, Kind: k, Said: said, Err: err}
}

// Identifier says of children that do not start, or that were ended, that this process, or
// its host, is to blame. A file that ends its child is no error at all.
func Identifier(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, format.ErrClosed) {
		return &fault.Error{Service: fault.Identifier, Kind: fault.Unavailable, Said: "this worker has ended it", Err: err}
	}
	if ctx.Err() != nil || !errors.Is(err, format.ErrStart) {
		return err
	}
	f := fault.Host(err)
	start, path := errors.AsType[*os.PathError](err)
	switch {
	case f == nil:
		return &fault.Error{Service: fault.Identifier, Kind: fault.Unavailable, Said: "child processes do not start", Err: err}
	case f.Service == fault.Disk && path && start.Op == "fork/exec":
		f.Service = fault.Identifier // the program, not TMPDIR
	}
	return f
}

// NoTarget is what this worker was not configured for. Another one may be.
func NoTarget(name string) error {
	return &fault.Error{
		Service: fault.Settings, Kind: fault.Missing, Said: "no target " + name,
		Err: fmt.Errorf("this worker is not configured for the storage target %s", name),
	}
}

// OtherBucket is that this worker takes another bucket for a target than that in which
// a copy was verified: what it sees there says nothing of the copy.
func OtherBucket(target, configured, holds string) error {
	return &fault.Error{
		Service: fault.Settings, Kind: fault.Missing, Said: "its bucket differs from other workers'",
		Err: fmt.Errorf("this worker is configured with the bucket %s for %s, and the copy is in %s", configured, target, holds),
	}
}

// DeniedAlone tells whether a bucket that serves us denies this one object.
func DeniedAlone(ctx context.Context, b *storage.Bucket, err error) bool {
	return errors.Is(err, storage.ErrDenied) && b.Probe(ctx) == nil
}

// Storage gives errors of preservation and staging buckets their meaning. What
// has one already keeps it, as what is the bucket's own failure does.
func Storage(err error) error {
	switch {
	case err == nil, Known(err), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrChanged):
		return err
	case errors.Is(err, storage.ErrDigest):
		return claim.Transient("storage-digest", err)
	}
	return claim.Transient("storage-unavailable", err)
}

// Known tells whether an error has its meaning already. Work that was stopped has one too:
// the caller that stopped it knows why.
func Known(err error) bool {
	code := claim.Code(err)
	return code != "transient" && code != "timeout" || errors.Is(err, context.Canceled)
}

// WrongAnswer is the error of a bucket whose answers cannot be relied on: nothing is
// known of what is in it.
func WrongAnswer(b *storage.Bucket, said, format string, args ...any) error {
	return &fault.Error{Service: fault.Bucket(b.TargetName()), Kind: fault.WrongAnswer, Said: said, Err: fmt.Errorf(format, args...)}
}

// FileError is an error about one file.
type FileError struct {
	Path string
	err  error
}

// InFile says which file of the item an error is about.
func InFile(path string, err error) error { return &FileError{path, err} }

// Error is the text of the error without the path, which it has already.
func (e *FileError) Error() string { return e.err.Error() }

// Unwrap returns the error about the file.
func (e *FileError) Unwrap() error { return e.err }

// Mismatch is an error about two things that should be the same.
type Mismatch struct {
	Text, Expected, Found string
	Kind                  error // what callers look for; nil: nothing
}

// Error says what differs.
func (m *Mismatch) Error() string { return m.Text }

// Unwrap returns the kind.
func (m *Mismatch) Unwrap() error { return m.Kind }

// All finds the errors of a type in a tree of errors, and tells whether that is all that is in it.
func All[E error](err error) (list []E, all bool) {
	switch e := err.(type) { //nolint:errorlint // each node of the tree is looked at
	case E:
		return []E{e}, true
	case interface{ Unwrap() []error }:
		all = true
		for _, err := range e.Unwrap() {
			some, only := All[E](err)
			list, all = append(list, some...), all && only
		}
		return list, all
	case interface{ Unwrap() error }:
		return All[E](e.Unwrap())
	}
	return nil, false
}

// Few are errors that concern one item each: the others get their turn, unless it
// goes wrong with so many that it is not the items.
type Few []error

// TooMany adds an error, unless it is nil, and tells whether there are too many.
func (f *Few) TooMany(err error) bool {
	const most = 5
	if err != nil {
		*f = append(*f, err)
	}
	return len(*f) >= most
}

// With returns all of them, and one that concerns all items.
func (f *Few) With(err error) error { return errors.Join(append(*f, err)...) }

// ErrElsewhere says that a copy is where this process is not configured to read.
var ErrElsewhere = errors.New("the copy is in a bucket that is not configured here")
