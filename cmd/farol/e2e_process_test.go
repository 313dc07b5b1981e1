package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// process is a farol process in a group of its own, with its output in a file:
// its children may hold that open for longer than it lives.
type process struct {
	*exec.Cmd
	t     testing.TB
	log   string
	ended chan struct{} // closed when err is set
	err   error
}

func startProcess(t testing.TB, binary, dir string, settings map[string]string, args ...string) *process {
	t.Helper()
	log := must.Get(os.CreateTemp(t.TempDir(), "farol-*.log"))(t)
	defer log.Close() //nolint:errcheck // the child writes to it, not we
	// Not CommandContext: how the process ends is what is tested.
	p := &process{Cmd: exec.Command(binary, args...), t: t, log: log.Name(), ended: make(chan struct{})}
	p.Dir, p.Stdout, p.Stderr = dir, log, log
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "PG_BINDIR=" + os.Getenv("PG_BINDIR"), "TMPDIR=" + os.TempDir(), "GORACE=" + os.Getenv("GORACE")}
	for name, value := range settings {
		p.Env = append(p.Env, name+"="+value)
	}
	must.Do(t, p.Start())
	go func() {
		p.err = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if said := p.said(); t.Failed() || strings.Contains(said, "DATA RACE") {
			t.Errorf("%s %s said:\n%s", filepath.Base(binary), strings.Join(args, " "), said)
		}
	})
	return p
}

// kill ends the process group with no chance to clean up.
func (p *process) kill() {
	p.t.Helper()
	select {
	case <-p.ended: // its number may be another's by now
		return
	default:
	}
	if err := syscall.Kill(-p.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it has ended a moment ago
		p.t.Errorf("kill %d: %v", p.Process.Pid, err)
	}
	<-p.ended
}

// eventually waits for what the process, while it runs, should bring about.
func (p *process) eventually(what string, cond func() bool) {
	p.t.Helper()
	testenv.Eventually(p.t, what, func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended before %s: %v", strings.Join(p.Args, " "), what, p.err)
		default:
		}
		return cond()
	})
}

// wait waits for the process to end by itself.
func (p *process) wait() error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		p.t.Fatalf("%s does not end:\n%s", strings.Join(p.Args, " "), p.said())
		return nil
	}
}

func (p *process) said() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}
