package registry

import "github.com/farol-preservation/farol/record"

// Scope is whose records a caller may know of: those of all institutions, those of one,
// or none. The zero Scope is none, so that a scope that was forgotten shows nothing.
//
// A scope is a condition of the queries, and never a check of what they found: what lies
// outside it is answered as what does not exist.
type Scope struct {
	all         bool
	institution int64
	identifier  string
}

// Everything is the scope of the archive's own staff, and of commands on its machines.
func Everything() Scope { return Scope{all: true} }

// Only is the scope of one institution.
func Only(in record.Institution) Scope { return Scope{institution: in.ID, identifier: in.Identifier} }

// All reports whether the scope has all institutions.
func (s Scope) All() bool { return s.all }

// None reports whether the scope has no institution at all.
func (s Scope) None() bool { return !s.all && s.institution == 0 }

// Institution is the ID and the identifier of the only institution in the scope; 0 and
// "" if it has all or none.
func (s Scope) Institution() (id int64, identifier string) { return s.institution, s.identifier }

// Has reports whether the records of an institution are in the scope.
func (s Scope) Has(institution int64) bool {
	return s.all || institution != 0 && s.institution == institution
}
