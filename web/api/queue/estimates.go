package queue

import (
	"context"
	"errors"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

const (
	// modelAge is how old the model of the queue may be.
	modelAge = 15 * time.Second
	// mostWaiting is how long a page waits for the first one.
	mostWaiting = 2 * time.Second
)

type estimatesQuery struct {
	ID []int64 `query:"id,explode" required:"true" minItems:"1" maxItems:"200" doc:"Of live items, up to 200"`
}

// estimates say when items end.
func (a *handlers) estimates(t *ops.API) {
	ops.Register(t, answer.Reads("items.estimates", "/api/v1/items/estimates", "Estimate when items end",
		"An item ends within the interval in 8 of 10 cases. Items that are not in the queue are left out.", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, in *estimatesQuery) (*answer.Body[answer.List[record.ItemEstimate]], error) {
			found := []record.ItemEstimate{}
			ends, err := a.ends(ctx, c, in.ID...)
			for _, id := range in.ID {
				if t, ok := ends[id]; ok {
					found = append(found, record.ItemEstimate{ID: id, Times: t})
					delete(ends, id)
				}
			}
			return answer.All(found), err
		})
}

// model is how the queue was served lately, for all requests; nil: it cannot be read, and the
// rest of the answers goes without.
func (a *handlers) model(ctx context.Context) (*estimate.Model, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, mostWaiting, errors.New("it is being read for the first time; pages have it in a moment"))
	defer cancel()
	m, _, err := a.figures.model.Glance(ctx, modelAge, func(ctx context.Context) (*estimate.Model, error) { return explain.ReadModel(ctx, a.Registry) })
	if err != nil {
		a.Log.WarnContext(ctx, "cannot read how the queue was served; the ends of items are not estimated", "err", err)
		return nil, nil //nolint:nilnil // as is said above
	}
	return m, nil
}

// ends estimates when items in the caller's scope end.
func (a *handlers) ends(ctx context.Context, c access.Caller, ids ...int64) (map[int64]estimate.Times, error) {
	m, err := a.model(ctx)
	if err != nil {
		return nil, err
	}
	return explain.Ends(ctx, a.Registry, c.Scope, m, ids...)
}

// emptied estimates when the bands are empty. People of an institution see only its items of a
// band, and others are served between them.
func (a *handlers) emptied(ctx context.Context, c access.Caller, bands []record.QueueBand) ([]record.BandView, error) {
	list := []record.BandView{}
	m, err := a.model(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range bands {
		v := record.BandView{QueueBand: b}
		switch {
		case !c.Scope.All():
			v.Unknown = "it is shown to those who see the whole queue"
		case m == nil:
			v.Unknown = explain.NotRead
		default:
			v.Empty, v.Unknown = m.Empty(b.Action, b.Stage, b.SizeBand, b.Due, b.Running)
		}
		list = append(list, v)
	}
	return list, nil
}
