package format

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
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
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pids := filepath.Join(t.TempDir(), "pids")
	o.Command = []string{exe, childArg, pids}
	if o.Memory == 0 {
		o.Memory = 8 << 30 // the race detector's share
	}
	i, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return family{i, pids}
}

func (f family) pids(t testing.TB) []int {
	t.Helper()
	list, err := os.ReadFile(f.pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for line := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
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
	part, err := w.Create("[Content_Types].xml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(part, docxTypes); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// bomb is a docx whose first member unpacks to so many mebibytes. A flushed
// run of deflated zeros can be repeated, which spares the compressing.
func bomb(t testing.TB, mebis int) string {
	t.Helper()
	var unit, b bytes.Buffer
	d, err := flate.NewWriter(&unit, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write(make([]byte, mebi)); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	packed := append(bytes.Repeat(unit.Bytes(), mebis), 3, 0) // an empty last block
	w := zip.NewWriter(&b)
	part, err := w.CreateRaw(&zip.FileHeader{
		Name: "[Content_Types].xml", Method: zip.Deflate,
		CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(mebis) * mebi,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(packed); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const docxTypes = `<?xml version="1.0" encoding="UTF-8"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">` +
	`<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`

// .go and .xml prove that Siegfried answers: the extension map has other types.
func TestFilesGetTheTypesOnRecord(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	const ooxml = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	for _, row := range []struct{ name, content, mime, puid, method, by string }{
		{"main.go", "package main\n\nfunc main() {}\n", "text/plain", "x-fmt/111", "signature", BySiegfried},
		{"a.xml", "<?xml version=\"1.0\"?><a/>", "application/xml", "fmt/101", "signature", BySiegfried},
		{"a.json", `{"a": 1}`, "application/json", "fmt/817", "extension", BySiegfried},
		{"a.csv", "a,b\n1,2\n", "text/csv", "x-fmt/18", "extension", BySiegfried},
		{"a.txt", "hello\n", "text/plain", "x-fmt/111", "signature", BySiegfried},
		{"a.pdf", pdf, "application/pdf", "fmt/18", "signature", BySiegfried},
		{"A.PDF", pdf, "application/pdf", "fmt/18", "signature", BySiegfried},
		{"a.docx", docx(t), ooxml, "fmt/412", "container", BySiegfried},
		{"a.avi", "RIFF\x00\x00\x00\x00AVI LIST\x00\x00\x00\x00hdrlavih", "video/x-msvideo", "fmt/5", "signature", BySiegfried},
		{".DS_Store", "\x00\x00\x00\x01Bud1\x00\x00", unknownMIME, "fmt/394", "extension", ByExtensionMap},
		{"a.zip", "nobody knows \x01\x02", "application/zip", "", "extension", ByExtensionMap},
	} {
		got := f.identify(t, "data/"+row.name, row.content)
		if got.MIME != row.mime || got.PUID != row.puid || got.Method != row.method || got.IdentifiedBy != row.by {
			t.Errorf("%s: %+v, want %+v", row.name, got, row)
		}
		if (got.Reason == "") != (row.by == BySiegfried) || !strings.HasPrefix(got.Version, "siegfried 1.") {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	if n := len(f.pids(t)); n != 1 {
		t.Errorf("%d children for one worker", n)
	}
}

func TestAnEmptyFileIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	got, err := start(t, Options{}).Identify(t.Context(), "a.txt", 0, nil)
	want := Result{MIME: "text/plain", Method: "extension", IdentifiedBy: ByExtensionMap, Reason: Empty}
	if err != nil || got != want {
		t.Errorf("Identify = %+v, %v, want %+v", got, err, want)
	}
}

// This also guards the methods that Siegfried looks for behind our backs: were
// they renamed in an upgrade, all of the file would be read.
func TestALargeFileIsReadWithinTheBudget(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Budget: 3 * mebi})
	file := bigPDF()
	got, err := f.Identify(t.Context(), "big.pdf", file.size, file)
	if err != nil || got.PUID != "fmt/18" || got.IdentifiedBy != BySiegfried {
		t.Fatalf("Identify = %+v, %v", got, err)
	}
	if read := file.read.Load(); read > 5*mebi || read < mebi {
		t.Errorf("read %d bytes, budget is 3 MiB and two ends", read)
	}
	t.Logf("%d bytes in %d calls", file.read.Load(), file.calls.Load())
}

func TestAKilledChildCostsItsFileOnly(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	kill := func() error { return syscall.Kill(f.youngest(t), syscall.SIGKILL) }
	got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), kill})
	if err != nil {
		t.Fatal(err)
	}
	if got.MIME != "application/pdf" || got.Reason != Crashed || got.IdentifiedBy != ByExtensionMap ||
		!strings.Contains(got.Detail, "signal: killed") {
		t.Errorf("the killer file is %+v", got)
	}
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
	if n := len(f.pids(t)); n != 2 {
		t.Errorf("%d children, want a first and its successor", n)
	}
}

func TestAChildKilledInIdlenessCostsNoFile(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	idle := <-f.slots
	if err := syscall.Kill(f.youngest(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-idle.exited
	f.slots <- idle
	if got := f.identify(t, "b.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
}

// A stopped process stands for one in an endless loop.
func TestAHangingChildIsReplaced(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Timeout: 2 * time.Second})
	f.identify(t, "a.pdf", pdf)
	hang := func() error { return syscall.Kill(f.youngest(t), syscall.SIGSTOP) }
	got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), hang})
	if err != nil || got.Reason != TimedOut || got.MIME != "application/pdf" {
		t.Errorf("the hanging file is %+v, %v", got, err)
	}
	hung := f.youngest(t)
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
	if err := syscall.Kill(hung, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the hung child: %v, want no such process", err)
	}
}

func TestStorageThatHangsEndsTheFileOnly(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Timeout: time.Second})
	stuck := func() error { <-t.Context().Done(); return t.Context().Err() }
	for name, r := range map[string]io.ReaderAt{
		"at the head":     stuckReader(stuck),
		"behind the head": hooked{bigPDF(), stuck},
	} {
		got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, r)
		if err != nil || got.Reason != TimedOut {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
}

type stuckReader func() error

func (s stuckReader) ReadAt([]byte, int64) (int, error) { return 0, s() }

// The storage's errors are the stage's to retry; the child has no part in them.
func TestAReadErrorIsReturnedAndTheChildKept(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	broken := errors.New("storage broke")
	fail := func() error { return broken }
	for name, r := range map[string]io.ReaderAt{
		"at the head":     stuckReader(fail),
		"behind the head": hooked{bigPDF(), fail},
	} {
		if got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, r); !errors.Is(err, broken) {
			t.Errorf("%s: %+v, %v, want the storage's error", name, got, err)
		}
	}
	if _, err := f.Identify(t.Context(), "a.pdf", 100, strings.NewReader(pdf)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file shorter than its size: %v", err)
	}
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
	if n := len(f.pids(t)); n != 1 {
		t.Errorf("%d children, want the one", n)
	}
}

func TestAnEndedContextIsAnErrorNotAResult(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	stop := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	hang := func() error { cancel(stop); <-t.Context().Done(); return nil }
	if got, err := f.Identify(ctx, "big.pdf", 300*mebi, hooked{bigPDF(), hang}); !errors.Is(err, stop) {
		t.Errorf("Identify = %+v, %v, want the cause", got, err)
	}
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
}

// A member that unpacks to a thousand times the archive is what filled the old
// system's memory.
func TestABombEndsItsChildNotTheRun(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Memory: 32 * mebi})
	got := f.identify(t, "bomb.docx", bomb(t, 512))
	if got.Reason != Crashed || !strings.HasSuffix(got.MIME, "wordprocessingml.document") {
		t.Errorf("the bomb is %+v", got)
	}
	t.Log(got.Detail)
	f.identify(t, "next.pdf", pdf)
	if n := len(f.pids(t)); n != 2 {
		t.Errorf("%d children, want a first and its successor", n)
	}
}

// Siegfried spills the inside of archives into temporary files, and a child
// that is killed does not clean up.
func TestAChildLeavesNoFilesBehind(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	dir := temp(t, f.youngest(t))
	if err := os.WriteFile(filepath.Join(dir, "siegfried"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill := func() error { return syscall.Kill(f.youngest(t), syscall.SIGKILL) }
	if _, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), kill}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v, want none", err)
	}
}

func temp(t *testing.T, pid int) string {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(strings.TrimPrefix(string(env), "TMPDIR="), "\x00")
}

// What can not be started is the operator's trouble and no file's.
func TestAChildThatDoesNotStartIsAnError(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"/does/not/exist"}, {"/bin/echo", "no frames at all"}, {"/bin/false"}} {
		i, err := Start(t.Context(), Options{Command: command})
		if err != nil {
			t.Fatal(err)
		}
		got, err := i.Identify(t.Context(), "a.txt", 1, strings.NewReader("a"))
		if err == nil {
			t.Errorf("%v: %+v", command, got)
		}
		i.Close()
	}
	for _, o := range []Options{{}, {Command: []string{""}}, {Command: []string{"x"}, Workers: -1}} {
		if _, err := Start(t.Context(), o); err == nil {
			t.Errorf("Start(%+v) succeeded", o)
		}
	}
}

func TestManyCallersShareTheChildren(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 2})
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			name, want := fmt.Sprintf("%d.pdf", n), "fmt/18"
			content := pdf
			if n%2 == 0 {
				name, want, content = fmt.Sprintf("%d.xml", n), "fmt/101", "<?xml version=\"1.0\"?><a/>"
			}
			got, err := f.Identify(t.Context(), name, int64(len(content)), strings.NewReader(content))
			if err != nil || got.PUID != want {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		})
	}
	all.Wait()
	if n := len(f.pids(t)); n > 2 {
		t.Errorf("%d children for two workers", n)
	}
}

func TestCloseEndsTheChildren(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	f.Close()
	f.Close()
	if err := syscall.Kill(f.youngest(t), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child: %v, want no such process", err)
	}
	if _, err := f.Identify(t.Context(), "a.txt", 1, strings.NewReader("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("Identify = %v, want ErrClosed", err)
	}
}

func TestTheChildrenEndWithTheContextOfStart(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	i, err := Start(ctx, f.opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Identify(t.Context(), "a.txt", 1, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-i.closed
	i.Close()
	if err := syscall.Kill(f.youngest(t), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child: %v, want no such process", err)
	}
}

// Credentials of the parent's environment are no business of a process that
// parses what strangers send.
func TestAChildHasNoSecrets(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	f.identify(t, "a.pdf", pdf)
	if dir := temp(t, f.youngest(t)); !filepath.IsAbs(dir) || strings.ContainsAny(dir, "=\x00") {
		t.Errorf("environment besides the directory: %q", dir)
	}
}

func BenchmarkSmallFiles(b *testing.B) {
	f := start(b, Options{Workers: 2})
	contents := map[string]string{
		"a.pdf": pdfHead + strings.Repeat("0 0 obj\n", 2000) + pdfTail,
		"a.go":  strings.Repeat("package main\n", 500),
		"a.xml": "<?xml version=\"1.0\"?><a>" + strings.Repeat("<b/>", 1000) + "</a>",
	}
	b.SetParallelism(2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for name, content := range contents {
				f.identify(b, name, content)
			}
		}
	})
	b.ReportMetric(float64(3*b.N)/b.Elapsed().Seconds(), "files/s")
}
