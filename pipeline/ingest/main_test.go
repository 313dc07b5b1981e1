package ingest

import (
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/lists"
)

// area is what the item of a claim has of lists. One that is written is there at once.
func (a *archive) area(w *pipeline.Work) *lists.Area {
	return &lists.Area{
		Bucket: a.Deps.Staging, Registry: a.Deps.Registry, Item: w.Item.ID, Log: a.Deps.Log, Check: w.Hold.Check, Leave: a.Leave(w.Item.ID),
	}
}

// entered is the work of a claim as the stages of an ingest have it.
func (a *archive) entered(w *pipeline.Work) *work {
	return &work{Work: w, lists: a.area(w)}
}

// checkpointEvery has Receive keep a checkpoint after so many bytes.
func (a *archive) checkpointEvery(bytes int64) {
	a.receiveWith(func(s *receive) { s.checkpointEvery = bytes })
}

// receiveWith changes the stage Receive.
func (a *archive) receiveWith(change func(s *receive)) {
	a.Steps = func(d pipeline.Deps) []pipeline.Step {
		list := table(d)
		for _, r := range list {
			if s, ok := r.does.(*receive); ok {
				change(s)
			}
		}
		return enter(d, list)
	}
}
