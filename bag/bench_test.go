package bag_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func benchmarkRead(b *testing.B, data []byte, o bag.ReadOptions) {
	b.Helper()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(bag.Read(b.Context(), bytes.NewReader(data), o))(b)
	}
}

// One file of 256 MiB: the speed of the slowest digest, if nothing is in its way.
func BenchmarkReadLarge(b *testing.B) {
	data := sample(b, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 256 << 20}}, Manifests: []string{"md5"}})
	benchmarkRead(b, data, bag.ReadOptions{})
}

// The same in parts of 64 MiB, which costs one more SHA-256.
func BenchmarkReadLargeInParts(b *testing.B) {
	data := sample(b, bagtest.Spec{Files: []bagtest.File{{Path: "data/large", Size: 256 << 20}}, Manifests: []string{"md5"}})
	benchmarkRead(b, data, bag.ReadOptions{PartSize: func(int64) int64 { return 64 << 20 }})
}

// 20,000 files of 1 KiB: the price of a file.
func BenchmarkReadSmallFiles(b *testing.B) {
	benchmarkRead(b, smallFiles(b, 20_000), bag.ReadOptions{})
}

// 200 files of 1 MiB: one or two blocks each.
func BenchmarkReadMediumFiles(b *testing.B) {
	var files []bagtest.File
	for i := range 200 {
		files = append(files, bagtest.File{Path: fmt.Sprintf("data/%d.bin", i), Size: 1 << 20})
	}
	benchmarkRead(b, sample(b, bagtest.Spec{Files: files}), bag.ReadOptions{})
}

func BenchmarkValidate(b *testing.B) {
	index := read(b, smallFiles(b, 20_000))
	b.ReportAllocs()
	for b.Loop() {
		if v := index.Validate(nil); !v.Valid {
			b.Fatal(v.Errors)
		}
	}
}

func BenchmarkInventory(b *testing.B) {
	index := read(b, smallFiles(b, 20_000))
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must.Do(b, bag.WriteInventory(io.Discard, index))
		}
	})
	b.Run("read", func(b *testing.B) {
		var out bytes.Buffer
		must.Do(b, bag.WriteInventory(&out, index))
		b.ReportAllocs()
		for b.Loop() {
			must.Get(bag.ReadInventory(bytes.NewReader(out.Bytes())))(b)
		}
		b.ReportMetric(float64(out.Len())/20_000, "bytes/file")
	})
}

func smallFiles(b *testing.B, n int) []byte {
	b.Helper()
	files := make([]bagtest.File, n)
	for i := range files {
		files[i] = bagtest.File{Path: fmt.Sprintf("data/%03d/page-%06d.xml", i/100, i), Size: 1 << 10}
	}
	return sample(b, bagtest.Spec{Files: files})
}
