package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/fault"
)

// A code is stable: programs and people know it.
func TestCodes(t *testing.T) {
	t.Parallel()
	for code, e := range map[string]*fault.Error{
		"storage-denied":            {Service: fault.Bucket("wasabi-or"), Kind: fault.Denied},
		"storage-wrong-answer":      {Service: fault.Bucket("a:b"), Kind: fault.WrongAnswer},
		"progress-read-only":        {Service: fault.Redis, Kind: fault.ReadOnly},
		"database-unavailable":      {Service: fault.Database, Kind: fault.Unavailable},
		"virus-scanner-unavailable": {Service: fault.Scanner, Kind: fault.Unavailable},
		"disk-full":                 {Service: fault.Disk, Kind: fault.Full},
		"settings-missing":          {Service: fault.Settings, Kind: fault.Missing},
	} {
		if got := e.Code(); got != code {
			t.Errorf("Code = %s, want %s", got, code)
		}
	}
}

// A fault is found wherever it is in the tree of an error, and hides nothing in it.
func TestIn(t *testing.T) {
	t.Parallel()
	cause := errors.New("403")
	f := &fault.Error{Service: fault.Redis, Kind: fault.Denied, Err: fmt.Errorf("get: %w", cause)}
	err := fmt.Errorf("file: %w", errors.Join(errors.New("another"), f))
	if fault.In(err) != f || !errors.Is(err, cause) || fault.In(cause) != nil || fault.In(nil) != nil {
		t.Errorf("In(%v) = %v", err, fault.In(err))
	}
}

// What this host lacks is this process's failure; what the content lacks is not.
func TestHost(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close() //nolint:errcheck // nothing could be written
	_, noSpace := full.WriteString("x")
	_, noDir := os.CreateTemp(filepath.Join(t.TempDir(), "gone"), "x")
	known := &fault.Error{Service: fault.Redis, Kind: fault.Full, Err: syscall.ENOSPC}
	for name, tt := range map[string]struct {
		err  error
		code string // "": none of the host's
	}{
		"full":                 {fmt.Errorf("spool: %w", noSpace), "disk-full"},
		"over quota":           {&os.PathError{Op: "write", Err: syscall.EDQUOT}, "disk-full"},
		"read-only":            {&os.PathError{Op: "open", Err: syscall.EROFS}, "disk-read-only"},
		"broken":               {&os.PathError{Op: "read", Err: syscall.EIO}, "disk-unavailable"},
		"no directory":         {noDir, "disk-missing"},
		"not ours":             {&os.PathError{Op: "open", Err: syscall.EACCES}, "disk-denied"},
		"no memory":            {&os.SyscallError{Syscall: "fork", Err: syscall.ENOMEM}, "memory-full"},
		"too many files":       {&os.PathError{Op: "open", Err: syscall.EMFILE}, "memory-full"},
		"of a service already": {known, ""},
		"the end of a file":    {io.ErrUnexpectedEOF, ""},
		"nothing":              {nil, ""},
	} {
		switch f := fault.Host(tt.err); {
		case tt.code == "" && f != nil, tt.code != "" && (f == nil || f.Code() != tt.code || !errors.Is(f, tt.err)):
			t.Errorf("%s: Host(%v) = %+v, want %s", name, tt.err, f, tt.code)
		}
	}
}

// Anyone who was stopped met no failure of the network.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, context.Canceled, fmt.Errorf("read: %w", context.Canceled), errors.New("another")} {
		if k, said, ok := fault.Network(err); ok {
			t.Errorf("Network(%v) = %s, %s", err, k, said)
		}
	}
	_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:1")
	if k, said, ok := fault.Network(err); !ok || k != fault.Unavailable || said != "connection refused" {
		t.Errorf("Network(%v) = %s, %s, %t", err, k, said, ok)
	}
}

// Redis before version 7 wraps what a script met.
func TestErrorsOfScripts(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]fault.Kind{
		"ERR Error running script (call to f_1): @user_script:6: @user_script: 6: -READONLY You can't write against a read only replica.": fault.ReadOnly,
		"ERR Error running script (call to f_1): @user_script:6: @user_script: 6: -OOM command not allowed.":                              fault.Full,
		"MOVED 3999 127.0.0.1:6381":                    fault.WrongAnswer,
		"ERR unknown command 'FOO'":                    fault.Refused,
		"WRONGTYPE Operation against a key":            fault.Refused,
		"ERR Client sent AUTH, but no password is set": fault.Denied,
	} {
		if k := fault.OfRedis(says); k != want {
			t.Errorf("OfRedis(%q) = %q, want %q", says, k, want)
		}
	}
}
