package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
)

// workersPage are the worker processes that live, and those that have ended.
type workersPage struct {
	Workers []workerRow
	Pools   []poolBar
	Ended   []record.EndedWorker
	Unknown string // why those are not known that have ended
}

// workerRow is a live worker process.
type workerRow struct {
	record.Worker

	Takes []string // for each pool, in words
	Taken slots
	State string
}

// slots is how many slots are taken.
type slots struct{ Taken, All int }

// Free is how many slots are free.
func (s slots) Free() int { return max(s.All-s.Taken, 0) }

// Share is how many per cent of the slots are taken.
func (s slots) Share() int {
	if s.All == 0 {
		return 0
	}
	return min(100*s.Taken/s.All, 100)
}

// pool is what a worker takes with some of its slots, as it registers itself.
type pool struct {
	Name         string   `json:"name"`
	Slots        int      `json:"slots"`
	Stages       []string `json:"stages"`
	MinSize      int64    `json:"min_size"`
	MaxSize      int64    `json:"max_size"`
	Options      []string `json:"storage_options"`
	Institutions []string `json:"institutions"`
}

// poolBar are the slots of all workers with the same pools.
type poolBar struct {
	Name    string
	Workers int
	slots
}

func loadWorkers(v *frame.Visit) (any, error) {
	v.Watch.Figures = true
	found, err := frame.Get[frame.List[record.Worker]](v, "workers", nil)
	if err != nil {
		return nil, err
	}
	d := workersPage{Pools: poolBars(found.Items)}
	for _, w := range found.Items {
		r := workerRow{Worker: w, Taken: slotsOf(w), State: "working"}
		if w.Draining {
			r.State = "draining"
		}
		for _, p := range poolsOf(w) {
			r.Takes = append(r.Takes, p.takes())
		}
		d.Workers = append(d.Workers, r)
	}
	ended, reason := frame.Optional[frame.List[record.EndedWorker]](v, "workers/ended", nil)
	if d.Unknown = reason; ended != nil {
		d.Ended = ended.Items
	}
	return d, nil
}

func slotsOf(w record.Worker) slots {
	s := slots{Taken: w.Running}
	if w.Slots != nil {
		s.All = *w.Slots
	}
	return s
}

// poolsOf are the pools of a worker. What a worker of another version says of others is not
// shown.
func poolsOf(w record.Worker) (list []pool) {
	if json.Unmarshal(w.Pools, &list) != nil {
		return nil
	}
	return list
}

// takes says which items a pool takes.
func (p pool) takes() string {
	text := fmt.Sprintf("%s: %s, %s", p.Name, words.Counted(int64(p.Slots), "slot", "slots"), sizesOf(p.MinSize, p.MaxSize))
	if len(p.Stages) > 0 {
		text += ", " + strings.Join(p.Stages, ", ")
	}
	if len(p.Options) > 0 {
		text += ", stored as " + strings.Join(p.Options, ", ")
	}
	if len(p.Institutions) > 0 {
		text += ", of " + strings.Join(p.Institutions, ", ")
	}
	return text
}

// poolBars adds up the slots of workers with the same pools. Which pool of a worker has an item
// is known to that worker only.
func poolBars(workers []record.Worker) (list []poolBar) {
	for _, w := range workers {
		var parts []string
		for _, p := range poolsOf(w) {
			parts = append(parts, fmt.Sprintf("%s (%s)", p.Name, sizesOf(p.MinSize, p.MaxSize)))
		}
		name := strings.Join(parts, ", ")
		i := slices.IndexFunc(list, func(b poolBar) bool { return b.Name == name })
		if i < 0 {
			i, list = len(list), append(list, poolBar{Name: name})
		}
		s := slotsOf(w)
		list[i].Workers, list[i].Taken, list[i].All = list[i].Workers+1, list[i].Taken+s.Taken, list[i].All+s.All
	}
	return list
}
