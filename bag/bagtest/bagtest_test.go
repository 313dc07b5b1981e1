package bagtest_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func TestTheSameSpecGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	spec := bagtest.Spec{Files: []bagtest.File{{Path: "data/a", Size: 3001}, {Path: "data/b", Size: 3001}, {Path: "data/c", Size: 3001, Seed: 1}}}
	first := must.Get(spec.Bytes())(t)
	second, err := spec.Bytes()
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("error %v, or different bytes", err)
	}
	seen := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(r))(t)
		if other := seen[string(content)]; other != "" {
			t.Errorf("%s and %s have the same content", other, h.Name)
		}
		seen[string(content)] = h.Name
	}
}

// Whether manifests come first or last must not change what they say.
func TestManifestsSayTheSameWhereverTheyAre(t *testing.T) {
	t.Parallel()
	entries := func(first bool) map[string]string {
		data := must.Get(bagtest.Spec{ManifestsFirst: first}.Bytes())(t)
		out := map[string]string{}
		r := tar.NewReader(bytes.NewReader(data))
		for h, err := r.Next(); err == nil; h, err = r.Next() {
			content := must.Get(io.ReadAll(r))(t)
			out[h.Name] = string(content)
		}
		return out
	}
	last := entries(false)
	for name, content := range entries(true) {
		if last[name] != content {
			t.Errorf("%s differs", name)
		}
	}
}

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestWriteTarReturnsTheWritersError(t *testing.T) {
	t.Parallel()
	spec := bagtest.Spec{Files: []bagtest.File{{Path: "data/a", Size: 1 << 20}}}
	for _, room := range []int{0, 300_000, 900_000} {
		if err := spec.WriteTar(&full{room: room}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("memory for %d bytes: %v", room, err)
		}
	}
	if err := (bagtest.Spec{Manifests: []string{"crc32"}}).WriteTar(io.Discard); err == nil {
		t.Error("no error for an algorithm that does not exist")
	}
}
