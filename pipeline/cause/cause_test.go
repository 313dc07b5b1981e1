package cause

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// A scanner that is not there is to blame for it; a file that cannot be read is not
// the scanner's doing.
func TestScannerIsBlamedForItselfOnly(t *testing.T) {
	t.Parallel()
	away := must.Get(virus.New("unix://"+filepath.Join(t.TempDir(), "none"), virus.Options{}))(t)
	_, err := away.Scan(t.Context(), 1, strings.NewReader("a"))
	if f := claim.FaultIn(Scanner(t.Context(), err)); f == nil || f.Code() != "virus-scanner-unavailable" {
		t.Errorf("%v is %+v", err, f)
	}
	if err := Scanner(t.Context(), virus.ErrContent); claim.FaultIn(err) != nil {
		t.Errorf("%v is blamed on the scanner", err)
	}
}

// What has a meaning keeps it, and what has none gets that of where it came from.
// An identifier that has ended is this process's, and no file's.
func TestIdentifierIsBlamedForItself(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want string
	}{
		{format.ErrClosed, fault.Identifier},
		{format.ErrStart, fault.Identifier},
		{errors.New("read 5 bytes at 7"), ""},
	} {
		service := ""
		if f := fault.In(Identifier(t.Context(), fmt.Errorf("identify: %w", tc.err))); f != nil {
			service = f.Service
		}
		if service != tc.want {
			t.Errorf("%v is blamed on %q, want %q", tc.err, service, tc.want)
		}
	}
}

func TestStorageErrorsAreClassifiedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err       error
		code      string
		unchanged bool // it is returned as it is
	}{
		"away":      {errors.New("connection reset"), "storage-unavailable", false},
		"its fault": {&fault.Error{Service: "s3:a", Kind: fault.Denied, Err: storage.ErrDenied}, "storage-denied", true},
		"digest":    {fmt.Errorf("put: %w", storage.ErrDigest), "storage-digest", false},
		"not there": {storage.ErrNotFound, "transient", true},
		"changed":   {storage.ErrChanged, "transient", true},
		"stopped":   {context.Canceled, "transient", true},
		"fatal":     {claim.Fatal("bag-gone", "gone"), "bag-gone", true},
		"lost":      {claim.ErrLost, "lost", true},
	} {
		got := Storage(tc.err)
		if claim.Code(got) != tc.code || (got == tc.err) != tc.unchanged || !errors.Is(got, tc.err) { //nolint:errorlint // the same one
			t.Errorf("%s: %v with %s", name, got, claim.Code(got))
		}
	}
	if Storage(nil) != nil {
		t.Error("no error became one")
	}
}
