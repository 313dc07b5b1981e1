package format

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/richardlehane/siegfried"
	"github.com/richardlehane/siegfried/pkg/static"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A child that waits for content, or loops, must not outlive its parent.
func TestServeEndsWithItsInputEvenWithAFileInHand(t *testing.T) {
	t.Parallel()
	in, parent := io.Pipe()
	asked, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- newServer(in, out).run(static.New(), 8*mebi) }()

	w, r := bufio.NewWriter(parent), bufio.NewReader(asked)
	file := subject{"big.pdf", 300 * mebi, make([]byte, headSize)}
	expect(t, r, kindReady)
	must.Do(t, writeFrame(w, kindFile, file.encode()...))
	expect(t, r, kindRead)
	must.Do(t, parent.Close())
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("run = %v, want an unexpected end", err)
	}
}

func expect(t *testing.T, r io.Reader, k kind) {
	t.Helper()
	if f, err := readFrame(r); err != nil || f.kind != k {
		t.Fatalf("frame %q, %v, want %q", f.kind, err, k)
	}
}

func TestServeRefusesAParentOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, hello := range map[string]string{
		"version":  "H\x00\x00\x00\x11\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01",
		"kind":     "F\x00\x00\x00\x00",
		"limits":   "H\x00\x00\x00\x11\x01\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01",
		"too long": "H\xff\xff\xff\xff",
	} {
		if err := Serve(strings.NewReader(hello), io.Discard); !errors.Is(err, errProtocol) {
			t.Errorf("%s: Serve = %v, want a broken protocol", name, err)
		}
	}
}

// content is what a source of the tests holds: each byte tells its place.
func content(size int64) io.ReaderAt {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return bytes.NewReader(p)
}

// Whatever the order of slices, they hold the file's bytes in their places, and
// the budget and the two ends bound what is read.
func TestSlicesAreTheFilesBytes(t *testing.T) {
	t.Parallel()
	const largest = 5 * mebi
	whole := make([]byte, largest)
	must.Get(content(largest).ReadAt(whole, 0))(t)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, largest).Draw(t, "size")
		budget := rapid.Int64Range(1, largest).Draw(t, "budget")
		file, read := whole[:size], int64(0)
		head := file[:min(size, headSize)]
		read = int64(len(head))
		s := newSource(subject{"a", size, head}, budget, func(want span) []byte {
			if _, err := parseSpan(want.encode(), size); err != nil {
				t.Fatalf("fetch %+v: %v", want, err)
			}
			read += int64(want.n)
			return bytes.Clone(file[want.off : want.off+int64(want.n)])
		})
		for range rapid.IntRange(1, 30).Draw(t, "slices") {
			off := rapid.Int64Range(-1, size+1).Draw(t, "off")
			n := rapid.IntRange(-1, 400<<10).Draw(t, "n")
			backwards := rapid.Bool().Draw(t, "backwards")
			checkSlice(t, s, file, off, n, backwards, budget >= size)
		}
		if read > max(budget, int64(len(head)))+2*edge || read > size {
			t.Fatalf("read %d bytes of %d, budget %d", read, size, budget)
		}
	})
}

func checkSlice(t *rapid.T, s *source, file []byte, off int64, n int, backwards, plenty bool) {
	size := int64(len(file))
	slice, start := s.Slice, off
	end := off + int64(max(n, 0))
	if backwards {
		slice, start, end = s.EofSlice, size-off-int64(max(n, 0)), size-off
	}
	got, err := slice(off, n)
	if off < 0 || off >= size || n < 0 {
		if len(got) > 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes, %v outside of the file", len(got), err)
		}
		return
	}
	want := file[max(start, 0):min(end, size)]
	switch {
	case len(got) == n && err != nil, len(got) < n && !errors.Is(err, io.EOF):
		t.Fatalf("%d of %d bytes with %v", len(got), n, err)
	case backwards && len(got) > 0, plenty:
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes that are not the file's", len(got))
		}
	case !bytes.HasPrefix(want, got):
		t.Fatalf("%d bytes that are not the file's", len(got))
	}
}

// Siegfried's goroutines share a source.
func TestASourceMayBeSlicedByMany(t *testing.T) {
	t.Parallel()
	const size = 3 * mebi
	r := content(size)
	head := make([]byte, headSize)
	must.Get(r.ReadAt(head, 0))(t)
	s := newSource(subject{"a", size, head}, size, func(want span) []byte {
		p := make([]byte, want.n)
		if _, err := r.ReadAt(p, want.off); err != nil {
			t.Error(err)
		}
		return p
	})
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for off := int64(n) * 1000; off < size-4096; off += 70_001 {
				want := make([]byte, 4096)
				if _, err := r.ReadAt(want, off); err != nil {
					t.Error(err)
				}
				if got, err := s.Slice(off, 4096); err != nil || !bytes.Equal(got, want) {
					t.Errorf("slice at %d: %v", off, err)
				}
			}
		})
	}
	all.Wait()
}

func TestPayloadsSurviveTheWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(0, 40, maxName).Draw(t, "name")
		head := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "head")
		sent := subject{name, int64(len(head)), head}
		var wire bytes.Buffer
		must.Do(t, writeFrame(bufio.NewWriter(&wire), kindFile, sent.encode()...))
		f, err := readFrame(&wire)
		if err != nil || f.kind != kindFile || wire.Len() > 0 {
			t.Fatalf("frame %q, %v, %d bytes left", f.kind, err, wire.Len())
		}
		got, err := parseSubject(f.payload)
		if diff := cmp.Diff(sent, got, cmp.AllowUnexported(subject{})); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func TestALongNameKeepsItsEnd(t *testing.T) {
	t.Parallel()
	long := subject{name: strings.Repeat("d/", 10_000) + "a.pdf"}
	got, err := parseSubject(bytes.Join(long.encode(), nil))
	if err != nil || len(got.name) != maxName || !strings.HasSuffix(got.name, "/a.pdf") {
		t.Errorf("name of %d bytes, %v", len(got.name), err)
	}
}

// Whatever comes in, a child ends with an error or with its input, and each of
// its frames can be read.
func FuzzServe(f *testing.F) {
	seed := func(frames ...frame) {
		var b bytes.Buffer
		for _, fr := range frames {
			must.Do(f, writeFrame(bufio.NewWriter(&b), fr.kind, fr.payload))
		}
		f.Add(b.Bytes())
	}
	hello := frame{kindHello, limits{1, 1}.encode()}
	file := func(name, content string, size int64) frame {
		return frame{kindFile, bytes.Join(subject{name, size, []byte(content)}.encode(), nil)}
	}
	seed()
	seed(hello, file("a.pdf", pdf, int64(len(pdf))), file("a.go", "package a", 9))
	seed(hello, file("a.txt", "", 0))
	seed(hello, file("a.txt", "short", 9))
	seed(hello, file("a.bin", string(make([]byte, headSize)), headSize+1), frame{kindData, []byte{1}})
	seed(hello, file("a.bin", string(make([]byte, headSize)), headSize+1), frame{kindFail, nil})
	seed(hello, frame{kindData, nil})
	sf := static.New()
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := converse(sf, in)
		for {
			_, ferr := readFrame(out)
			if errors.Is(ferr, io.EOF) {
				break
			}
			if ferr != nil {
				t.Fatalf("the child wrote no frame: %v (it ended with %v)", ferr, err)
			}
		}
	})
}

func converse(sf *siegfried.Siegfried, in []byte) (*bytes.Buffer, error) {
	var out bytes.Buffer
	s := newServer(bytes.NewReader(in), &out)
	l, _, err := s.greeting()
	if err != nil {
		return &out, err
	}
	return &out, s.run(sf, l.budget)
}
