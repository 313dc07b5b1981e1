// Package upkeep has the records of what runs by schedule: the runs of recurring
// jobs, the items and copies that the janitor removes, and the rules that the doctor
// checks.
package upkeep

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
