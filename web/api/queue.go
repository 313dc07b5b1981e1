package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// queueAge is how old the figures of the queue may be.
const queueAge = 5 * time.Second

// figures are what this process has read of the machinery, for all who ask.
type figures struct {
	queue    kept[browse.Queue]
	model    kept[*estimate.Model]
	database kept[registry.Figures]
	history  keptBy[span, HistoryView]
	fixity   kept[fixityArchive]
	own      keptBy[int64, fixityOwn]  // by the ID of the institution
	groups   keptBy[int64, GroupsView] // by the ID of the institution; 0: all
	mirror   kept[MirrorView]
	health   kept[struct{}]
}

// QueueBand counts items at a stage in one size band.
type QueueBand struct {
	Action    registry.Action `json:"action"`
	Stage     registry.Stage  `json:"stage"`
	SizeBand  int16           `json:"size_band"`
	Due       int64           `json:"due"`
	Delayed   int64           `json:"delayed" doc:"Until a time"`
	Waiting   int64           `json:"waiting" doc:"For another item"`
	Running   int64           `json:"running"`
	Parked    int64           `json:"parked" doc:"Failed or Suspended"`
	Bytes     int64           `json:"bytes" doc:"Of those that are not parked"`
	OldestDue float64         `json:"oldest_due_seconds" doc:"For which the first has been due"`
}

func (b *QueueBand) add(c browse.QueuePartition) {
	b.Due, b.Delayed, b.Waiting = b.Due+c.Due, b.Delayed+c.Delayed, b.Waiting+c.Waiting
	b.Running, b.Parked, b.Bytes = b.Running+c.Running, b.Parked+c.Parked, b.Bytes+c.Bytes
	b.OldestDue = max(b.OldestDue, c.OldestDue)
}

// BandView is a band with the time until what is in it has left the stage.
type BandView struct {
	QueueBand

	Empty   *estimate.Span `json:"empty_seconds" doc:"Until what waits and runs has left the stage, at the present rate, in seconds; null: not known"`
	Unknown string         `json:"empty_unknown" doc:"Why that is not known"`
}

// queueDatabase is how the database of the queue stands.
type queueDatabase struct {
	Notify    float64         `json:"notify_usage" doc:"Share of the queue of NOTIFY that is in use"`
	Tables    []tableView     `json:"tables"`
	Snapshots []snapshotView  `json:"oldest_snapshots" doc:"What keeps vacuum from dead rows, the oldest of each kind"`
	Services  []queueServices `json:"services"`
}

type (
	tableView struct {
		Table string `json:"table"`
		Live  int64  `json:"live_rows"`
		Dead  int64  `json:"dead_rows"`
	}
	snapshotView struct {
		Kind         string  `json:"kind" enum:"transaction,prepared,slot,standby"`
		Seconds      float64 `json:"age_seconds"`
		Transactions int64   `json:"transactions" doc:"How many began since"`
		Name         string  `json:"name"`
	}
	queueServices struct {
		Service string `json:"service"`
		Held    bool   `json:"held"`
		Failing int64  `json:"workers_failing"`
	}
)

// QueueView is the queue as far as a caller may see it.
type QueueView struct {
	At       time.Time         `json:"at" doc:"When it was read"`
	Age      float64           `json:"age_seconds" doc:"It is read every 5 seconds at most"`
	Total    QueueBand         `json:"total"`
	Bands    []BandView        `json:"bands"`
	Workers  []registry.Worker `json:"workers" doc:"Those that lived at that moment; null for those who may not list workers"`
	Database *queueDatabase    `json:"database" doc:"null for people of an institution"`
}

// MatrixView is the queue by institution, stage and size band.
type MatrixView struct {
	At         time.Time               `json:"at" doc:"When it was read"`
	Age        float64                 `json:"age_seconds"`
	Partitions []browse.QueuePartition `json:"partitions" doc:"One for each institution, stage and size band that has items"`
}

// HistoryView is what came to an end, by hours.
type HistoryView struct {
	Age   float64        `json:"age_seconds"`
	Hours []browse.Ended `json:"hours" doc:"Hours in which items of an action came to an end with a status"`
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
func (a *API) queue(t *ops.API) {
	ops.Register(t, reads("queues.list", "/api/v1/queues", "List the queues that programs use over HTTP, with their receivers", "", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, in *struct {
			Queue string `query:"queue" maxLength:"200" doc:"Only this queue"`
		},
		) (*body[list[registry.Queue]], error) {
			found, err := a.Registry.Queues(ctx, in.Queue, mostQueues)
			return &body[list[registry.Queue]]{list[registry.Queue]{Items: found}}, err
		})
	ops.Register(t, reads("queue.show", "/api/v1/queue", "Show how many items wait, run and are parked",
		"People of an institution see its items; staff and operators also see how the database stands.", permission.QueueRead), a.showQueue)
	ops.Register(t, reads("queue.matrix", "/api/v1/queue/matrix", "Show the queue by institution, stage and size band", "", permission.QueueRead),
		func(ctx context.Context, c access.Caller, _ *empty) (*body[MatrixView], error) {
			q, age, err := a.readQueue(ctx)
			return &body[MatrixView]{MatrixView{q.At(), age.Seconds(), append([]browse.QueuePartition{}, q.Of(c.Scope)...)}}, err
		})
	ops.Register(t, reads("queue.history", "/api/v1/queue/history", "Show how many items came to an end in each hour",
		"An item that was requeued since does not count. `age_seconds` is the age of the answer.", permission.QueueRead),
		func(ctx context.Context, c access.Caller, in *HistorySpan) (*body[HistoryView], error) {
			id, _ := c.Scope.Institution()
			v, age, err := a.figures.history.of(span{id, in.Hours}).glance(ctx, queueAge, func(ctx context.Context) (v HistoryView, err error) {
				v.Hours, err = a.browse(c).History(ctx, in.Hours)
				return v, err
			})
			v.Age = age.Seconds()
			return &body[HistoryView]{v}, err
		})
}

// QueueChanged is a fingerprint of the queue, as all who ask are answered it: it is another one
// when the figures are.
func (a *API) QueueChanged(ctx context.Context) (string, error) {
	q, _, err := a.readQueue(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, p := range q.Of(registry.Everything()) {
		p.OldestDue = 0 // grows by itself
		fmt.Fprintln(sum, p)
	}
	return string(sum.Sum(nil)), nil
}

func (a *API) readQueue(ctx context.Context) (browse.Queue, time.Duration, error) {
	return a.figures.queue.glance(ctx, queueAge, func(ctx context.Context) (browse.Queue, error) { return browse.TakeQueue(ctx, a.Registry) })
}

func (a *API) showQueue(ctx context.Context, c access.Caller, _ *empty) (*body[QueueView], error) {
	q, age, err := a.readQueue(ctx)
	if err != nil {
		return nil, err
	}
	v := QueueView{At: q.At(), Age: age.Seconds()}
	if v.Bands, err = a.emptied(ctx, c, bandsOf(q.Of(c.Scope))); err != nil {
		return nil, err
	}
	for _, partition := range q.Of(c.Scope) {
		v.Total.add(partition)
	}
	if c.Scope.All() && c.Holds(permission.ItemsWorkers) {
		v.Workers = append([]registry.Worker{}, q.Workers()...)
	}
	if c.Scope.All() {
		f, _, err := a.figures.database.glance(ctx, queueAge, a.Registry.Figures)
		if err != nil {
			return nil, err
		}
		v.Database = databaseOf(f)
	}
	return &body[QueueView]{v}, nil
}

// bandsOf adds up the partitions of all institutions.
func bandsOf(partitions []browse.QueuePartition) []QueueBand {
	bands := []QueueBand{}
	for _, c := range partitions {
		same := func(b QueueBand) bool { return b.Action == c.Action && b.Stage == c.Stage && b.SizeBand == c.SizeBand }
		i := slices.IndexFunc(bands, same)
		if i < 0 {
			i, bands = len(bands), append(bands, QueueBand{Action: c.Action, Stage: c.Stage, SizeBand: c.SizeBand})
		}
		bands[i].add(c)
	}
	slices.SortFunc(bands, func(a, b QueueBand) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.SizeBand, b.SizeBand))
	})
	return bands
}

func databaseOf(f registry.Figures) *queueDatabase {
	v := queueDatabase{Notify: f.Notify, Tables: []tableView{}, Snapshots: []snapshotView{}, Services: []queueServices{}}
	for _, t := range f.Tables {
		v.Tables = append(v.Tables, tableView(t))
	}
	for _, s := range f.Oldest {
		v.Snapshots = append(v.Snapshots, snapshotView(s))
	}
	for _, s := range f.Services {
		v.Services = append(v.Services, queueServices(s))
	}
	return &v
}
