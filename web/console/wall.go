package console

import (
	"fmt"
	"net/url"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/api"
)

// wallPage is for a screen on the wall: few figures that are read from afar.
type wallPage struct {
	Sentence string
	Good     bool
	Queue    api.QueueView
	Oldest   string // for how long the first item has been due
	Hour     int64  // items that ended with success in the last full hour
	Ended    spark
	Groups   []browse.Group
	Known    bool                // whether the last bags are
	Last     []registry.WorkItem // bags that became safe
	Slots    slots
}

// wallRows is how many groups and bags the wall shows.
const wallRows = 5

// wall is read like the first page of staff, so that both agree on what needs a person.
func (p *Pages) wall(v *visit) (any, error) {
	v.style, v.watch.figures = "wall", true
	n, err := p.readNow(v)
	if err != nil {
		return nil, err
	}
	d := wallPage{Sentence: n.Sentence, Good: len(n.Needs) == 0, Queue: n.Queue, Ended: n.Ended, Groups: n.Groups, Oldest: "–"}
	if n.Queue.Total.OldestDue > 0 {
		d.Oldest = rough(seconds64(n.Queue.Total.OldestDue))
	}
	if hours := n.Ended.Hours; len(hours) > 1 {
		d.Hour = hours[len(hours)-2].N
	}
	for _, b := range n.Pools {
		d.Slots.Taken, d.Slots.All = d.Slots.Taken+b.Taken, d.Slots.All+b.All
	}
	q := url.Values{"status": {string(registry.Success)}, "action": {"Ingest"}, "limit": {fmt.Sprint(wallRows)}} // in the order of an index
	if last, _ := optional[listOf[registry.WorkItem]](v, "items", q); last != nil {
		d.Last, d.Known = last.Items, true
	}
	return d, nil
}
