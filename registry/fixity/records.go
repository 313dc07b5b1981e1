// Package fixity has the records of fixity checks and of the repair of bad copies:
// which copy is due, who checks it, what came of it, and when all will be done.
//
// A check is claimed as a work item is, with a lease and a token, but has no row of
// work_items. A result is recorded only under the token of its claim.
package fixity

import (
	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct {
	db       registry.Database
	registry *registry.Registry
}

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB(), r} }
