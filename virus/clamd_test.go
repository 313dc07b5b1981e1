package virus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/virus"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func scanner(t *testing.T, addr string, o virus.Options) *virus.Scanner {
	t.Helper()
	s, err := virus.New("tcp://"+addr, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"tcp://127.0.0.1:3310": true, "tcp://[::1]:3310": true, "tcp://clamd.example.org:3310": true, "unix:///run/clamav/clamd.ctl": true,
		"": false, "127.0.0.1:3310": false, "tcp://127.0.0.1": false, "tcp://:3310": false, "http://host:3310": false,
		"tcp://host:3310/path": false, "tcp://user@host:3310": false, "unix://run/clamd.ctl": false, "unix://": false, "tcp://host:%zz": false,
	} {
		if s, err := virus.New(address, virus.Options{}); (err == nil) != good || (s != nil) != good {
			t.Errorf("New(%q) = %v", address, err)
		}
	}
}

// The verdicts are those of a real clamd.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	s := scanner(t, testenv.Clamd(t), virus.Options{MaxSize: 5 << 20})
	for name, tc := range map[string]struct {
		content   string
		signature string
		unchecked string
	}{
		"clean":               {"A letter.", "", ""},
		"empty":               {"", "", ""},
		"infected":            {devstack.Virus, devstack.VirusName, ""},
		"infected at the end": {strings.Repeat("x", 300_001) + devstack.Virus, devstack.VirusName, ""},
		"across two chunks":   {strings.Repeat("x", 64<<10-20) + devstack.Virus, devstack.VirusName, ""},
		"a chunk exactly":     {strings.Repeat("x", 64<<10), "", ""},
		"not looked into":     {strings.Repeat("x", devstack.ClamdFileMax+1), "", "Heuristics.Limits.Exceeded.MaxFileSize"},
		"too long a stream":   {strings.Repeat("x", devstack.ClamdStreamMax+1), "", "StreamMaxLength"},
		"larger than we send": {strings.Repeat("x", 5<<20+1), "", "the limit for the scanner is 5242880"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := s.Scan(t.Context(), int64(len(tc.content)), strings.NewReader(tc.content))
			if err != nil {
				t.Fatal(err)
			}
			if v.Signature != tc.signature || !strings.Contains(v.Unchecked, tc.unchecked) || (v.Unchecked == "") != (tc.unchecked == "") {
				t.Errorf("Scan = %+v", v)
			}
			if !strings.HasPrefix(v.Scanner, "ClamAV ") {
				t.Errorf("the scanner is %q", v.Scanner)
			}
		})
	}
}

// A file that was not read to its end was not checked, whatever clamd says of the
// beginning.
func TestContentThatBreaksOffHasNoVerdict(t *testing.T) {
	t.Parallel()
	s := scanner(t, testenv.Clamd(t), virus.Options{})
	for name, r := range map[string]io.Reader{
		"an error":            io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("storage broke"))),
		"an end":              strings.NewReader("half"),
		"an unexpected end":   io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)),
		"more than there was": strings.NewReader("eight of them, and more"),
	} {
		if v, err := s.Scan(t.Context(), 8, r); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Whatever is wrong on the other side is an error, in time, and never a verdict.
func TestFaultsAreNoVerdicts(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("x", 1<<20)
	for name, answer := range map[string]func(net.Conn){
		"garbage":            func(c net.Conn) { drain(c); fmt.Fprint(c, "\xff\x00") },
		"nothing said":       func(c net.Conn) { drain(c); fmt.Fprint(c, "\x00") },
		"no name":            func(c net.Conn) { drain(c); fmt.Fprint(c, "stream:  FOUND\x00") },
		"an error of its":    func(c net.Conn) { drain(c); fmt.Fprint(c, "Can't allocate memory ERROR\x00") },
		"nearly OK":          func(c net.Conn) { drain(c); fmt.Fprint(c, "stream: OKAY\x00") },
		"OK without its end": func(c net.Conn) { drain(c); fmt.Fprint(c, "stream: OK") },
		"a very long line":   func(c net.Conn) { drain(c); _, _ = c.Write(bytes.Repeat([]byte("x"), 1<<20)) },
		"silence":            func(c net.Conn) { drain(c); _, _ = io.Copy(io.Discard, c) },
		"deaf":               func(c net.Conn) { <-t.Context().Done() },
		"cut at once":        func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := serve(t, answer)
			s := scanner(t, addr, virus.Options{Idle: time.Second, Answer: time.Second})
			began := time.Now()
			v, err := s.Scan(t.Context(), int64(len(content)), strings.NewReader(content))
			if err == nil {
				t.Errorf("Scan = %+v", v)
			}
			if took := time.Since(began); took > testenv.AtOnce {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A verdict that comes before all is sent counts: clamd reads no further.
func TestVerdictMayComeEarly(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		fmt.Fprint(c, "INSTREAM size limit exceeded. ERROR\x00")
	})
	content := strings.Repeat("x", 50<<20)
	v, err := scanner(t, addr, virus.Options{}).Scan(t.Context(), int64(len(content)), strings.NewReader(content))
	if err != nil || v.Unchecked == "" || v.Scanner != "ClamAV 1.4.3/27812" {
		t.Errorf("Scan = %+v, %v", v, err)
	}
}

// A connection that breaks is an error, and the next file has one of its own.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Clamd(t))
	s := scanner(t, proxy.Addr(), virus.Options{Idle: testenv.AtOnce, Answer: testenv.AtOnce})
	content := strings.Repeat("x", 500_000)
	scan := func() error {
		_, err := s.Scan(t.Context(), int64(len(content)), strings.NewReader(content))
		return err
	}
	if err := scan(); err != nil {
		t.Fatal(err)
	}
	proxy.CutAfter(100_000)
	if err := scan(); err == nil {
		t.Error("a verdict came through a cut connection")
	}
	proxy.Resume()
	if err := scan(); err != nil {
		t.Error(err)
	}
	proxy.Delay(time.Hour)
	s = scanner(t, proxy.Addr(), virus.Options{Idle: time.Second, Answer: time.Second})
	if err := scan(); err == nil {
		t.Error("a verdict came through a connection that hangs")
	}
	proxy.Resume()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Scan(ctx, 1, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Scan = %v, want it cancelled", err)
	}
}

// Many files at once have no more connections than was said.
func TestScansAreBounded(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	addr := serve(t, func(c net.Conn) {
		most.Store(max(most.Load(), now.Add(1)))
		drain(c)
		<-time.After(20 * time.Millisecond)
		now.Add(-1)
		fmt.Fprint(c, "stream: OK\x00")
	})
	s := scanner(t, addr, virus.Options{AtOnce: 2})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := s.Scan(t.Context(), 1, strings.NewReader("x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d at once, want 2", n)
	}
}

// serve listens as a clamd whose version is known, and has each stream answered.
func serve(t *testing.T, answer func(net.Conn)) (addr string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				command := make([]byte, len("zVERSION\x00"))
				if _, err := io.ReadFull(c, command); err == nil && string(command) == "zVERSION\x00" {
					fmt.Fprint(c, "ClamAV 1.4.3/27812/Sat Nov 21 10:23:41 2026\x00")
					return
				}
				_, _ = io.ReadFull(c, make([]byte, 1)) // the end of zINSTREAM
				answer(c)
			}()
		}
	}()
	return l.Addr().String()
}

// drain reads a stream to its end.
func drain(c net.Conn) {
	for length := make([]byte, 4); ; {
		if _, err := io.ReadFull(c, length); err != nil || bytes.Equal(length, []byte{0, 0, 0, 0}) {
			return
		}
		n := int64(length[0])<<24 | int64(length[1])<<16 | int64(length[2])<<8 | int64(length[3])
		if _, err := io.CopyN(io.Discard, c, n); err != nil {
			return
		}
	}
}
