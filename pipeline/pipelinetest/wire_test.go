package pipelinetest

import (
	"bytes"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/steps"
)

// The wire itself does what it is told to, and nothing else.
func TestWire(t *testing.T) {
	t.Parallel()
	a := New(t, steps.All)
	content := bytes.Repeat([]byte("0123456789"), 10_000)
	a.PutRaw("object", content)
	w := a.Wired()
	bucket := must.Get(a.Deps.Receiving(a.In.ReceivingBucket))(t)
	for _, how := range []string{"flip", "cut", "short"} {
		w.Next(Spoilt{Object: "/object", At: 77_777, How: how, Times: 1})
		if got, err := a.TryContent(bucket, "object"); err == nil && (bytes.Equal(got, content) || how == "cut") {
			t.Errorf("%s: %d bytes are as they were, %v", how, len(got), err)
		}
		if got, err := a.TryContent(bucket, "object"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("after %s: %d bytes, %v", how, len(got), err)
		}
	}
	if n := w.Count("GET", "/object"); n != 6 || w.Left() != 0 {
		t.Errorf("%d requests, %d answers left to be spoilt", n, w.Left())
	}
}
