package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// ofHost says of an error of TMPDIR that it is this host's. Any other stays.
func ofHost(err error) error {
	if f := fault.Host(err); f != nil {
		return f
	}
	return err
}

// scannerErr says of an error of the virus scanner that it is the scanner's. What
// could not be read, or was stopped, is not.
func scannerErr(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || fault.In(err) != nil || errors.Is(err, virus.ErrContent) {
		return err
	}
	k, said, ok := fault.Network(err)
	if !ok {
		k, said = fault.WrongAnswer, "no verdict of clamd"
	}
	return &fault.Error{Service: fault.Scanner, Kind: k, Said: said, Err: err}
}

// identifierErr says of children that do not start that this process, or its host,
// is to blame. A file that ends its child is no error at all.
func identifierErr(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, format.ErrStart) {
		return err
	}
	f := fault.Host(err)
	var start *os.PathError
	switch {
	case f == nil:
		return &fault.Error{Service: fault.Identifier, Kind: fault.Unavailable, Said: "no child starts", Err: err}
	case f.Service == fault.Disk && errors.As(err, &start) && start.Op == "fork/exec":
		f.Service = fault.Identifier // the program, not TMPDIR
	}
	return f
}

// noTarget is what this worker was not configured for. Another one may be.
func noTarget(name string) error {
	return &fault.Error{
		Service: fault.Settings, Kind: fault.Missing, Said: "no target " + name,
		Err: fmt.Errorf("the storage target %s is not configured in this worker", name),
	}
}

// otherBucket is that this worker takes another bucket for a target than that in which
// a copy was verified: what it sees there says nothing of the copy.
func otherBucket(target, configured, holds string) error {
	return &fault.Error{
		Service: fault.Settings, Kind: fault.Missing, Said: "another bucket than others have",
		Err: fmt.Errorf("this worker is configured with the bucket %s for %s, and the copy is in %s", configured, target, holds),
	}
}

// holding returns the bucket of a target in which a copy on record is.
func (d Deps) holding(target, bucket string) (*storage.Bucket, error) {
	b, ok := d.Targets[target]
	switch {
	case !ok:
		return nil, noTarget(target)
	case b.Name() != bucket:
		return nil, otherBucket(target, b.Name(), bucket)
	}
	return b, nil
}

// deniedAlone tells whether a bucket that serves us denies this one object.
func deniedAlone(ctx context.Context, b *storage.Bucket, err error) bool {
	return errors.Is(err, storage.ErrDenied) && b.Probe(ctx) == nil
}
