package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/retry"
)

// A Process is a program that is started again a second after it ends, as a service
// manager does, until it is stopped. Its fields may be changed before Start.
type Process struct {
	Name   string
	Binary string
	Args   []string
	Env    map[string]string // all of its environment
	Log    string            // path
	Dir    string            // where it runs; "": in the directory of the log
	Dies   bool              // the kernel kills it when this program dies, where it can
	Ended  func(error)       // is told that it ended by itself, or did not start again; nil: nobody is

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // it ends with Stop
	end    context.CancelFunc
	cmd    *exec.Cmd
	in     io.Closer // of a child of Farol's, which ends with it
	killed int
	exits  []int
	idle   chan struct{}
}

const (
	restartPause = time.Second
	stopPatience = 15 * time.Second
)

// Start runs the process until Stop. It fails if the program cannot be started.
func (p *Process) Start() error {
	p.idle = make(chan struct{})
	p.ctx, p.end = context.WithCancel(context.Background())
	cmd, err := p.launch()
	if err != nil {
		close(p.idle)
		return err
	}
	go func() {
		defer close(p.idle)
		for err := cmd.Wait(); ; {
			p.ended(err)
			if !retry.Pause(p.ctx, restartPause) {
				return
			}
			if cmd, err = p.launch(); err == nil {
				err = cmd.Wait()
			}
		}
	}()
	return nil
}

func (p *Process) launch() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil, p.ctx.Err()
	}
	log, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.Binary, p.Args...)
	if cmd.Dir = p.Dir; cmd.Dir == "" {
		cmd.Dir = filepath.Dir(p.Log)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who know the order
	if p.Dies {
		dieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	}
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.in = cmd, in
	return cmd, nil
}

func (p *Process) ended(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		p.exits = append(p.exits, exit.ExitCode())
	case err == nil:
		p.exits = append(p.exits, 0)
	}
	if p.Ended != nil {
		p.Ended(err)
	}
}

// Signal sends a signal to the process alone, not to its children.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if s == syscall.SIGKILL {
		p.killed++
	}
	p.cmd.Process.Signal(s) //nolint:errcheck // it may have ended
}

// Stop ends the process and all that it has started, with no chance to clean up,
// once the seconds of a chance are over.
func (p *Process) Stop() {
	if p.end == nil {
		return
	}
	p.end()
	p.mu.Lock()
	cmd, in := p.cmd, p.in
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	in.Close()                          //nolint:errcheck // it may have ended
	cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	select {
	case <-p.idle:
	case <-time.After(stopPatience):
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // its group may be empty
	<-p.idle
}

// Unexpected are the codes of the exits that nobody asked for.
func (p *Process) Unexpected() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.exits...)
}

// Killed is how often it was sent SIGKILL.
func (p *Process) Killed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// Pid is the ID of the process that was started last, 0 if there is none.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}
