package lists

import (
	"testing"
	"unsafe"
)

// A bag of 400,000 files is held in the memory that docs/internals/memory.md says.
func TestFileIsSmall(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(File{}); size > 160 {
		t.Errorf("a file has %d bytes, want 160", size)
	}
}
