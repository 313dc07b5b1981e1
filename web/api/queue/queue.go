package queue

import (
	"cmp"
	"context"
	"slices"

	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// figures are what this process has read of the machinery, for all who ask.
type figures struct {
	model    answer.Kept[*estimate.Model]
	database answer.Kept[registry.Figures]
	history  answer.KeptBy[span, record.HistoryView]
	groups   answer.KeptBy[int64, record.GroupsView] // by the ID of the institution; 0: all
	mirror   answer.Kept[record.MirrorView]
	health   answer.Kept[struct{}]
}

// span is what a history is about.
type span struct {
	institution int64 // 0: all
	hours       int
}

// HistorySpan says how far a history goes back.
type HistorySpan struct {
	Hours int `query:"hours" minimum:"1" maximum:"168" default:"24" doc:"The last hours, the present one included"`
}

// mostQueues bounds what is shown of queues, and of receivers.
const mostQueues = 10_000

// queue is what waits, runs and has ended.
func (a *handlers) queue(t *ops.API) {
	ops.Register(t, answer.Reads("queues.list", "/api/v1/queues", "List the queues that programs use over HTTP, with their receivers", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, in *struct {
			Queue string `query:"queue" maxLength:"200" doc:"Only this queue"`
		},
		) (*answer.Body[answer.List[record.Queue]], error) {
			found, err := a.Registry.Queues(ctx, in.Queue, mostQueues)
			return answer.All(found), err
		})
	ops.Register(t, answer.Reads("queue.show", "/api/v1/queue", "Show how many items wait, run and are parked",
		"People of an institution see its items; staff and operators also see how the database stands.", permission.QueueRead), a.showQueue)
	ops.Register(t, answer.Reads("queue.matrix", "/api/v1/queue/matrix", "Show the queue by institution, stage and size band", "", permission.QueueRead),
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[record.MatrixView], error) {
			q, age, err := a.Queue(ctx)
			return answer.Of(record.MatrixView{At: q.At(), Age: age.Seconds(), Partitions: append([]record.QueuePartition{}, q.Of(c.Scope)...)}), err
		})
	ops.Register(t, answer.Reads("queue.history", "/api/v1/queue/history", "Show how many items came to an end in each hour",
		"An item that was requeued since does not count. `age_seconds` is the age of the answer.", permission.QueueRead),
		func(ctx context.Context, c access.Caller, in *HistorySpan) (*answer.Body[record.HistoryView], error) {
			id, _ := c.Scope.Institution()
			v, age, err := a.figures.history.Of(span{id, in.Hours}).Glance(ctx, answer.QueueAge, func(ctx context.Context) (v record.HistoryView, err error) {
				v.Hours, err = a.Browse(c).History(ctx, in.Hours)
				return v, err
			})
			v.Age = age.Seconds()
			return answer.Of(v), err
		})
}

func (a *handlers) showQueue(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[record.QueueView], error) {
	q, age, err := a.Queue(ctx)
	if err != nil {
		return nil, err
	}
	v := record.QueueView{At: q.At(), Age: age.Seconds()}
	if v.Bands, err = a.emptied(ctx, c, bandsOf(q.Of(c.Scope))); err != nil {
		return nil, err
	}
	for _, partition := range q.Of(c.Scope) {
		addTo(&v.Total, partition)
	}
	if c.Scope.All() && c.Holds(permission.ItemsWorkers) {
		v.Workers = append([]record.Worker{}, q.Workers()...)
	}
	if c.Scope.All() {
		f, _, err := a.figures.database.Glance(ctx, answer.QueueAge, a.Registry.Figures)
		if err != nil {
			return nil, err
		}
		v.Database = databaseOf(f)
	}
	return answer.Of(v), nil
}

// bandsOf adds up the partitions of all institutions.
func bandsOf(partitions []record.QueuePartition) []record.QueueBand {
	bands := []record.QueueBand{}
	for _, c := range partitions {
		same := func(b record.QueueBand) bool {
			return b.Action == c.Action && b.Stage == c.Stage && b.SizeBand == c.SizeBand
		}
		i := slices.IndexFunc(bands, same)
		if i < 0 {
			i, bands = len(bands), append(bands, record.QueueBand{Action: c.Action, Stage: c.Stage, SizeBand: c.SizeBand})
		}
		addTo(&bands[i], c)
	}
	slices.SortFunc(bands, func(a, b record.QueueBand) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.SizeBand, b.SizeBand))
	})
	return bands
}

func databaseOf(f registry.Figures) *record.QueueDatabase {
	return &record.QueueDatabase{Notify: f.Notify, Tables: f.Tables, Snapshots: f.Oldest, Services: f.Services}
}

// addTo adds a partition to a size band.
func addTo(b *record.QueueBand, c record.QueuePartition) {
	b.Due, b.Delayed, b.Waiting = b.Due+c.Due, b.Delayed+c.Delayed, b.Waiting+c.Waiting
	b.Running, b.Parked, b.Bytes = b.Running+c.Running, b.Parked+c.Parked, b.Bytes+c.Bytes
	b.OldestDue = max(b.OldestDue, c.OldestDue)
}
