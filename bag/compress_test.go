package bag_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Encoders and decoders are used again, also after others failed or were left half way, by
// several at once: each gets back its own bytes.
func TestCompressedComesBack(t *testing.T) {
	t.Parallel()
	var group errgroup.Group
	for n := range 16 {
		group.Go(func() error {
			for round := range 20 {
				want := bytes.Repeat(fmt.Append(nil, n, round, "of the list"), 1+n*round*100)
				if err := comesBack(want, round); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must.Do(t, group.Wait())
}

var errFull = errors.New("full")

func comesBack(want []byte, round int) error {
	var compressed bytes.Buffer
	err := bag.Compress(&compressed, func(w io.Writer) error {
		_, err := w.Write(want)
		return err
	})
	if err != nil {
		return err
	}
	if err := bag.Compress(io.Discard, func(io.Writer) error { return errFull }); !errors.Is(err, errFull) {
		return errors.New("the error of what writes is lost")
	}
	for _, content := range [][]byte{compressed.Bytes()[:compressed.Len()/2], compressed.Bytes()} {
		r, err := bag.Decompress(bytes.NewReader(content))
		if err != nil {
			return err
		}
		got, err := io.ReadAll(io.LimitReader(r, int64(len(want)-round%2))) // some leave before the end
		if closed := r.Close(); closed != nil {
			return closed
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			return errors.New("a closed reader reads")
		}
		if len(content) == compressed.Len() && (err != nil || !bytes.Equal(got, want[:len(want)-round%2])) {
			return errors.New("other bytes came back")
		}
	}
	return nil
}
