package lists

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/commands/handlers"
	"github.com/farol-preservation/farol/internal/process/memory"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/front"
)

// servers are the database, and the server for people.
type servers struct {
	*rig.Servers

	server *process
}

// startServers starts PostgreSQL with the settings that it comes with, but for time between
// checkpoints: a fill would else write each page several times.
func startServers(ctx context.Context, c config, progress io.Writer) (_ *servers, err error) {
	if c.dir != "" {
		err = os.MkdirAll(c.dir, 0o700)
		if err == nil {
			c.dir, err = filepath.Abs(c.dir)
		}
		if err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
	}
	found, filled, err := filled(c.dir)
	switch {
	case err != nil:
		return nil, err
	case filled && found != c.sizes:
		return nil, fmt.Errorf("the database in %s has %+v, and not %+v; name the same sizes or another directory", c.dir, found, c.sizes)
	case !filled:
		if err := hasSpace(cmp.Or(c.dir, os.TempDir()), c.sizes); err != nil {
			return nil, err
		}
	}
	s := &servers{}
	s.Servers, err = rig.Start(ctx, c.dir, devstack.Options{
		PostgresSettings: append([]string{"max_wal_size=2GB", "checkpoint_timeout=15min", "wal_compression=on"}, c.postgres...),
	})
	if err != nil {
		return nil, err
	}
	if !filled {
		err = s.fill(ctx, c.sizes, progress)
	}
	web := ""
	if err == nil {
		web, err = s.Stack.WebURL(ctx)
	}
	if err == nil {
		s.server, err = startServer(ctx, web)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// note is the file that says what a database was filled with.
const note = "filled.json"

// filled reads what the database of a directory has; false: it is not filled, or there is none.
func filled(dir string) (found sizes, filled bool, err error) {
	if dir == "" {
		return found, false, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, note))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, "stack")); err == nil {
			return found, false, fmt.Errorf("the database in %s was not filled to the end; delete the directory", dir)
		}
		return found, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return found, false, fmt.Errorf("read what the database has: %w", err)
	}
	return found, true, nil
}

func (s *servers) fill(ctx context.Context, z sizes, progress io.Writer) error {
	began := time.Now()
	if err := fill(ctx, s.Stack.AdminURL, z, progress); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	var size int64
	if err := s.DB.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size); err != nil {
		return fmt.Errorf("read the size of the database: %w", err)
	}
	fmt.Fprintf(progress, "filled in %s; the database has %.1f GB\n", time.Since(began).Round(time.Second), float64(size)/1e9)
	text, err := json.Marshal(z)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, note), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note what the database has: %w", err)
	}
	return nil
}

// hasSpace refuses to fill a disk.
func hasSpace(dir string, z sizes) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	free := disk.Bavail * uint64(disk.Bsize)    //nolint:gosec // no block has a negative size
	if need := z.bytes(); free < uint64(need) { //nolint:gosec // a sum of sizes
		return fmt.Errorf("%s has %.0f GB free, and this takes about %.0f GB; name smaller sizes, or another disk by -dir", dir, float64(free)/1e9, float64(need)/1e9)
	}
	return nil
}

func (s *servers) stop(ctx context.Context) (err error) {
	if s.server != nil {
		err = s.server.Stop(ctx)
	}
	return errors.Join(err, s.Stop(ctx))
}

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
	db, err := dial.Connect(ctx, o.DatabaseURL, "farol-serve")
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
