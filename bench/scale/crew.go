package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// crew are the workers of a run, each a process of its own.
type crew struct{ members []*member }

type member struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// startCrew starts workers one after the other, as a deployment does: each connects ten times, and
// a database that is asked for hundreds of connections at once answers none in time. The workers
// end with this program, however it ends.
func startCrew(n int, o orders) (*crew, error) {
	first, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write the orders: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &crew{}
	for range n {
		m, err := startMember(self, append(first, '\n'))
		if err != nil {
			return c, fmt.Errorf("start a worker: %w", err)
		}
		c.members = append(c.members, m)
		if _, err := m.counts(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func startMember(program string, orders []byte) (*member, error) {
	m := &member{cmd: exec.Command(program, workerCommand)} //nolint:noctx // the end of its standard input stops it
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who know the order
	out, outErr := m.cmd.StdoutPipe()
	in, inErr := m.cmd.StdinPipe()
	if err := errors.Join(outErr, inErr); err != nil {
		return nil, err
	}
	m.stdin, m.out = in, bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	_, err := in.Write(orders)
	return m, err
}

// counts adds up what the workers have done so far.
func (c *crew) counts() (sum counts, err error) {
	for _, m := range c.members {
		one, err := m.counts()
		if err != nil {
			return sum, err
		}
		sum.add(one)
	}
	return sum, nil
}

// counts is what a worker has done so far, once it is ready. It answers at once, or has ended.
func (m *member) counts() (c counts, err error) {
	if _, err := m.stdin.Write([]byte("\n")); err != nil {
		return c, fmt.Errorf("ask a worker: %w", err)
	}
	line, err := m.out.ReadBytes('\n')
	if err != nil {
		return c, fmt.Errorf("a worker has ended: %w", err)
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return c, fmt.Errorf("read a worker's answer: %w", err)
	}
	return c, nil
}

// stopTime is how long a worker may take to give back its items.
const stopTime = 30 * time.Second

// stop stops all workers and waits for them.
func (c *crew) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	errs := make([]error, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() { errs[i] = m.stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (m *member) stop(ctx context.Context) error {
	err := m.stdin.Close()
	late := context.AfterFunc(ctx, func() { m.cmd.Process.Kill() }) //nolint:errcheck // it has ended by itself then
	defer late()
	if err := errors.Join(err, m.cmd.Wait()); err != nil {
		return fmt.Errorf("a worker ended badly: %w", err)
	}
	return nil
}
