package testenv

import (
	"testing"

	"github.com/farol-preservation/farol/internal/devstack"
)

// Clamd returns the address, host:port, of a clamd of ClamAV that all tests of
// this process share. It finds devstack.Virus and nothing else.
func Clamd(t testing.TB) string {
	t.Helper()
	return stack(t, devstack.Clamd).ClamdAddr
}
