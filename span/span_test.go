package span_test

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/span"
)

// Every process finds the same IDs, today and in a year: they must not change between versions either.
func TestTraceFollowsFromTheItem(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	if got := span.TraceOf(7, made.In(time.FixedZone("", 3600))).String(); got != "08be0f9407ef3babb757faac3990e33c" {
		t.Errorf("the trace of item 7 is %s", got)
	}
	if span.TraceOf(7, made) == span.TraceOf(8, made) || span.TraceOf(7, made) == span.TraceOf(7, made.Add(time.Microsecond)) {
		t.Error("two items have one trace")
	}
}

// Without tracing, what is called for each request costs no memory.
func TestNothingIsAllocatedWithoutTracing(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if span.Recorded(ctx) {
			t.Error("it is recorded")
		}
		_, s := span.Begin(ctx, "stage")
		span.End(s, false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
