package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/format"
)

// BenchmarkReceive is the price of the one pass over a bag, beside what else
// computes digests of the same bytes: the system's own tools, which read them
// twice, and the four digests of Farol over bytes that are in memory already.
func BenchmarkReceive(b *testing.B) {
	for name, spec := range map[string]bagtest.Spec{
		"one of 1 GiB":   {Files: []bagtest.File{{Path: "data/large", Size: 1 << 30}}, Manifests: []string{"md5"}},
		"20000 of 4 KiB": {Files: manyFiles(20_000, 4<<10), Manifests: []string{"md5"}},
	} {
		path := bagFile(b, spec)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		run := func(peer string, once func() error) {
			b.Run(strings.ReplaceAll(name, " ", "-")+"/"+peer, func(b *testing.B) {
				b.SetBytes(info.Size())
				for b.Loop() {
					if err := once(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("farol", func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // only read
			_, err = bag.Read(b.Context(), bufio.NewReaderSize(f, 1<<20), bag.ReadOptions{})
			return err
		})
		run("sha256sum-and-md5sum", func() error { return together(b, "sha256sum", "md5sum", path) })
		run("four-digests-in-memory", func() error { return digests(path) })
	}
}

func together(b *testing.B, one, other, path string) error {
	b.Helper()
	first := exec.CommandContext(b.Context(), one, path)
	if err := first.Start(); err != nil {
		return err
	}
	err := exec.CommandContext(b.Context(), other, path).Run()
	return errors.Join(err, first.Wait())
}

// digests has each of four goroutines hash a block before the next is read.
func digests(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	hashes := []hash.Hash{md5.New(), sha1.New(), sha256.New(), sha512.New()}
	buf := make([]byte, 4<<20)
	for {
		n, err := io.ReadFull(f, buf)
		var all sync.WaitGroup
		for _, h := range hashes {
			all.Go(func() { _, _ = h.Write(buf[:n]) }) // hashes do not fail
		}
		all.Wait()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func manyFiles(n int, size int64) []bagtest.File {
	files := make([]bagtest.File, n)
	for i := range files {
		files[i] = bagtest.File{Path: fmt.Sprintf("data/%03d/page-%06d.xml", i/100, i), Size: size}
	}
	return files
}

func bagFile(b *testing.B, spec bagtest.Spec) string {
	b.Helper()
	f, err := os.CreateTemp(b.TempDir(), "*.tar")
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(spec.WriteTar(f), f.Close()); err != nil {
		b.Fatal(err)
	}
	return f.Name()
}

// BenchmarkValidate judges an unpacked bag, as bagit-python does where that is
// installed. Farol computes four digests of each file and bagit-python one.
func BenchmarkValidate(b *testing.B) {
	dir := b.TempDir()
	path := bagFile(b, bagtest.Spec{Name: "many", Files: manyFiles(5_000, 32<<10), Manifests: []string{"sha256"}})
	if out, err := exec.CommandContext(b.Context(), "tar", "-xf", path, "-C", dir).CombinedOutput(); err != nil {
		b.Fatalf("tar: %v: %s", err, out)
	}
	unpacked := filepath.Join(dir, "many")
	b.Run("farol", func(b *testing.B) {
		b.SetBytes(5_000 * 32 << 10)
		for b.Loop() {
			index, err := bag.ReadDir(b.Context(), unpacked, bag.ReadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if v := index.Validate(profile.Plain()); !v.Valid {
				b.Fatal(v.Errors)
			}
		}
	})
	if exec.CommandContext(b.Context(), "python3", "-c", "import bagit").Run() != nil {
		b.Log("bagit-python is not installed, and left out")
		return
	}
	b.Run("bagit-python", func(b *testing.B) {
		b.SetBytes(5_000 * 32 << 10)
		for b.Loop() {
			if out, err := exec.CommandContext(b.Context(), "python3", "-m", "bagit", "--validate", unpacked).CombinedOutput(); err != nil {
				b.Fatalf("bagit-python: %v: %s", err, out)
			}
		}
	})
}

// identifyChild makes this test binary the format identifier's child.
const identifyChild = "FAROL_BENCH_IDENTIFY"

func TestMain(m *testing.M) {
	if os.Getenv(identifyChild) == "" {
		os.Exit(m.Run())
	}
	if err := format.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// BenchmarkIdentify identifies 2,000 files of this machine, as sf does, Siegfried's
// own command, with the same signatures and two files at a time.
func BenchmarkIdentify(b *testing.B) {
	dir := b.TempDir()
	names := gather(b, dir, 2_000)
	b.Run("farol", func(b *testing.B) {
		formats, err := format.Start(b.Context(), format.Options{Command: []string{"env", identifyChild + "=1", os.Args[0]}})
		if err != nil {
			b.Fatal(err)
		}
		defer formats.Close()
		var read int64
		for b.Loop() {
			read += identifyAll(b, formats, names)
		}
		b.ReportMetric(float64(b.N*len(names))/b.Elapsed().Seconds(), "files/s")
		b.ReportMetric(float64(read)/float64(b.N*len(names)), "bytes-read/file")
	})
	sf, err := installSf(b)
	if err != nil {
		b.Logf("sf cannot be built, and is left out: %v", err)
		return
	}
	b.Run("sf", func(b *testing.B) {
		for b.Loop() {
			if err := exec.CommandContext(b.Context(), sf, "-multi", "2", dir).Run(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*len(names))/b.Elapsed().Seconds(), "files/s")
	})
}

// installSf builds Siegfried's command, of the version that Farol uses, with the
// signatures in it.
func installSf(b *testing.B) (path string, err error) {
	b.Helper()
	const module = "github.com/richardlehane/siegfried"
	version, err := exec.CommandContext(b.Context(), "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return "", err
	}
	dir := b.TempDir()
	mod := fmt.Sprintf("module sf\n\ngo 1.26.0\n\nrequire %s %s\n\ntool %s/cmd/sf\n", module, strings.TrimSpace(string(version)), module)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-tags", "static", "-o", "sf", module + "/cmd/sf"}} {
		cmd := exec.CommandContext(b.Context(), "go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s: %w: %s", args[0], err, out)
		}
	}
	return filepath.Join(dir, "sf"), nil
}

// gather copies files of many formats that a system has anyway.
func gather(b *testing.B, dir string, most int) []string {
	b.Helper()
	var names []string
	for _, from := range []string{"/usr/share", "/usr/lib"} {
		err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // what cannot be read is no sample
			}
			info, err := entry.Info()
			if err != nil || info.Size() == 0 || info.Size() > 4<<20 {
				return nil //nolint:nilerr // likewise
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // likewise
			}
			name := filepath.Join(dir, fmt.Sprintf("%04d%s", len(names), filepath.Ext(path)))
			names = append(names, name)
			if err := os.WriteFile(name, content, 0o600); err != nil {
				return err
			}
			if len(names) == most {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if len(names) == most {
			break
		}
	}
	return names
}

// identifyAll returns how many bytes were read for it.
func identifyAll(b *testing.B, formats *format.Identifier, names []string) (read int64) {
	b.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	next := make(chan string)
	for range 8 { // as the pipeline has files in work
		all.Go(func() {
			for name := range next {
				n, err := identifyOne(b.Context(), formats, name)
				mu.Lock()
				if read += n; err != nil {
					b.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	all.Wait()
	return read
}

func identifyOne(ctx context.Context, formats *format.Identifier, name string) (int64, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	counted := &countedReader{r: bytes.NewReader(content)}
	_, err = formats.Identify(ctx, name, int64(len(content)), counted)
	return counted.n, err
}

type countedReader struct {
	mu sync.Mutex
	r  io.ReaderAt
	n  int64
}

func (c *countedReader) ReadAt(p []byte, off int64) (int, error) {
	c.mu.Lock()
	c.n += int64(len(p))
	c.mu.Unlock()
	return c.r.ReadAt(p, off)
}
