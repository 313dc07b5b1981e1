package bag_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Terabytes that were digested on their way into the tar are not read again.
func TestReadIndexPassesOverContents(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	o.files = append(o.files,
		member{path: "data/50 MB", zeros: 50 << 20},
		member{path: "data/5 TB", zeros: 5 << 40},
		member{path: "custom/large", zeros: 10 << 20},
		member{path: "data/odd", zeros: 1<<20 + 17},
	)
	tar := assemble(t, o)
	b := must.Get(bag.ReadIndex(t.Context(), &tar, o.known(t), bag.ReadOptions{}))(t)
	if v := b.Validate(o.profile); !v.Valid || v.Files != len(o.files)+5 {
		t.Errorf("%d files, errors %v", v.Files, v.Errors)
	}
	if tar.read > 200<<10 || tar.seeks != 5 {
		t.Errorf("%d bytes were read, with %d seeks", tar.read, tar.seeks)
	}
	f := file(t, b, "data/odd")
	if got := f.Offset + f.Size + bag.Padding(f.Size); got%512 != 0 || f.Size != 1<<20+17 || f.Digests.SHA256 != [32]byte{3} {
		t.Errorf("%+v", f)
	}
}

// What was written by us is read by nobody before the depositor; so each of these
// bytes counts.
func TestReadIndexFindsEveryFlippedBitOfWhatItReads(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	data, known := assembled(t, o), o.known(t)
	for _, f := range index(t, data, o).Files {
		if f.Kind() == bag.PayloadFile || strings.HasPrefix(f.Path, "custom/") {
			continue
		}
		for at := f.Offset; at < f.Offset+f.Size; at++ {
			data[at] ^= 1
			b := must.Get(bag.ReadIndex(t.Context(), bytes.NewReader(data), known, bag.ReadOptions{}))(t)
			if b.Validate(o.profile).Valid {
				t.Errorf("byte %d of %s: valid", at-f.Offset, f.Path)
			}
			data[at] ^= 1
		}
	}
	if v := index(t, data, o).Validate(o.profile); !v.Valid {
		t.Errorf("errors %v", v.Errors)
	}
}

// A header that was damaged, or an upload that was put together wrongly.
func TestReadIndexFindsWhatWasNotWritten(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	good := assemble(t, o)
	entry := func(path, content string) []byte {
		var out sparse
		out.entry(t, o.top+"/"+path, member{content: content})
		return out.all()
	}
	inserted := func(entry []byte) []byte {
		data := good.all()
		return slices.Concat(data[:len(data)-1024], entry, data[len(data)-1024:])
	}
	f := file(t, read(t, good.all()), "data/larger")
	cut := good.all()[:f.Offset+f.Size-1]
	garbage := good.all()
	copy(garbage[f.Offset+f.Size+bag.Padding(f.Size):], "not a header")
	for name, tt := range map[string]struct {
		data []byte
		code string
		path string
	}{
		"twice":                 {inserted(entry("data/a.txt", "a")), "duplicate-file", "data/a.txt"},
		"of another length":     {bytes.Replace(good.all(), entry("data/a.txt", "a"), entry("data/a.txt", "aa"), 1), "tar-corrupt", "data/a.txt"},
		"of another name":       {bytes.Replace(good.all(), entry("data/a.txt", "a"), entry("data/b.txt", "a"), 1), "tar-corrupt", "data/b.txt"},
		"one more":              {inserted(entry("data/z.txt", "z")), "tar-corrupt", "data/z.txt"},
		"one more tag file":     {inserted(entry("z/z.txt", "z")), "tar-corrupt", "z/z.txt"},
		"one less":              {bytes.Replace(good.all(), entry("data/a.txt", "a"), nil, 1), "file-missing", "data/a.txt"},
		"a manifest less":       {bytes.Replace(good.all(), entry("manifest-md5.txt", o.manifest(t, bag.MD5, o.files, false).content), nil, 1), "manifest-missing", "manifest-md5.txt"},
		"cut within a file":     {cut, "tar-truncated", "data/larger"},
		"cut after a file":      {good.all()[:f.Offset+f.Size], "tar-truncated", "data/larger"},
		"garbage for a header":  {garbage, "tar-corrupt", "data/larger"},
		"garbage from the end":  {append(good.all(), "second tar"...), "tar-trailing-data", ""},
		"no end of the archive": {good.all()[:good.size()-1024], "tar-no-end-marker", ""},
		"nothing":               {nil, "empty-tar", ""},
		"no tar":                {bytes.Repeat([]byte("x"), 2000), "not-a-tar", ""},
	} {
		v := index(t, tt.data, o).Validate(o.profile)
		if !slices.ContainsFunc(append(v.Errors, v.Warnings...), func(f bag.Finding) bool { return f.Code == tt.code && f.Path == tt.path }) {
			t.Errorf("%s: errors %v, warnings %v", name, v.Errors, v.Warnings)
		}
		warning := tt.code == "tar-trailing-data" || tt.code == "tar-no-end-marker"
		if v.Valid != warning {
			t.Errorf("%s: valid %v", name, v.Valid)
		}
	}
}

// Wherever it is cut, whether contents are read or passed over.
func TestReadIndexFindsACutAnywhere(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	data := assembled(t, o)
	for n := 0; n < len(data)-1024-512; n += 97 {
		b, whole := index(t, data[:n], o), read(t, data[:n])
		if v := b.Validate(o.profile); v.Valid && !slices.Contains(codes(v.Warnings), "tar-no-end-marker") {
			t.Errorf("cut at %d of %d: valid", n, len(data)) // but for a cut between two files
		}
		if diff := cmp.Diff(codes(whole.Problems), codes(b.Problems)); diff != "" {
			t.Errorf("cut at %d: %s", n, diff)
		}
	}
}

// Of a tar that is not ours nothing more is read than it takes to see that.
func TestReadIndexReadsNothingAfterAProblem(t *testing.T) {
	t.Parallel()
	var tar sparse
	tar.entry(t, "b/data/unknown", member{zeros: 5 << 40})
	none := func(string, int64) (bag.Digests, bool, error) { return bag.Digests{}, false, nil }
	b, err := bag.ReadIndex(t.Context(), &tar, none, bag.ReadOptions{})
	if err != nil || !slices.Equal(codes(b.Problems), []string{"tar-corrupt"}) || tar.read > 20<<10 {
		t.Errorf("problems %v, error %v, %d bytes read", b.Problems, err, tar.read)
	}
}

type seeker struct {
	io.Reader
	err error
}

func (s seeker) Seek(int64, int) (int64, error) { return 0, s.err }

func TestReadIndexReturnsTheErrorsOfOthers(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	data := assembled(t, o)
	broken := errors.New("connection reset")
	for _, broken := range []error{broken, io.ErrUnexpectedEOF} {
		for n := 0; n < len(data); n += 1000 {
			r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken))
			if _, err := bag.ReadIndex(t.Context(), skipping{r}, o.known(t), bag.ReadOptions{}); !errors.Is(err, broken) {
				t.Fatalf("broken at %d: error %v", n, err)
			}
		}
	}
	if _, err := bag.ReadIndex(t.Context(), seeker{bytes.NewReader(data), broken}, o.known(t), bag.ReadOptions{}); !errors.Is(err, broken) {
		t.Errorf("Seek: error %v", err)
	}
	known := func(string, int64) (bag.Digests, bool, error) { return bag.Digests{}, false, broken }
	if _, err := bag.ReadIndex(t.Context(), bytes.NewReader(data), known, bag.ReadOptions{}); !errors.Is(err, broken) {
		t.Errorf("known: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bag.ReadIndex(ctx, bytes.NewReader(data), o.known(t), bag.ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}

// skipping seeks by reading.
type skipping struct{ io.Reader }

func (s skipping) Seek(offset int64, _ int) (int64, error) {
	_, _ = io.CopyN(io.Discard, s.Reader, offset) // as with files, it shows later
	return 0, nil
}

func TestReadIndexTellsItsProgressAndHasItsBounds(t *testing.T) {
	t.Parallel()
	o := aptrustObject(t)
	data := assembled(t, o)
	var heard []string
	options := bag.ReadOptions{Progress: func(path string, _ int, _ int64) { heard = append(heard, path) }, MaxFiles: 7}
	b, err := bag.ReadIndex(t.Context(), bytes.NewReader(data), o.known(t), options)
	if err != nil || !slices.Equal(codes(b.Problems), []string{"too-many-files"}) {
		t.Errorf("problems %v, error %v", b.Problems, err)
	}
	want := []string{"bagit.txt", "aptrust-info.txt", "bag-info.txt", "custom/notes.txt", "data/a.txt", "data/block", "data/empty"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Error(diff)
	}
}

// Many files need memory, whether they are read or not.
func TestReadIndexAsksForMemoryForManyFiles(t *testing.T) {
	t.Parallel()
	var data []byte
	for i := range 20_001 {
		header := must.Get(bag.EntryHeader(fmt.Sprintf("b/data/%d", i), 0, restoredAt))(t)
		data = append(data, header...)
	}
	full := errors.New("no room")
	all := func(string, int64) (bag.Digests, bool, error) { return bag.Digests{}, true, nil }
	o := bag.ReadOptions{Many: func(context.Context) error { return full }}
	if _, err := bag.ReadIndex(t.Context(), bytes.NewReader(data), all, o); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}
