package queue

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// nextShown is how many items the page of the queue names that workers would claim next.
const nextShown = "8"

// queuePage is the queue as far as a person may see it.
type queuePage struct {
	Queue  record.QueueView
	Grid   grid
	Shares []share // of the institutions; only for those who see all
	Fixity record.StagePause
	Ended  picture.Spark
	Parked picture.Spark
	Paused int // stages

	Next        []record.WorkItem // what workers would claim next
	NextUnknown string            // why that is not known
	WithNext    bool              // it is for this person
}

// share is what an institution has in the queue.
type share struct {
	Institution                            string
	Due, Delayed, Waiting, Running, Parked int64
	Bytes                                  int64
	OldestDue                              float64
}

func loadQueue(v *frame.Visit) (any, error) {
	v.Watch.Figures = true
	q, err := frame.Get[record.QueueView](v, "queue", nil)
	if err != nil {
		return nil, err
	}
	stages, err := frame.Get[record.StageList](v, "stages", nil)
	if err != nil {
		return nil, err
	}
	d := queuePage{Queue: q, Grid: gridOf(q, stages.Items), Fixity: stages.Fixity}
	d.Paused = len(d.Grid.paused())
	if v.Caller.Scope.All() {
		if m, _ := frame.Optional[record.MatrixView](v, "queue/matrix", nil); m != nil {
			d.Shares = sharesOf(m.Partitions)
		}
	}
	if h, _ := frame.Optional[record.HistoryView](v, "queue/history", url.Values{"hours": {"24"}}); h != nil {
		d.Ended = picture.SparkOf("Items that ended with success", time.Now(), h.Hours, registry.Success)
		d.Parked = picture.SparkOf("Items that were parked", time.Now(), h.Hours, registry.Failed, registry.Suspended)
	}
	// It looks into the queue as a worker does, so it is not looked up by pages that only keep
	// their figures up to date.
	if d.WithNext = v.Caller.Scope.All() && v.Holds(permission.ItemsWorkers); d.WithNext && v.Header.Get("X-Refresh") == "" {
		next, reason := frame.Optional[frame.List[record.WorkItem]](v, "items/next", url.Values{"limit": {nextShown}})
		if d.NextUnknown = reason; next != nil {
			d.Next = next.Items
		}
	}
	return d, nil
}

// sharesOf adds up what each institution has in the queue, in the order of the queue's bytes:
// those with the most first.
func sharesOf(partitions []record.QueuePartition) (list []share) {
	at := map[string]int{}
	for _, p := range partitions {
		i, found := at[p.Institution]
		if !found {
			i = len(list)
			at[p.Institution] = i
			list = append(list, share{Institution: p.Institution})
		}
		s := &list[i]
		s.Due, s.Delayed, s.Waiting, s.Running, s.Parked = s.Due+p.Due, s.Delayed+p.Delayed, s.Waiting+p.Waiting, s.Running+p.Running, s.Parked+p.Parked
		s.Bytes, s.OldestDue = s.Bytes+p.Bytes, max(s.OldestDue, p.OldestDue)
	}
	slices.SortFunc(list, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Institution, b.Institution))
	})
	return list
}

// loadStages are the stages of all actions with their settings.
func loadStages(v *frame.Visit) (any, error) {
	return frame.Get[record.StageList](v, "stages", nil)
}

// stagePage is a stage with its settings.
type stagePage struct {
	record.StageSettings

	Name  string
	Tag   string // which its settings are changed with
	Added bool   // by people, and can be removed
}

func loadStage(v *frame.Visit) (any, error) {
	action, name := registry.Action(v.PathValue("action")), registry.Stage(v.PathValue("stage"))
	s, tag, err := frame.GetTagged[record.StageSettings](v, words.StagePath(action, name)[1:], nil)
	if err != nil {
		return nil, err
	}
	d := stagePage{StageSettings: s, Name: words.StageName(s.Action, s.Stage), Tag: tag, Added: s.Worker == "http" && s.Action == "Ingest"}
	v.Title = "Stage " + d.Name
	return d, nil
}
