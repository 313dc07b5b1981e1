package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

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
	got := must.Get(f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), kill}))(t)
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
	must.Do(t, syscall.Kill(f.youngest(t), syscall.SIGKILL))
	<-idle.exited
	f.slots <- idle
	if got := f.identify(t, "b.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
}

// A stopped process stands for one in an endless loop.
func TestAHangingChildIsReplaced(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Timeout: time.Minute})
	f.identify(t, "a.pdf", pdf)
	f.opts.Timeout = time.Second
	hang := func() error { return syscall.Kill(f.youngest(t), syscall.SIGSTOP) }
	got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), hang})
	if err != nil || got.Reason != TimedOut || got.MIME != "application/pdf" {
		t.Errorf("the hanging file is %+v, %v", got, err)
	}
	hung := f.youngest(t)
	f.opts.Timeout = time.Minute
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
	if err := syscall.Kill(hung, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the hung child: %v, want no such process", err)
	}
}

// A store that hangs says nothing of the file: its error is the stage's to retry.
func TestStorageThatHangsIsNoFaultOfTheFile(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Timeout: time.Minute})
	f.identify(t, "a.pdf", pdf)
	f.opts.Timeout = time.Second
	stuck := func() error { <-t.Context().Done(); return t.Context().Err() }
	for name, r := range map[string]io.ReaderAt{
		"at the head":     stuckReader(stuck),
		"behind the head": hooked{bigPDF(), stuck},
	} {
		got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, r)
		if !errors.Is(err, errSlow) {
			t.Errorf("%s: %+v, %v, want errSlow", name, got, err)
		}
	}
	f.opts.Timeout = time.Minute
	if got := f.identify(t, "next.pdf", pdf); got.IdentifiedBy != BySiegfried {
		t.Errorf("the next file is %+v", got)
	}
}

// The time of a file is the child's, however slowly its content comes.
func TestSlowStorageCostsAFileNothing(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1, Timeout: time.Minute, Budget: 3 * mebi})
	f.identify(t, "a.pdf", pdf)
	f.opts.Timeout = 15 * time.Second // a slow machine's child needs some of them
	began := time.Now()
	slow := func() error {
		<-time.After(1300 * time.Millisecond)
		return nil
	}
	got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), slow})
	if err != nil || got.Reason != "" || got.PUID != "fmt/18" {
		t.Errorf("it is %+v, %v", got, err)
	}
	if took := time.Since(began); took < f.opts.Timeout {
		t.Errorf("took %v, which tells nothing", took)
	}
}

// What broke on a file is named with it, and so is what any file is asked of.
func TestResultsNameTheSignatures(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	version, err := f.Version(t.Context())
	if err != nil || !strings.Contains(version, ", DROID_SignatureFile_V") {
		t.Fatalf("Version = %q, %v", version, err)
	}
	kill := func() error { return syscall.Kill(f.youngest(t), syscall.SIGKILL) }
	got, err := f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), kill})
	if err != nil || got.Reason != Crashed || got.Version != version {
		t.Errorf("the file that crashed is %+v, %v", got, err)
	}
	if got := f.identify(t, "a.pdf", pdf); got.Version != version {
		t.Errorf("a file is identified by %q, want %q", got.Version, version)
	}
	if got := f.identify(t, "empty.pdf", ""); got.Version != "" {
		t.Errorf("an empty file is identified by %q", got.Version)
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
	f := start(t, Options{Workers: 1, Memory: 32 * mebi, Timeout: 5 * time.Minute})
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
	must.Do(t, os.WriteFile(filepath.Join(dir, "siegfried"), nil, 0o600))
	kill := func() error { return syscall.Kill(f.youngest(t), syscall.SIGKILL) }
	must.Get(f.Identify(t.Context(), "big.pdf", 300*mebi, hooked{bigPDF(), kill}))(t)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v, want none", err)
	}
}

// A parent that was killed cannot clean up either.
func TestAChildWithoutAParentLeavesNoDirectory(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	dir := filepath.Join(t.TempDir(), tempPrefix+"x")
	must.Do(t, os.Mkdir(dir, 0o700))
	c := must.Get(launchIn(t.Context(), f.opts, dir))(t)
	greeted := c.greet(f.opts)
	spilled := os.WriteFile(filepath.Join(dir, "siegfried"), nil, 0o600)
	must.Do(t, errors.Join(greeted, spilled, c.in.Close(), c.cmd.Wait()))
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v, want none", err)
	}
}

func temp(t *testing.T, pid int) string {
	t.Helper()
	env := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)))(t)
	return strings.Trim(strings.TrimPrefix(string(env), "TMPDIR="), "\x00")
}

// What can not be started is the operator's trouble and no file's.
func TestAChildThatDoesNotStartIsAnError(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"/does/not/exist"}, {"/bin/echo", "no frames at all"}, {"/bin/false"}} {
		i := must.Get(Start(t.Context(), Options{Command: command}))(t)
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

// Were the end of the input only seen between files, a looping child would
// outlive a parent that was killed.
func TestABusyChildEndsWithItsInput(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Workers: 1})
	c := must.Get(startChild(t.Context(), f.opts))(t)
	content := bomb(t, 200)
	busy := subject{"bomb.docx", int64(len(content)), []byte(content)}
	must.Do(t, writeFrame(c.writer, kindFile, busy.encode()...))
	c.stop()
	// had it finished the file first, it would have ended well
	if code := c.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%v, want exit status 1", c.cmd.ProcessState)
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
	i := must.Get(Start(ctx, f.opts))(t)
	must.Get(i.Identify(t.Context(), "a.txt", 1, strings.NewReader("a")))(t)
	cancel()
	<-i.closed
	i.Close()
	if err := syscall.Kill(f.youngest(t), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child: %v, want no such process", err)
	}
}

// Credentials of the parent's environment are no business of a process that
// parses what depositors send.
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
