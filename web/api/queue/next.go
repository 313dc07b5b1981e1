package queue

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// mostNext is how many callers ask at the same time what comes next: each looks into the
// queue as a worker does.
const mostNext = 2

type nextQuery struct {
	Pools []string `query:"pool,explode" doc:"Pools, such as small=*;max=1GiB, as farol item next --help describes them; without any, those of a worker that is not configured otherwise; 20 at most"`
	Limit int      `query:"limit" minimum:"1" maximum:"10000" default:"50" doc:"How many of each pool at most"`
}

// next is what workers would claim. The order of the queue is that of all institutions, so it
// is for those who see all of them.
func (a *handlers) next(t *ops.API) {
	slots := make(chan struct{}, mostNext)
	ops.Register(t, answer.Reads("items.next", "/api/v1/items/next", "List the items that workers would claim now, in their order",
		"The same as `farol item next`. Nothing is claimed. 503 while others ask the same.", permission.ItemsWorkers),
		func(ctx context.Context, c access.Caller, in *nextQuery) (*answer.Body[answer.List[record.WorkItem]], error) {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			default:
				return nil, answer.Later("others ask the same; try again in a moment")
			}
			ids, err := a.Next(ctx, in.Pools, in.Limit)
			if err != nil {
				return nil, err
			}
			found, err := a.Browse(c).ItemsOf(ctx, ids)
			return answer.All(found), err
		})
}
