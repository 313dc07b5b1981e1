package ingest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/lists"
)

// The stream of a tar outlives connections that break, as long as it gets on.
func TestStreamOutlivesBrokenConnections(t *testing.T) {
	t.Parallel()
	content := []byte("the content of a tar")
	for name, tc := range map[string]struct {
		each []int // bytes that come through each connection before it breaks
		want error
	}{
		"one break":               {[]int{5, 100}, nil},
		"without a byte between":  {[]int{5, 0, 0, 100}, nil},
		"many, but it gets on":    {[]int{1, 1, 1, 1, 1, 1, 100}, nil},
		"again and again at once": {[]int{5, 0, 0, 0, 0, 100}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			p := &patient{ctx: t.Context(), size: int64(len(content)), most: 1000, open: func(offset, _ int64) (io.ReadCloser, error) {
				n := tc.each[opened]
				opened++
				rest := content[offset:]
				if n >= len(rest) {
					return io.NopCloser(bytes.NewReader(rest)), nil
				}
				return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:n]), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
			}}
			got, err := io.ReadAll(p)
			if !errors.Is(err, tc.want) || err == nil && !bytes.Equal(got, content) {
				t.Errorf("read %q, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// Access is one of three, in lower case, and the institution's unless the bag
// says otherwise.
func TestAccess(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"Consortia": "consortia", "INSTITUTION": "institution", "restricted": "restricted", "": "institution", "public": "institution",
	} {
		r := recorder{Set: &lists.Set{Bag: bag.Bag{Tags: []bag.Tag{{File: "aptrust-info.txt", Name: "Access", Value: said}}}}}
		if got := r.access(); got != want {
			t.Errorf("Access %q is stored as %q, want %q", said, got, want)
		}
	}
}
