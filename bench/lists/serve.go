package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/handlers"
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
	var o orders
	lines, err := rig.Orders(in, &o)
	if err != nil {
		return err
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
			return handlers.Next(ctx, db, given, n)
		},
		ArchiveClass: func(string, bool) string { return "" }, Fixity: api.Fixity{Days: 90, Tries: 3},
	}
	handler, _ := front.Handler(a, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	return handler, nil
}

// process is a server that runs.
type process struct {
	*rig.Child

	url string
}

// startServer starts this program once more as a server, which ends with it.
func startServer(ctx context.Context, databaseURL string) (*process, error) {
	child, err := rig.StartChild(orders{databaseURL}, "lists", serveCommand)
	if child == nil {
		return nil, err
	}
	url := ""
	if err == nil {
		url, err = child.Hear()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the server: %w", err), child.Stop(ctx))
	}
	return &process{child, strings.TrimSpace(url)}, nil
}

// resident is how much memory the server has, in MiB.
func (p *process) resident() (float64, error) { return rig.Memory(rig.Procfs, p.Pid(), "VmRSS") }
