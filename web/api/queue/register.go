// Package queue has the operations of the REST API that concern work: items, plans, stages and
// their settings, workers, services, schedules, and how far everything is.
//
// In come requests with their caller; out go answers, and what is decided about items. What
// many people look at is computed once for all of them (figures).
package queue

import (
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
)

type handlers struct {
	*answer.Site

	figures figures
}

// Register adds the operations to a table.
func Register(t *ops.API, s *answer.Site) {
	a := &handlers{Site: s}
	a.items(t)
	a.estimates(t)
	a.next(t)
	a.plans(t)
	a.queue(t)
	a.stages(t)
	a.addedStages(t)
	a.services(t)
	a.stores(t)
	a.workers(t)
	a.mirror(t)
	a.schedules(t)
	a.progress(t)
	a.health(t)
	a.settings(t)
}
