//go:build !linux

package format

import "runtime/debug"

// limitProcess tells the collector the limit; elsewhere than on Linux a limit
// on the address space can not be relied on, and the time limit remains.
func limitProcess(memory int64) error {
	debug.SetMemoryLimit(memory)
	return nil
}
