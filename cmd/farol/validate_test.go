package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// A disk that fails is not the bag's fault: nothing was found out.
func TestReadingThatFailsIsNoVerdict(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	_, err := readBag(t.Context(), "-", iotest.ErrReader(broken), 0)
	if f := asFailure(err); !errors.Is(err, broken) || f.code != exitUsage || f.next == "" {
		t.Errorf("readBag = %v, told as %+v", err, f)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = readBag(ctx, "-", strings.NewReader(strings.Repeat("x", 1<<20)), 0)
	if f := asFailure(err); f.code != exitUsage || f.Error() != "interrupted" {
		t.Errorf("readBag = %v, told as %+v", err, f)
	}
}
