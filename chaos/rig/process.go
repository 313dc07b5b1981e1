package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A Process is a program that is started again a second after it ends, as a service
// manager does, until it is stopped. Its fields may be changed before Start.
type Process struct {
	Name   string
	Binary string
	Args   []string
	Env    map[string]string // all of its environment but PATH
	Log    string            // path; the process runs in its directory

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopping bool
	killed   int
	exits    []int
	idle     chan struct{}
}

const restartPause = time.Second

// Start runs the process until Stop. It fails if the program cannot be started.
func (p *Process) Start() error {
	p.idle = make(chan struct{})
	cmd, err := p.launch()
	if err != nil {
		close(p.idle)
		return err
	}
	go func() {
		defer close(p.idle)
		for cmd != nil {
			p.ended(cmd.Wait())
			if cmd, err = p.again(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	return nil
}

func (p *Process) launch() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil //nolint:nilnil // there is to be none
	}
	log, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.Binary, p.Args...)
	cmd.Dir = filepath.Dir(p.Log)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(cmd.SysProcAttr)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd = cmd
	return cmd, nil
}

func (p *Process) ended(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var exit *exec.ExitError
	switch {
	case p.stopping:
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		p.exits = append(p.exits, exit.ExitCode())
	case err == nil:
		p.exits = append(p.exits, 0)
	}
}

func (p *Process) again() (*exec.Cmd, error) {
	for range 20 { // so that stop need not wait for a second
		p.mu.Lock()
		stopping := p.stopping
		p.mu.Unlock()
		if stopping {
			return nil, nil //nolint:nilnil // there is to be none
		}
		time.Sleep(restartPause / 20)
	}
	return p.launch()
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
// once ten seconds of a chance are over.
func (p *Process) Stop() {
	p.mu.Lock()
	p.stopping = true
	cmd := p.cmd
	p.mu.Unlock()
	if cmd != nil {
		cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		select {
		case <-p.idle:
		case <-time.After(10 * time.Second):
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // its group may be empty
		<-p.idle
	}
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
