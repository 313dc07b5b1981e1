package restore

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// What is read is what was written, in pieces of any size on either side, and then
// comes the writer's word.
func TestHandoverPassesOnWhatWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.IntRange(0, 300<<10), 0, 12).Draw(t, "pieces")
		ahead := rapid.IntRange(1, 200<<10).Draw(t, "bytes at a time")
		word := rapid.SampledFrom([]error{nil, io.ErrUnexpectedEOF}).Draw(t, "word")
		h := newHandover()
		var want []byte
		for i, n := range pieces {
			want = append(want, bytes.Repeat([]byte{byte(i + 1)}, n)...)
		}
		go func() {
			rest := want
			for _, n := range pieces {
				if m, err := h.Write(rest[:n]); m != n || err != nil {
					h.end(errors.New("refused"))
					return
				}
				rest = rest[n:]
			}
			h.end(word)
		}()
		var got bytes.Buffer
		_, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{h}, make([]byte, ahead))
		if !errors.Is(err, word) {
			t.Errorf("it ends with %v, want %v", err, word)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes, and not those %d that were written", got.Len(), len(want))
		}
	})
}

// A writer does not wait for a reader that has gone.
func TestHandoverEndsWithItsReader(t *testing.T) {
	t.Parallel()
	h := newHandover()
	ended := make(chan error)
	go func() {
		for {
			if _, err := h.Write(make([]byte, 100<<10)); err != nil {
				h.end(err)
				ended <- err
				return
			}
		}
	}()
	must.Get(io.ReadFull(h, make([]byte, 1<<20)))(t)
	for range 2 {
		must.Do(t, h.Close())
	}
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the writer got %v, want %v", err, io.ErrClosedPipe)
	}
}
