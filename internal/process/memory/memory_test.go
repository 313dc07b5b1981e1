package memory

import (
	"os"
	"path/filepath"
	"testing"
)

// The limit that counts is the least of the group's and those above it.
func TestMemoryIsThatOfTheControlGroup(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no group":   {map[string]string{}, 1 << 30},
		"version 2":  {map[string]string{"proc/self/cgroup": "0::/a/b\n", "cg/a/b/memory.max": "536870912\n", "cg/a/memory.max": "max\n"}, 512 << 20},
		"above it":   {map[string]string{"proc/self/cgroup": "0::/a/b\n", "cg/a/b/memory.max": "max\n", "cg/a/memory.max": "268435456\n"}, 256 << 20},
		"version 1":  {map[string]string{"proc/self/cgroup": "4:memory:/a\n3:cpu:/b\n", "cg/memory/a/memory.limit_in_bytes": "134217728\n"}, 128 << 20},
		"container":  {map[string]string{"proc/self/cgroup": "0::/unseen/x\n", "cg/memory.max": "134217728\n"}, 128 << 20},
		"none in v1": {map[string]string{"proc/self/cgroup": "4:memory:/a\n", "cg/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.files["proc/meminfo"] = "MemTotal:        1048576 kB\n"
			for path, text := range tc.files {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := Limit(filepath.Join(dir, "proc"), filepath.Join(dir, "cg")); got != tc.want {
				t.Errorf("memory = %d MiB, want %d", got>>20, tc.want>>20)
			}
		})
	}
}
