// Package people has the records by which persons sign in: passwords, second factors,
// sessions, links and their own tokens. It stores digests of secrets, never secrets.
package people

import (
	"crypto/sha256"

	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct {
	db       registry.Database
	registry *registry.Registry
}

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB(), r} }

// digest is what is stored of a secret with so many random bits that none can be guessed.
func digest(secret string) []byte {
	d := sha256.Sum256([]byte(secret))
	return d[:]
}
