package explain

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A Model returns what is known of how the queue was served lately, which is good for a minute;
// nil: it cannot be read.
type Model func(context.Context) (*estimate.Model, error)

// ReadModel reads how the queue was served lately.
func ReadModel(ctx context.Context, r *registry.Registry) (*estimate.Model, error) {
	recent, err := r.Recent(ctx)
	if err != nil {
		return nil, err
	}
	return estimate.New(recent), nil
}

// Ends estimates when items within a scope end, by a model or by nil. Those that are not in
// the queue are left out.
func Ends(ctx context.Context, r *registry.Registry, scope registry.Scope, m *estimate.Model, ids ...int64) (map[int64]estimate.Times, error) {
	standings, err := r.Standings(ctx, scope, ids)
	if err != nil {
		return nil, err
	}
	ends := map[int64]estimate.Times{}
	for _, s := range standings {
		if m == nil {
			ends[s.ID] = estimate.Unknown(NotRead)
			continue
		}
		ends[s.ID] = m.Of(s, nil)
	}
	return ends, nil
}

// ends estimates when an item ends.
func (s Source) ends(ctx context.Context, i record.WorkItem, current Stage) (t estimate.Times, err error) {
	if !i.Retry || s.Model == nil {
		return t, nil
	}
	m, err := s.Model(ctx)
	if err != nil || m == nil {
		return estimate.Unknown(NotRead), err
	}
	standings, err := s.Registry.Standings(ctx, registry.Everything(), []int64{i.ID})
	for _, standing := range standings { // none: it has been archived since
		t = m.Of(standing, current.SecondsLeft)
	}
	return t, err
}

// NotRead is why an estimate is not known if nothing could be read.
const NotRead = "the queue cannot be read now"

// EndsIn is "in 12m00s, or 9m00s to 20m00s in 8 of 10 cases"; "" if there is nothing to say.
func EndsIn(i *estimate.Interval, unknown string, now time.Time) string {
	switch {
	case i != nil:
		in := func(t time.Time) string { return human.Duration(t.Sub(now)) }
		return fmt.Sprintf("in about %s; in 8 of 10 cases in %s to %s", in(i.Likely), in(i.Low), in(i.High))
	case unknown != "":
		return "not known: " + unknown
	}
	return ""
}
