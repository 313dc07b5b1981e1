package fault_test

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/fault"
)

// What answered is noted for the work under whose context it did, and for no other.
func TestAnswersAreNotedOfTheirWork(t *testing.T) {
	t.Parallel()
	var one, other fault.Answers
	ctx := fault.WithAnswers(t.Context(), &one)
	fault.WithAnswers(t.Context(), &other)
	fault.Answered(context.WithoutCancel(ctx), fault.Redis)
	fault.Answered(ctx, fault.Redis)
	fault.Answered(t.Context(), fault.Disk)
	if !one.Has(fault.Redis) || one.Has(fault.Disk) || other.Has(fault.Redis) {
		t.Errorf("one has %+v, the other %+v", &one, &other)
	}
}
