package format

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

const childArg = "serve-format"

// The test binary is its own child: with childArg and a file's name it notes
// its process id there and serves.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		if err := serveChild(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == tryArg {
		tryAll(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

func serveChild(pids string) error {
	f, err := os.OpenFile(pids, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return err
	}
	return errors.Join(f.Close(), Serve(chatter{os.Stdin}, os.Stdout))
}

// chatter prints to what is os.Stdout at that moment, as a library might.
type chatter struct{ io.Reader }

func (c chatter) Read(p []byte) (int, error) {
	fmt.Println("a library prints something")
	return c.Reader.Read(p)
}

// family is an Identifier and the children it has had.
type family struct {
	*Identifier
	pidFile string
}

func start(t testing.TB, o Options) family {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	pids := filepath.Join(t.TempDir(), "pids")
	o.Command = []string{exe, childArg, pids}
	if o.Memory == 0 {
		o.Memory = 8 << 30 // the race detector's share
	}
	i := must.Get(Start(t.Context(), o))(t)
	t.Cleanup(i.Close)
	return family{i, pids}
}

func (f family) pids(t testing.TB) []int {
	t.Helper()
	list := must.Get(os.ReadFile(f.pidFile))(t)
	var pids []int
	for line := range strings.FieldsSeq(string(list)) {
		pid := must.Get(strconv.Atoi(line))(t)
		pids = append(pids, pid)
	}
	return pids
}

func (f family) youngest(t testing.TB) int {
	t.Helper()
	pids := f.pids(t)
	return pids[len(pids)-1]
}

func (f family) identify(t testing.TB, name, content string) Result {
	t.Helper()
	got, err := f.Identify(t.Context(), name, int64(len(content)), strings.NewReader(content))
	if err != nil {
		t.Fatalf("Identify(%s): %v", name, err)
	}
	return got
}

// hooked is a large file that calls a hook before each read behind its head.
type hooked struct {
	content io.ReaderAt
	hook    func() error
}

func (h hooked) ReadAt(p []byte, off int64) (int, error) {
	if off >= headSize {
		if err := h.hook(); err != nil {
			return 0, err
		}
	}
	return h.content.ReadAt(p, off)
}

// sparse is a file of zeros but for its head and tail, and counts what is read.
type sparse struct {
	head, tail string
	size       int64
	read       atomic.Int64
	calls      atomic.Int64
}

func (s *sparse) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), s.size-off))
	clear(p[:n])
	if off < int64(len(s.head)) {
		copy(p[:n], s.head[off:])
	}
	if start := s.size - int64(len(s.tail)); off+int64(n) > start {
		copy(p[max(0, start-off):n], s.tail[max(0, off-start):])
	}
	s.read.Add(int64(n))
	s.calls.Add(1)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

const (
	mebi    = 1 << 20
	pdfHead = "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
	pdfTail = "\nstartxref\n116\n%%EOF\n"
	pdf     = pdfHead + pdfTail
)

func bigPDF() *sparse { return &sparse{head: pdfHead, tail: pdfTail, size: 300 * mebi} }

func docx(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	part := must.Get(w.Create("[Content_Types].xml"))(t)
	must.Get(io.WriteString(part, docxTypes))(t)
	must.Do(t, w.Close())
	return b.String()
}

// bomb is a docx whose first member unpacks to so many mebibytes. A flushed
// run of deflated zeros can be repeated, which spares the compressing.
func bomb(t testing.TB, mebis int) string {
	t.Helper()
	var unit, b bytes.Buffer
	d := must.Get(flate.NewWriter(&unit, flate.BestCompression))(t)
	must.Get(d.Write(make([]byte, mebi)))(t)
	must.Do(t, d.Flush())
	packed := append(bytes.Repeat(unit.Bytes(), mebis), 3, 0) // an empty last block
	w := zip.NewWriter(&b)
	part := must.Get(w.CreateRaw(&zip.FileHeader{
		Name: "[Content_Types].xml", Method: zip.Deflate,
		CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(mebis) * mebi,
	}))(t)
	must.Get(part.Write(packed))(t)
	must.Do(t, w.Close())
	return b.String()
}

const docxTypes = `<?xml version="1.0" encoding="UTF-8"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">` +
	`<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`
