package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/internal/commands/items"
	"github.com/farol-preservation/farol/internal/memory"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/front"
)

// orders are what the server is started with: the first line of its standard input.
type orders struct{ DatabaseURL string }

// unlimited is the number of requests a second that each caller may make: more than any does.
const unlimited = 1_000_000

// serve serves what farol serve --web does, without its limit of requests, until its standard
// input ends. It prints its address first.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines := bufio.NewReader(in)
	var o orders
	first, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &o)
	}
	if err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	memory.Fit(100, 0)
	handler, err := newHandler(ctx, o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() {
		lines.ReadString('\n') //nolint:errcheck // its end is what we wait for
		server.Close()         //nolint:errcheck // the process ends
	}()
	fmt.Fprintf(out, "http://%s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newHandler(ctx context.Context, o orders) (http.Handler, error) {
	db, err := registry.Connect(ctx, o.DatabaseURL, "farol-serve")
	if err != nil {
		return nil, err
	}
	keys, err := auth.ParseKeys(auth.NewKey())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	r := registry.New(db)
	a := &api.API{
		Registry: r, Version: "bench", Rate: unlimited,
		Web:  &access.Web{Tokens: access.NewTokens(r, false), Registry: r, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Log:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Auth: auth.New(r, auth.Options{Keys: keys, Issuer: "Farol"}), PlanAlone: 1,
		Next: func(ctx context.Context, given []string, n int) ([]int64, error) {
			pools, err := items.PoolsOf(given)
			if err != nil {
				return nil, err
			}
			return items.Next(ctx, db, pools, n)
		},
		ArchiveClass: func(string, bool) string { return "" }, Fixity: api.Fixity{Days: 90, Tries: 3},
	}
	handler, _ := front.Handler(a, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	return handler, nil
}

// process is a server that runs.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// startServer starts this program once more as a server, which ends with it.
func startServer(databaseURL string) (*process, error) {
	line, err := json.Marshal(orders{databaseURL})
	if err != nil {
		return nil, fmt.Errorf("write the orders: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	p := &process{cmd: exec.Command(self, serveCommand)} //nolint:noctx // the end of its standard input stops it
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who know the order
	out, outErr := p.cmd.StdoutPipe()
	in, inErr := p.cmd.StdinPipe()
	if err := errors.Join(outErr, inErr); err != nil {
		return nil, fmt.Errorf("make the pipes: %w", err)
	}
	p.stdin = in
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	_, writeErr := in.Write(append(line, '\n'))
	url, readErr := bufio.NewReader(out).ReadString('\n')
	if err := errors.Join(writeErr, readErr); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the server: %w", err), p.stop())
	}
	p.url = strings.TrimSpace(url)
	return p, nil
}

func (p *process) stop() error {
	err := errors.Join(p.stdin.Close(), p.cmd.Wait())
	if err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	return nil
}

// resident is how much memory the server has, in MiB.
func (p *process) resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of the server: %w", err)
	}
	return vmRSS(string(text))
}

// vmRSS reads the resident size out of what Linux says of a process.
func vmRSS(status string) (float64, error) {
	_, rest, _ := strings.Cut(status, "\nVmRSS:")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[1] != "kB" {
		return 0, errors.New("read the memory of the server: there is no VmRSS")
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of the server: %w", err)
	}
	return kib / 1024, nil
}
