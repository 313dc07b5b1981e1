package bag_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// unpack puts the files of a tar into a directory of their own.
func unpack(t testing.TB, data []byte) (dir string) {
	t.Helper()
	base := t.TempDir()
	for archive := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(base, h.Name)
		top, _, _ := strings.Cut(h.Name, "/")
		dir = filepath.Join(base, top)
		content, err := io.ReadAll(archive)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func readDir(t testing.TB, dir string) *bag.Bag {
	t.Helper()
	return must.Get(bag.ReadDir(t.Context(), dir, bag.ReadOptions{}))(t)
}

func TestADirectoryIsJudgedLikeItsTar(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]bagtest.Spec{
		"valid":           {},
		"BTR":             {Profile: bagtest.BTR},
		"a large file":    {Files: []bagtest.File{{Path: "data/large", Size: 3 << 20}, {Path: "data/empty"}}},
		"version 0.97":    {Tags: []bagtest.Tag{{File: "bagit.txt", Name: "BagIt-Version", Value: "0.97"}}},
		"damaged":         {Corrupt: []string{"data/hello.txt"}, Leave: []string{"data/folder/list.csv"}, Unlisted: []bagtest.File{{Path: "data/x", Content: "x"}}},
		"UTF-16":          {Tags: []bagtest.Tag{{File: "bagit.txt", Name: "Tag-File-Character-Encoding", Value: "UTF-16"}}},
		"nothing in data": {Files: []bagtest.File{}, Entries: []bagtest.Entry{{Name: "sample-bag/data/", Type: tar.TypeDir}}},
		"no top file":     {Leave: []string{"bagit.txt"}, TagManifests: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := sample(t, spec)
			b := readDir(t, unpack(t, data))
			want, got := read(t, data).Validate(profile.Plain()), b.Validate(profile.Plain())
			if diff := cmp.Diff(want, got, cmpopts.SortSlices(func(a, b bag.Finding) bool { return a.Message < b.Message })); diff != "" {
				t.Error(diff)
			}
			if b.TopDir != "sample-bag" {
				t.Errorf("top directory %s", b.TopDir)
			}
		})
	}
}

// A profile may insist on a tar, and a bag is checked before it is made into one.
func TestADirectoryNeedNotBeSerialized(t *testing.T) {
	t.Parallel()
	v := readDir(t, unpack(t, sample(t, bagtest.Spec{}))).Validate(nil)
	if diff := cmp.Diff([]string{"not-serialized"}, codes(v.Warnings)); diff != "" || !v.Valid {
		t.Errorf("%v: %s", v, diff)
	}
	v = readDir(t, unpack(t, sample(t, bagtest.Spec{Profile: bagtest.BTR}))).Validate(nil)
	if len(v.Warnings) > 0 || !v.Valid {
		t.Errorf("%v", v)
	}
}

func TestADirectoryHasTheFaultsOfDirectories(t *testing.T) {
	t.Parallel()
	dir := unpack(t, sample(t, bagtest.Spec{Files: []bagtest.File{}}))
	outside := filepath.Join(t.TempDir(), "secret")
	must.Do(t, errors.Join(
		os.WriteFile(outside, []byte("not part of the bag"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "link.txt")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "folder")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(dir, "not-utf8-\xff"), nil, 0o600),
		os.MkdirAll(filepath.Join(dir, "tags\xff", "more"), 0o700),
	))
	b := readDir(t, dir)
	want := []string{
		"illegal-path", "illegal-path", "payload-directory-missing", "unsupported-entry", "unsupported-entry", "unsupported-entry",
	}
	v := b.Validate(profile.Plain())
	if diff := cmp.Diff(want, codes(v.Errors), cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("%v: %s", v.Errors, diff)
	}
	if v := readDir(t, t.TempDir()).Validate(nil); v.Valid || v.Errors[0].Code != "empty-tar" {
		t.Errorf("an empty directory: %v", v)
	}
	if _, err := bag.ReadDir(t.Context(), outside, bag.ReadOptions{}); err == nil {
		t.Error("a file is no directory")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bag.ReadDir(ctx, dir, bag.ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	limited, err := bag.ReadDir(t.Context(), unpack(t, sample(t, bagtest.Spec{})), bag.ReadOptions{MaxFiles: 2})
	if err != nil || len(limited.Problems) == 0 || limited.Problems[len(limited.Problems)-1].Code != "too-many-files" {
		t.Errorf("two files at most: %v, %v", err, limited)
	}
}
