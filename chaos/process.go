package main

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

// A process is a farol process that is started again a second after it ends, as a
// service manager does, until it is stopped.
type process struct {
	name   string
	binary string
	args   []string
	env    map[string]string
	log    string
	// Its own ways to the servers, so that it alone can be harmed.
	postgres, redis *gate
	s3              *s3Proxy

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopping bool
	killed   int   // by us
	exits    []int // codes of the exits that nobody asked for
	idle     chan struct{}
}

const restartPause = time.Second

// start runs the process until stop.
func (p *process) start() error {
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

func (p *process) launch() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil //nolint:nilnil // there is to be none
	}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.binary, p.args...)
	cmd.Dir = filepath.Dir(p.log)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(cmd.SysProcAttr)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for k, v := range p.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd = cmd
	return cmd, nil
}

func (p *process) ended(err error) {
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

func (p *process) again() (*exec.Cmd, error) {
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

// signal sends a signal to the process alone, not to its children.
func (p *process) signal(s syscall.Signal) {
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

// stop ends the process and all that it has started, with no chance to clean up,
// once ten seconds of a chance are over.
func (p *process) stop() {
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
	for _, g := range []*gate{p.postgres, p.redis} {
		if g != nil {
			g.Close() //nolint:errcheck // it only listened
		}
	}
	if p.s3 != nil {
		p.s3.stop()
	}
}

// unexpected are the exits that nobody asked for.
func (p *process) unexpected() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.exits...)
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}
