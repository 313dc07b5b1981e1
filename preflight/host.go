package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/memory"
	"github.com/farol-preservation/farol/pipeline"
)

const (
	lowSpace   = 1 << 30  // bytes free in TMPDIR, below which a person should know
	leastSpace = 64 << 20 // below which no list of a large bag fits
	fewFiles   = 1024     // descriptors, below which many slots may run out of them
	leastFiles = 128
)

// HostNeeds is what a worker wants of its host.
type HostNeeds struct {
	MaxFiles int // of a bag
	Children int // that identify formats
}

func (s Surroundings) checkDisk(context.Context) []Finding {
	return []Finding{diskFits(os.TempDir(), s.Starting || s.Write != WriteNothing)}
}

// diskFits checks a directory for temporary files, and writes to it if it may.
func diskFits(dir string, write bool) Finding {
	const what = "TMPDIR"
	failed := func(err error, todo string) Finding {
		e := fault.Host(err)
		if e == nil {
			e = &fault.Error{Service: fault.Disk, Kind: fault.Unavailable, Err: err}
		}
		return bad(&fault.Error{Service: fault.Disk, Kind: e.Kind, Err: fmt.Errorf("%s: %w", dir, err)}, what, todo)
	}
	const settle = "set TMPDIR to a directory that exists and can be written to"
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err == nil {
		err = mayWrite(dir)
	}
	if err == nil && write {
		err = writeIn(dir)
	}
	if err != nil {
		return failed(err, settle)
	}
	free, err := freeSpace(dir)
	if err != nil {
		return failed(err, settle)
	}
	const space = "free some space in it, or set TMPDIR to a directory that has a few GiB"
	switch {
	case free < leastSpace:
		return failed(fmt.Errorf("only %s are free: %w", human.Bytes(free), syscall.ENOSPC), space)
	case free < lowSpace:
		return warn(fault.Disk, what, fmt.Sprintf("%s: only %s are free", dir, human.Bytes(free)), space)
	}
	return good(fault.Disk, what, fmt.Sprintf("%s: %s free", dir, human.Bytes(free)))
}

// writeIn writes a file to a directory and removes it.
func writeIn(dir string) error {
	f, err := os.CreateTemp(dir, "farol-check-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func (s Surroundings) checkLimits(context.Context) []Finding {
	list := []Finding{s.Host.memoryFits(memory.Limit("/proc", "/sys/fs/cgroup"))}
	if files, ok := openFiles(); ok {
		list = append(list, filesFit(files))
	}
	return append(list, childrenConfined(format.Unconfined()))
}

// childrenConfined says what keeps the children that identify formats from files,
// network and credentials, should a file take one over.
func childrenConfined(lacks []string) Finding {
	const what = "confined children"
	if len(lacks) > 0 {
		return warn(fault.Memory, what, "the kernel lacks "+strings.Join(lacks, " and "),
			"formats are identified without it; a kernel from 6.7 on with Landlock and seccomp enabled confines their children: docs/security.md")
	}
	return good(fault.Memory, what, "by Landlock and a filter of system calls")
}

// memoryFits compares the limit of the control group with the largest bag that the
// settings promise to take. Bags that do not fit wait for another worker.
func (n HostNeeds) memoryFits(limit int64) Finding {
	const what = "memory limit"
	files := pipeline.FilesWithin(memory.ForLists(limit, n.Children))
	found := fmt.Sprintf("%s: bags of up to about %d files", human.Bytes(limit), files)
	if files < int64(n.MaxFiles) {
		return warn(fault.Memory, what, fmt.Sprintf("%s; FAROL_MAX_FILES is %d", found, n.MaxFiles),
			"bags with more files need a worker with more memory: raise the limit of the container or service, or lower FAROL_IDENTIFY_WORKERS or FAROL_MAX_FILES")
	}
	return good(fault.Memory, what, found)
}

func filesFit(limit uint64) Finding {
	const what = "open files"
	const todo = "raise the limit (ulimit -n, LimitNOFILE)"
	switch {
	case limit < leastFiles:
		e := &fault.Error{Service: fault.Memory, Kind: fault.Full, Err: fmt.Errorf("the limit is %d", limit)}
		return bad(e, what, todo)
	case limit < fewFiles:
		return warn(fault.Memory, what, fmt.Sprintf("the limit is %d, needed are %d", limit, fewFiles), todo)
	}
	return good(fault.Memory, what, "the limit is "+strconv.FormatUint(limit, 10))
}

func (s Surroundings) checkScanner(ctx context.Context) []Finding {
	version, err := s.Viruses.Version(ctx)
	if err != nil {
		return []Finding{failed(fault.Scanner, err, func(error) (fault.Kind, bool) { return "", false },
			"check that clamd runs and that FAROL_CLAMD is its address; files wait at Format Identification until it answers", nil)}
	}
	return []Finding{good(fault.Scanner, "answers", version)}
}
