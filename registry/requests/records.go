// Package requests has the records of what people ask for: restorations, retrievals
// from archive storage, and deletions with their approvals and receipts.
package requests

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
