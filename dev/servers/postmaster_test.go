package servers_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// pgCtl runs pg_ctl on the stack's cluster, as the user whose it is.
func pgCtl(t *testing.T, dir string, args ...string) error {
	t.Helper()
	data := must.Get(filepath.EvalSymlinks(filepath.Join(dir, "postgres", "data")))(t)
	cmd := exec.CommandContext(t.Context(), pgCtlPath(t), append(args, "-D", data, "-l", filepath.Join(data, "pg_ctl.log"))...)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		fi := must.Get(os.Stat(data))(t)
		owner, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("the cluster has no owner")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

func pgCtlPath(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pg_ctl", "/opt/homebrew/opt/postgresql@*/bin/pg_ctl", "/usr/local/opt/postgresql@*/bin/pg_ctl"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	path := must.Get(exec.LookPath("pg_ctl"))(t)
	return path
}

// Anyone who restarts PostgreSQL by its own means gets a stack that works, and no
// orphan at its end, not even when the parent is killed.
func TestPostgresRestartedByAnotherProcessIsPartOfTheStack(t *testing.T) {
	t.Parallel()
	exe := must.Get(os.Executable())(t)
	for name, end := range map[string]func(*process) error{
		"stopped": func(p *process) error { return errors.Join(p.stdin.Close(), p.Wait()) },
		"killed": func(p *process) error {
			err := p.Process.Kill()
			p.Wait() //nolint:errcheck // it was killed
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(tempDir(t), "data")
			p := startParent(t, exe, dir, nil)
			leave(t, &p.stack)
			for range 2 {
				before := guards(t, dir)
				must.Do(t, pgCtl(t, dir, "restart"))
				testenv.Eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, &p.stack) })
				adopted(t, dir, before)
			}
			if err := end(p); err != nil {
				t.Error(err)
			}
			awaitEmpty(t, dir)
			if got := query(t, start(t, devstack.Options{Dir: dir}), "SELECT v FROM kept"); got != "in postgres" {
				t.Errorf("the database has %q", got)
			}
		})
	}
}

// guards are the processes that look after PostgreSQL and Redis.
func guards(t *testing.T, dir string) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	for pid, command := range processesIn(t, dir) {
		if strings.Contains(command, "internal guard") {
			found[pid] = true
		}
	}
	return found
}

// adopted waits until a guard has taken the place of one of those before, or none has
// ended for 50 times as long as a guard takes to notice the end of its server: one that
// was only starting when the server before was restarted looks after the new one. On a
// slow machine the server of the other guard may have been restarted, too.
func adopted(t *testing.T, dir string, before map[int]bool) {
	t.Helper()
	var now map[int]bool
	defer func() {
		if t.Failed() {
			t.Logf("guards before %v, now %v", before, now)
		}
	}()
	changed := time.Now()
	testenv.Eventually(t, "nobody looks after PostgreSQL", func() bool {
		found := guards(t, dir)
		if !maps.Equal(found, now) {
			now, changed = found, time.Now()
		}
		return len(now) == len(before) && (!maps.Equal(now, before) || time.Since(changed) > 5*time.Second)
	})
}

// When another process's server ends, the stack starts its own again.
func TestStackTakesOverFromAForeignPostgres(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}})
	must.Do(t, pgCtl(t, dir, "restart"))
	harm(t, dir, syscall.SIGKILL, postgresWords)
	testenv.Eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, s) })

	// One where no client looks for it is of no use.
	pgCtl(t, dir, "restart", "-o", "-h 127.0.0.1 -p "+freePort(t)+" -k /tmp") //nolint:errcheck // it may see its server stopped
	testenv.Eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, s) })
	notDead(t, s)
	stop(t, s)
	awaitEmpty(t, dir)
}

// Anyone who shuts PostgreSQL down in order may be about to start it, and finds it
// running if we are faster.
func TestPostgresShutDownInOrderIsLeftToItsSuccessorForAMoment(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Only: []devstack.Service{devstack.Postgres}})
	began := time.Now()
	harm(t, dir, syscall.SIGINT, postgresWords)
	testenv.Eventually(t, "PostgreSQL does not come back", func() bool { return databaseAnswers(t, s) })
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was back after %s", took)
	}
}

// Stop may come after another's restart and before a guard has adopted
// the new server, which here has no program.
func TestStopStopsAPostgresThatNobodyLooksAfter(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(programDir(t), "exe")
	copySelf(t, exe)
	dir := filepath.Join(tempDir(t), "data")
	s := start(t, devstack.Options{Dir: dir, Executable: exe, Only: []devstack.Service{devstack.Postgres}})
	must.Do(t, os.Remove(exe))
	must.Do(t, pgCtl(t, dir, "restart"))
	stop(t, s)
	awaitEmpty(t, dir)
}

// The parent may die before its guard has said READY to it.
func TestGuardWithoutAParentStopsWhatItAdopts(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}}
	stop(t, start(t, o))
	must.Do(t, pgCtl(t, o.Dir, "start", "-o", "-h 127.0.0.1 -p "+freePort(t)+" -k /tmp"))
	exe := must.Get(os.Executable())(t)
	broken, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	guard := exec.CommandContext(t.Context(), exe, "internal", "guard")
	guard.Stdin = strings.NewReader(fmt.Sprintf("{\"adopt\":true,\"dir\":%q}\n", filepath.Join(o.Dir, "postgres")))
	guard.Stdout = out
	must.Do(t, errors.Join(broken.Close(), guard.Start(), out.Close()))
	guard.Wait() //nolint:errcheck // it tells that nobody listens
	if pid := postmasterOf(t, o.Dir); pid != 0 {
		t.Errorf("process %d still serves", pid)
	}
	stop(t, start(t, o)) // which would stop it if it did
	awaitEmpty(t, o.Dir)
}

// A PostgreSQL that was left on the data, by whomever, must not keep the stack
// from coming up.
func TestStartStopsAForeignPostgres(t *testing.T) {
	t.Parallel()
	o := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}}
	stop(t, start(t, o))
	must.Do(t, pgCtl(t, o.Dir, "start", "-o", "-h 127.0.0.1 -p "+freePort(t)+" -k /tmp"))
	foreign := postmasterOf(t, o.Dir)
	s := start(t, o)
	query(t, s, "SELECT 'x'")
	if now := postmasterOf(t, o.Dir); foreign == 0 || now == foreign {
		t.Errorf("process %d serves the stack, %d was started by another process", now, foreign)
	}
	stop(t, s)
	awaitEmpty(t, o.Dir)
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	must.Do(t, errors.Join(err, l.Close()))
	return port
}

// The number in a pid file that a crash has left may by now be that of another
// cluster's server, which is not ours to stop.
func TestPostgresOfAnotherClusterIsSpared(t *testing.T) {
	t.Parallel()
	other := devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}, Ephemeral: true}
	o := other
	o.Dir = filepath.Join(tempDir(t), "data")
	stop(t, start(t, o))
	bystander := start(t, other)
	pidFile := filepath.Join("postgres", "data", "postmaster.pid")
	b := must.Get(os.ReadFile(filepath.Join(other.Dir, pidFile)))(t)
	must.Do(t, os.WriteFile(filepath.Join(o.Dir, pidFile), b, 0o644))
	query(t, start(t, o), "SELECT 'x'")
	query(t, bystander, "SELECT 'x'")
	select {
	case err := <-bystander.Died():
		t.Errorf("the other cluster's server ended: %v", err)
	default:
	}
}
