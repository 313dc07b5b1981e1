package bag_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Half of a tar may have been sent before the program was replaced. If this test
// fails after an update of Go, what is half sent has to begin again.
func TestHeadersAreTheSameForEver(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 1, 2, 3, 4, 5, 900_000_000, time.FixedZone("", 3600))
	for _, tt := range []struct {
		name string
		size int64
		when time.Time
		long int
		sum  string
	}{
		{"b/data/", 0, when, 512, "bd75e006325bc188"},
		{"b/data/a", 1, when, 512, "b9efd5a5ceafffb9"},
		{"b/data/a", 8 << 30, when, 1536, "42c8831560541936"},
		{"b/data/grüße", 1, when, 1536, "0863498f1f486e5f"},
		{"b/data/" + strings.Repeat("x", 300), 1, when, 1536, "f7d414b143d537f4"},
		{"b/" + strings.Repeat("x", 90) + "/" + strings.Repeat("x", 90), 1, when, 512, "c474d0cef8a41696"},
		{"b/data/a", 1, time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC), 1536, "cce70bfc1d307281"},
		{"b/data/a", 1, time.Time{}, 512, "5475fcb10b04c72f"},
	} {
		header := must.Get(bag.EntryHeader(tt.name, tt.size, tt.when))(t)
		sum := fmt.Sprintf("%x", sha256.Sum256(header))[:16]
		if len(header) != tt.long || sum != tt.sum {
			t.Errorf("%.20s of %d bytes, %v: %d bytes, %s", tt.name, tt.size, tt.when, len(header), sum)
		}
		again, err := bag.EntryHeader(tt.name, tt.size, tt.when.UTC().Truncate(time.Second))
		if err != nil || !bytes.Equal(header, again) {
			t.Errorf("%.20s: not the same for the same second", tt.name)
		}
	}
}

// What any reader of tars finds in them.
func TestHeadersSayWhatTheyWereGiven(t *testing.T) {
	t.Parallel()
	when := time.Date(1969, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, name := range []string{
		"b/", "b/data/", "~b/data/", "b/data/a", "b/data/ü\n", "b/ *%", strings.Repeat("t", 200) + "/" + strings.Repeat("p/", 400) + "x",
	} {
		for _, size := range []int64{0, 1, 511, 512, 1 << 40} {
			dir := strings.HasSuffix(name, "/")
			if dir && size > 0 {
				continue
			}
			header := must.Get(bag.EntryHeader(name, size, when))(t)
			h := must.Get(tar.NewReader(bytes.NewReader(header)).Next())(t)
			mode, flag := int64(0o644), byte(tar.TypeReg)
			if dir {
				mode, flag = 0o755, tar.TypeDir
			}
			if h.Name != name || h.Size != size || !h.ModTime.Equal(when.Truncate(time.Second)) || h.Mode != mode || h.Typeflag != flag {
				t.Errorf("%q, %d: %+v", name, size, h)
			}
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.Format == tar.FormatGNU || len(header)%512 != 0 {
				t.Errorf("%q: %+v", name, h)
			}
		}
	}
}

func TestNamesThatNoTarOfABagHasAreErrors(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "/", "b", "/b/data/a", "b/../x", "b/data//a", "b/data/\x00", "b/data/\xff", "../", "b//", "b/data/../", "~/", "./", "b/" + strings.Repeat("x", 1025),
	} {
		if header, err := bag.EntryHeader(name, 0, restoredAt); err == nil {
			t.Errorf("%q: %q", name, header[:100])
		}
	}
	for name, size := range map[string]int64{"b/data/a": -1, "b/data/": 1} {
		if _, err := bag.EntryHeader(name, size, restoredAt); err == nil {
			t.Errorf("%q may have %d bytes", name, size)
		}
	}
}

func TestPaddingFillsTheBlock(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int64{0: 0, 1: 511, 511: 1, 512: 0, 513: 511, 1<<40 + 1: 511} {
		if got := bag.Padding(size); got != want {
			t.Errorf("Padding(%d) = %d, want %d", size, got, want)
		}
	}
	if end := bag.EndOfArchive(); len(end) != 1024 || len(bytes.Trim(end, "\x00")) > 0 {
		t.Errorf("end %q", end)
	}
}

// The depositor's tar is not ours.
func TestTarUnpacksARestoredBag(t *testing.T) {
	t.Parallel()
	program := must.Get(exec.LookPath("tar"))(t)
	o := aptrustObject(t)
	old := time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	o.files = append(o.files,
		member{path: "data/odd %25\nname\r ", content: "odd", modTime: old},
		member{path: "data/grüße/e\u0301/表紙", content: strings.Repeat("x", 10_000), modTime: old},
		member{path: "data/" + strings.Repeat("very-long-name/", 20) + "x", content: "long"},
		member{path: "data/-rf *", content: "dash"},
	)
	dir := t.TempDir()
	data := assembled(t, o)
	run := exec.CommandContext(t.Context(), program, "xf", "-", "--no-same-owner")
	run.Dir, run.Stdin = dir, bytes.NewReader(data)
	run.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("tar: %v, %s", err, out)
	}
	want := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(r))(t)
		if h.Typeflag == tar.TypeReg {
			want[h.Name] = string(content)
		}
	}
	if len(want) != len(o.files)+5 {
		t.Fatalf("%d files in the tar", len(want))
	}
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if text, ok := want[name]; !ok || text != string(content) {
			t.Errorf("%q: %d bytes", name, len(content))
		}
		if info, err := d.Info(); strings.Contains(name, "grüße") && (err != nil || !info.ModTime().Equal(old)) {
			t.Errorf("%q: %v, %v", name, info.ModTime(), err)
		}
		return err
	})
	if err != nil || found != len(want) {
		t.Errorf("%d files, want %d; %v", found, len(want), err)
	}
	b := must.Get(bag.ReadDir(t.Context(), filepath.Join(dir, o.top), bag.ReadOptions{}))(t)
	for _, f := range b.Validate(o.profile).Errors {
		if f.Code != "illegal-control-character" {
			t.Errorf("%s: %s", f.Code, f.Message)
		}
	}
}
