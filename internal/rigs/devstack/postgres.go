package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// startPostgres makes the cluster if there is none, and runs it.
func (s *Stack) startPostgres(ctx context.Context) error {
	home, err := clusterHome(s.dir)
	if err != nil {
		return err
	}
	bin, err := findPostgres(s.options.PGBinDir, home.version())
	if err != nil {
		return err
	}
	if home.version() == "" {
		if err := s.initCluster(ctx, bin, home); err != nil {
			return fmt.Errorf("make the cluster: %w", err)
		}
	}
	if p, ok := home.postmaster(); ok {
		s.options.Log.WarnContext(ctx, "stopping a foreign PostgreSQL that runs on the data directory", "pid", p.pid)
		if err := home.evict(ctx); err != nil {
			return err
		}
	}
	run := func(ctx context.Context, addrs []string) (*child, error) {
		return s.runPostgres(ctx, bin, home, addrs[0])
	}
	addrs, c, err := s.onPorts(ctx, []string{"postgres"}, run)
	if err != nil {
		return err
	}
	s.keep(ctx, c, &server{
		again: func(ctx context.Context) (*child, error) {
			if c, err := s.adoptPostgres(ctx, home, addrs[0]); c != nil || err != nil {
				return c, err
			}
			return run(ctx, addrs)
		},
		evict: home.evict,
	})
	return s.roleURLs(addrs[0])
}

func (s *Stack) runPostgres(ctx context.Context, bin string, home cluster, addr string) (*child, error) {
	host, port, _ := strings.Cut(addr, ":") // as address makes it
	// No unix socket: its path could be too long, and TCP is enough.
	args := []string{
		"-D", home.data(), "-h", host, "-p", port, "-k", "",
		"-c", "max_connections=200", "-c", "logging_collector=off", "-c", "timezone=UTC", "-c", "log_timezone=UTC",
	}
	if s.options.Ephemeral {
		args = append(args, ephemeralSettings()...)
	}
	for _, setting := range s.options.PostgresSettings {
		args = append(args, "-c", setting)
	}
	if err := home.forgetStranger(); err != nil {
		return nil, err
	}
	c, err := s.launch(ctx, Postgres, "guard", guarded{
		Path: filepath.Join(bin, "postgres"), Args: args, Dir: home.path, UID: home.uid, GID: home.gid,
		Stop: syscall.SIGINT, GraceMS: 20_000, // "fast": sessions are cut, the data is in order
	})
	if err != nil {
		return nil, err
	}
	return c, c.awaitPostgres(ctx, home)
}

// adoptPostgres puts a server that someone else has started on the cluster
// under a guard, which stops it with the stack. It returns nil when there is
// none: then the cluster is free. One on another port would be of use to none of
// our clients, and is stopped.
func (s *Stack) adoptPostgres(ctx context.Context, home cluster, addr string) (*child, error) {
	p, ok := home.successor(ctx)
	if !ok {
		return nil, nil //nolint:nilnil // as said above
	}
	if address(p.port) != addr {
		s.options.Log.WarnContext(ctx, "stopping a foreign PostgreSQL that runs on the data directory, on another port", "pid", p.pid, "port", p.port)
		return nil, home.evict(ctx)
	}
	s.options.Log.WarnContext(ctx, "another process has restarted PostgreSQL; using it", "pid", p.pid)
	c, err := s.launch(ctx, Postgres, "guard", guarded{Adopt: true, Dir: home.path})
	if err != nil {
		return nil, err
	}
	return c, c.awaitPostgres(ctx, home)
}

// awaitPostgres returns when the server of the guard c takes connections. If it
// does not come to that, both are stopped.
func (c *child) awaitPostgres(ctx context.Context, home cluster) error {
	return c.awaitAnswer(ctx, func() bool {
		p, ok := home.postmaster()
		return ok && p.ready && strconv.Itoa(p.pid) == c.ready
	})
}

// ephemeralSettings trade all durability for speed. Without statistics the views look
// costly, and PostgreSQL would compile queries of ten rows to machine code.
func ephemeralSettings() []string {
	return []string{
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off",
		"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "autovacuum=off", "-c", "checkpoint_timeout=1h",
		"-c", "jit=off",
	}
}

// initCluster makes the cluster beside its final place and moves it there when
// it is complete, so that a crash in between leaves nothing to be mistaken for one.
func (s *Stack) initCluster(ctx context.Context, bin string, home cluster) error {
	fresh := filepath.Join(home.path, "new")
	password := filepath.Join(home.path, "password")
	for _, path := range []string{fresh, password} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if s.options.StandbyOf != "" {
		err := home.run(ctx, "", filepath.Join(bin, "pg_basebackup"), "-d", s.options.StandbyOf, "-D", fresh, "-R", "-c", "fast", "--no-sync")
		return errors.Join(err, os.Rename(fresh, home.data()))
	}
	verifier, err := scramVerifier(s.secrets.PostgresPassword)
	if err != nil {
		return err
	}
	if err := os.WriteFile(password, []byte(verifier), 0o600); err != nil {
		return err
	}
	defer os.Remove(password) //nolint:errcheck // the next start removes it too
	if err := home.own(password); err != nil {
		return err
	}
	args := []string{
		"-D", fresh, "-U", s.secrets.superuser(), "--pwfile", password, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-instructions",
	}
	fsync := "fsync=on"
	if s.options.Ephemeral {
		args, fsync = append(args, "--no-sync"), "fsync=off"
	}
	single := []string{"--single", "-D", fresh, "-c", fsync, "postgres"}
	if err := home.run(ctx, "", filepath.Join(bin, "initdb"), args...); err != nil {
		return err
	}
	setup, err := s.secrets.setup()
	if err != nil {
		return err
	}
	if err := home.run(ctx, setup, filepath.Join(bin, "postgres"), single...); err != nil {
		return err
	}
	return os.Rename(fresh, home.data())
}

// run runs a program of PostgreSQL's to its end as the cluster's user.
func (c cluster) run(ctx context.Context, stdin, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = c.path
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = asUser(c.uid, c.gid)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if ctx.Err() != nil { // os/exec tells of the signal, not of why it was sent
		return fmt.Errorf("run %s: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", path, err, strings.TrimSpace(output.String()))
	}
	return nil
}

// findPostgres returns the directory of initdb and postgres: dir if given,
// otherwise the newest installed, or the one of the major version that made
// the cluster. Distributions keep the programs out of the PATH, and what is in
// it may be a wrapper, so the PATH comes last.
func findPostgres(dir, major string) (string, error) {
	if dir != "" {
		if !executable(dir, "initdb") || !executable(dir, "postgres") {
			return "", fmt.Errorf("no initdb and postgres in %s", dir)
		}
		return dir, nil
	}
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin", "/usr/pgsql-*/bin",
	} {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		found = append(found, dirs...)
	}
	slices.SortStableFunc(found, func(a, b string) int { return majorOf(b) - majorOf(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, filepath.Dir(path))
		}
	}
	for _, d := range found {
		if executable(d, "initdb") && executable(d, "postgres") && (major == "" || majorOf(d) == 0 || strconv.Itoa(majorOf(d)) == major) {
			return d, nil
		}
	}
	if major != "" {
		return "", fmt.Errorf("the cluster was made by PostgreSQL %s, which is not installed: apt-get install postgresql-%[1]s | brew install postgresql@%[1]s, or use another data directory", major)
	}
	return "", errors.New("PostgreSQL is not installed: apt-get install postgresql | brew install postgresql@17")
}

// PostgresPrograms returns the directory of PostgreSQL's programs that a stack
// with this PGBinDir would make its cluster with.
func PostgresPrograms(pgBinDir string) (string, error) { return findPostgres(pgBinDir, "") }

// majorOf reads the version in a path such as /usr/lib/postgresql/15/bin; 0 if
// there is none.
func majorOf(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	n, _ := strconv.Atoi(name[strings.LastIndexAny(name, "@-")+1:])
	return n
}

func executable(dir, name string) bool {
	fi, err := os.Stat(filepath.Join(dir, name))
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}
