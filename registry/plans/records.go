// Package plans has the records of bulk changes: a plan is made, looked at, applied
// item by item, and undone.
package plans

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
