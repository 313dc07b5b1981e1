package testenv

import (
	"testing"

	"github.com/farol-preservation/farol/internal/devstack"
)

// Chromium returns the address, host:port, at which a Chromium without a window is told
// what to do. All tests of this process share it; package browser opens pages in it.
func Chromium(t testing.TB) string {
	t.Helper()
	return stack(t, devstack.Chromium).DevToolsAddr
}
