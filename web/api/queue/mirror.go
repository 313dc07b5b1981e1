package queue

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// mirror compares the queue with what nsqd shows of it. The figures are kept for all who ask:
// nsqd is asked over its HTTP API.
func (a *handlers) mirror(t *ops.API) {
	ops.Register(t, answer.Reads("mirror.show", "/api/v1/mirror", "Compare the queue with what nsqd shows of it",
		"The same as `farol mirror status`. A server that does not know nsqd's address, or does not reach it, answers that the figures are not known, and why.", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *answer.Empty) (*answer.Body[record.MirrorView], error) {
			if a.Mirror == nil {
				return answer.Of(record.MirrorView{
					Topics: []record.MirrorTopic{}, Note: "This server does not know where nsqd is: its administrator sets FAROL_NSQD_HTTP_ADDR or FAROL_NSQLOOKUPD_HTTP_ADDR. Without a mirror there is nothing to compare.",
				}), nil
			}
			v, age, err := a.figures.mirror.Glance(ctx, answer.QueueAge, a.Mirror)
			v.Age = age.Seconds()
			return answer.Of(v), err
		})
}
