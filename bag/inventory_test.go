package bag_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func inventory(t testing.TB, b *bag.Bag) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := bag.WriteInventory(&out, b); err != nil {
		t.Fatalf("WriteInventory: %v", err)
	}
	return out.Bytes()
}

// Later stages know the bag from its inventory only, and must come to the same
// verdict.
func TestInventoryKeepsTheWholeBag(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		want := must.Get(bag.Read(t.Context(), bytes.NewReader(sample(t, anyBag(rt))), bag.ReadOptions{
			PartSize: func(int64) int64 { return 100_000 },
		}))(rt)
		for _, f := range want.Files {
			f.UUID = rapid.SampledFrom([]uuid.UUID{uuid.Nil, uuid.New()}).Draw(rt, "uuid")
			f.Format = rapid.SampledFrom([]string{"", "text/plain"}).Draw(rt, "format")
		}
		got, err := bag.ReadInventory(bytes.NewReader(inventory(t, want)))
		if err != nil {
			rt.Fatalf("ReadInventory: %v", err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
		if diff := cmp.Diff(want.Validate(nil), got.Validate(nil)); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestInventoryThatIsCutOrChangedIsRefused(t *testing.T) {
	t.Parallel()
	want := read(t, sample(t, bagtest.Spec{}))
	data := inventory(t, want)
	for n := range data {
		if _, err := bag.ReadInventory(bytes.NewReader(data[:n])); !errors.Is(err, bag.ErrInventory) {
			t.Errorf("cut at %d of %d: %v", n, len(data), err)
		}
		changed := bytes.Clone(data)
		changed[n] ^= 0x10
		got, err := bag.ReadInventory(bytes.NewReader(changed))
		if err == nil && cmp.Equal(want, got, cmpopts.EquateEmpty()) {
			continue // a bit that zstd has no use for
		}
		if !errors.Is(err, bag.ErrInventory) {
			t.Errorf("changed at %d of %d: %v", n, len(data), err)
		}
	}
}

func TestInventoryPassesOnTheReadersOwnErrors(t *testing.T) {
	t.Parallel()
	data := inventory(t, read(t, sample(t, bagtest.Spec{})))
	broken := fmt.Errorf("get: %w", io.EOF)
	for n := range data {
		_, err := bag.ReadInventory(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) || errors.Is(err, bag.ErrInventory) {
			t.Errorf("broken at %d of %d: %v", n, len(data), err)
		}
	}
}

// A well-formed file of lines that no Farol wrote.
func TestInventoryWithLinesThatMakeNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	const header = `{"version":1,"files":1}` + "\n"
	const missing = `{"path":"data/a","kind":"payload_file","missing":true}` + "\n"
	const end = `{"end":true,"files":1}` + "\n"
	for name, tt := range map[string]struct {
		text string
		good bool
	}{
		"good":                 {header + missing + end, true},
		"with a later member":  {`{"version":1,"files":1,"new":[1]}` + "\n" + `{"path":"data/a","missing":true,"new":{}}` + "\n" + end, true},
		"empty":                {"", false},
		"later version":        {`{"version":2,"files":1}` + "\n" + missing + end, false},
		"negative count":       {`{"version":1,"files":-1}` + "\n" + end, false},
		"no end":               {header + missing, false},
		"fewer files":          {header + end, false},
		"another end":          {header + missing + `{"end":true,"files":2}` + "\n", false},
		"more files":           {header + missing + missing + end, false},
		"after the end":        {header + missing + end + missing, false},
		"path out of the bag":  {header + strings.Replace(missing, "data/a", "../a", 1) + end, false},
		"no digests":           {header + `{"path":"data/a"}` + "\n" + end, false},
		"negative offset":      {header + strings.Replace(missing, "{", `{"offset":-1,`, 1) + end, false},
		"half a part":          {header + strings.Replace(missing, "{", `{"parts":"AAAA",`, 1) + end, false},
		"digest of wrong size": {header + `{"path":"data/a","digests":{"md5":"00","sha1":"","sha256":"","sha512":""}}` + "\n" + end, false},
		"no JSON":              {header + "hello\n" + end, false},
	} {
		var out bytes.Buffer
		w := must.Get(zstd.NewWriter(&out))(t)
		must.Get(io.WriteString(w, tt.text))(t)
		must.Do(t, w.Close())
		_, err := bag.ReadInventory(&out)
		if tt.good && err != nil || !tt.good && !errors.Is(err, bag.ErrInventory) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A bomb of one endless line must not fill the memory.
func TestInventoryBoundsItsLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := must.Get(zstd.NewWriter(&out, zstd.WithWindowSize(1<<20)))(t)
	spaces := bytes.Repeat([]byte(" "), 1<<20)
	for range 80 {
		must.Get(w.Write(spaces))(t)
	}
	must.Do(t, w.Close())
	left := &out
	if _, err := bag.ReadInventory(left); !errors.Is(err, bag.ErrInventory) {
		t.Errorf("%v", err)
	}
}

func TestInventoryCanBeReadAFileAtATime(t *testing.T) {
	t.Parallel()
	want := read(t, sample(t, bagtest.Spec{}))
	inv := must.Get(bag.OpenInventory(bytes.NewReader(inventory(t, want))))(t)
	defer inv.Close()
	if inv.Count != len(want.Files) || inv.Bag.TopDir != want.TopDir || inv.Bag.StorageOption() != "Standard" {
		t.Errorf("header: %d files, %+v", inv.Count, inv.Bag)
	}
	n := 0
	for f, err := range inv.Files() {
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Files[n], f, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if n++; n == 3 {
			break
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteInventoryReturnsTheWritersError(t *testing.T) {
	t.Parallel()
	if err := bag.WriteInventory(fullDisk{}, read(t, sample(t, bagtest.Spec{}))); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}
