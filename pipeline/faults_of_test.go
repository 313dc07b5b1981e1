package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

func (a *archive) faults(id int64) progress.Faults {
	a.t.Helper()
	f, _, err := a.deps.Progress.Faults(context.Background(), id)
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

// Of a bad bag it is kept which file is wrong, what was expected and what found.
func TestWhatIsWrongWithABagIsKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("bad.tar", a.bag(bagtest.Spec{Name: "bad", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}, Corrupt: []string{"data/a.txt"}}))
	engine := a.engine()
	a.upTo(engine, "Validate")
	a.one(engine, "Validate")
	f := a.faults(id)
	if len(f.List) == 0 || f.Token != value[int64](a, `SELECT max(claim_token) FROM work_item_attempts`) {
		t.Fatalf("kept: %+v", f)
	}
	const md5OfA = "0cc175b9c0f1b6a831c399e269772661" // RFC 1321, A.5
	got := f.List[0]
	if got.Code != "digest-mismatch" || got.Path != "data/a.txt" || got.Found != "md5:"+md5OfA && got.Expected != "md5:"+md5OfA ||
		got.Found == got.Expected || !strings.HasPrefix(got.Expected, "md5:") || !strings.HasPrefix(got.Found, "md5:") ||
		!strings.Contains(got.Message, strings.TrimPrefix(got.Expected, "md5:")) {
		t.Errorf("kept: %+v", got)
	}
}

// A store that is away is the storage's fault, and says of which files.
func TestStorageThatIsAwayIsNamed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	a.exec(`UPDATE stage_settings SET max_attempts = 1`)
	engine := a.engine()
	a.upTo(engine, "Store")
	proxy.CutAfter(400_000)
	a.one(engine, "Store")
	item := a.item(id)
	if item.Status != "Pending" || item.Attempt != 0 || item.ErrorCode != "storage-unavailable" {
		t.Errorf("item = %+v", item)
	}
	f := a.faults(id)
	if len(f.List) == 0 || f.List[0].Code != "storage-unavailable" || !strings.HasPrefix(f.List[0].Path, "data/") || f.List[0].Message == "" {
		t.Errorf("kept: %+v", f)
	}
}

// Errors in files are found wherever they are, with what was compared.
func TestFaultsAreFoundInATreeOfErrors(t *testing.T) {
	t.Parallel()
	away := errors.New("connection reset")
	tree := fmt.Errorf("store: %w", errors.Join(
		about("data/a", fmt.Errorf("copy of data/a: %w", wrong("it has %d bytes and should have %d", 5, 6))),
		errors.New("of no file"),
		fmt.Errorf("and %w", about("data/b", storageErr(away))),
	))
	want := []progress.Fault{
		{Code: "bad-copy", Path: "data/a", Found: "5", Expected: "6", Message: "copy of data/a: it has 5 bytes and should have 6"},
		{Code: "storage-unavailable", Path: "data/b", Message: "connection reset"},
	}
	if diff := cmp.Diff(want, faultsOf(tree).List); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for _, none := range []error{nil, away, fmt.Errorf("%w: %w", about("a", away), claim.ErrLost)} {
		if f := faultsOf(none); len(f.List) != 0 {
			t.Errorf("faults of %v: %+v", none, f)
		}
	}
}

// What has a meaning keeps it, and what has none gets that of where it came from.
func TestStorageErrorsAreClassifiedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		code string
		kept bool // it is returned as it is
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
		got := storageErr(tc.err)
		if claim.Code(got) != tc.code || (got == tc.err) != tc.kept || !errors.Is(got, tc.err) { //nolint:errorlint // the same one
			t.Errorf("%s: %v with %s", name, got, claim.Code(got))
		}
	}
	if storageErr(nil) != nil {
		t.Error("no error became one")
	}
}
