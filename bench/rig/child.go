package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// A Child is this program, started again as a part of what it measures. It ends with this
// program, however that ends.
type Child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartChild starts this program with a command line. The first line that it reads are its orders,
// as JSON: see [Orders].
func StartChild(orders any, args ...string) (*Child, error) {
	line, err := json.Marshal(orders)
	if err != nil {
		return nil, fmt.Errorf("write the orders: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &Child{cmd: exec.Command(self, args...)} //nolint:noctx // the end of its standard input stops it
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who know the order
	out, outErr := c.cmd.StdoutPipe()
	in, inErr := c.cmd.StdinPipe()
	if err := errors.Join(outErr, inErr); err != nil {
		return nil, fmt.Errorf("make the pipes: %w", err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	return c, c.Tell(string(line))
}

// Orders reads what a child is started with. What follows is in the reader.
func Orders(in io.Reader, orders any) (*bufio.Reader, error) {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, orders)
	}
	if err != nil {
		return nil, fmt.Errorf("read the orders: %w", err)
	}
	return lines, nil
}

// Tell writes a line to the child.
func (c *Child) Tell(line string) error {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return fmt.Errorf("tell a child: %w", err)
	}
	return nil
}

// Hear reads a line of the child.
func (c *Child) Hear() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return line, fmt.Errorf("a child has ended: %w", err)
	}
	return line, nil
}

// Pid is the number of the child's process.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Stop ends the child's input and waits for its end. When ctx ends, it is killed.
func (c *Child) Stop(ctx context.Context) error {
	err := c.in.Close()
	late := context.AfterFunc(ctx, func() { c.cmd.Process.Kill() }) //nolint:errcheck // it has ended by itself then
	defer late()
	if err := errors.Join(err, c.cmd.Wait()); err != nil {
		return fmt.Errorf("a child ended badly: %w", err)
	}
	return nil
}
