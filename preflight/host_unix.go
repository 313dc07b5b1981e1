//go:build unix

package preflight

import (
	"math"

	"golang.org/x/sys/unix"
)

// mayWrite asks the system, and writes nothing.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

func freeSpace(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(min(fs.Bavail, math.MaxInt64/uint64(max(fs.Bsize, 1)))) * int64(fs.Bsize), nil //nolint:gosec,unconvert // it fits; the types differ by system
}

// openFiles is how many files the process may have open.
func openFiles() (limit uint64, known bool) {
	var files unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	return files.Cur, err == nil
}
