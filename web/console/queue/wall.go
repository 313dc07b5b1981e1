package queue

import (
	"fmt"
	"net/url"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
)

// wallPage is for a screen on the wall: few figures that are read from afar.
type wallPage struct {
	Sentence string
	Good     bool
	Queue    record.QueueView
	Oldest   string // for how long the first item has been due
	Ended    picture.Spark
	Groups   []record.Group
	Known    bool              // whether the last bags are
	Last     []record.WorkItem // bags that became safe
	Slots    slots
	Outside  string // what runs in no slot
}

// wallRows is how many groups and bags the wall shows.
const wallRows = 5

// loadWall is read like the first page of staff, so that both agree on what needs a person.
func loadWall(v *frame.Visit) (any, error) {
	v.Style, v.Watch.Figures = "wall", true
	n, err := readNow(v)
	if err != nil {
		return nil, err
	}
	d := wallPage{Sentence: n.Sentence, Good: len(n.Needs)+len(n.Unknown) == 0, Queue: n.Queue, Ended: n.Ended, Groups: n.Groups, Slots: n.Slots, Outside: n.Outside, Oldest: "–"}
	if n.Queue.Total.OldestDue > 0 {
		d.Oldest = words.Rough(words.Duration(n.Queue.Total.OldestDue))
	}
	q := url.Values{"status": {string(registry.Success)}, "action": {"Ingest"}, "limit": {fmt.Sprint(wallRows)}} // in the order of an index
	if last, _ := frame.Optional[frame.List[record.WorkItem]](v, "items", q); last != nil {
		d.Last, d.Known = last.Items, true
	}
	return d, nil
}
