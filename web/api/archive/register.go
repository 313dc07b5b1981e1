// Package archive has the operations of the REST API that concern what is preserved: uploads,
// objects and files, restorations, deletions, fixity, reports and exports.
//
// In come requests with their caller; out go answers, and requests that the pipeline fulfils.
package archive

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
	a.deposits(t)
	a.records(t)
	a.samples(t)
	a.deletions(t)
	a.restorations(t)
	a.fixity(t)
	a.reports(t)
	a.exports(t)
}
