package bag

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// window is what a reader must be able to hold at once, in bytes; part of the format.
const window = 1 << 20

// Encoders and decoders are kept: a new one clears megabytes, and most lists are small.
var encoders, decoders sync.Pool //nolint:gochecknoglobals // they are caches

// Compress compresses what write writes, as inventories are: by zstd with a window of 1 MiB.
// It does not close w. It is safe for concurrent use.
func Compress(w io.Writer, write func(io.Writer) error) (err error) {
	z, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		if z, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window)); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
	}
	z.Reset(w)
	if err := errors.Join(write(z), z.Close()); err != nil {
		return err // one that has failed is not kept
	}
	z.Reset(nil) // it holds on to nothing
	encoders.Put(z)
	return nil
}

// Decompress reads what [Compress] has written to r. What needs a larger window is refused.
// The reader is not safe for concurrent use; it is to be closed, which does not close r.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	z, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window)); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	if err := z.Reset(r); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return &decompressed{z}, nil
}

type decompressed struct{ z *zstd.Decoder }

func (d *decompressed) Read(p []byte) (int, error) {
	if d.z == nil {
		return 0, io.ErrClosedPipe
	}
	return d.z.Read(p)
}

func (d *decompressed) Close() error {
	if d.z != nil && d.z.Reset(nil) == nil { // it holds on to nothing
		decoders.Put(d.z)
	}
	d.z = nil
	return nil
}
