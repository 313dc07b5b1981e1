package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// sharedVar names the file that describes the servers of the whole run.
const sharedVar = "FAROL_TEST_SERVERS"

// shared is what [Share] tells the test processes.
type shared struct {
	Stackd  string // path of the program
	Servers devstack.Stack
	Pooler  devstack.Stack // which stands before the PostgreSQL of the other
}

// Share starts one server of each kind and builds the farol program, runs command
// with them, and returns its exit code once all of them are gone. It must be called
// by stackd, which the servers run in.
func Share(ctx context.Context, command []string) (code int, err error) {
	dir, alive, err := scratchDir()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), alive.Close()) }()
	var binary string
	var servers, pooler *devstack.Stack
	var building errgroup.Group
	building.Go(func() error {
		if _, err := build(ctx, "dev", "./farol-dev", "farol-dev", false); err != nil { // next to farol, which starts it
			return err
		}
		var err error
		binary, err = build(ctx, ".", "./cmd/farol", "farol", false)
		return err
	})
	exe, err := os.Executable()
	if err == nil {
		servers, pooler, err = startAll(ctx, dir, exe)
	}
	defer func() { err = errors.Join(err, stopAll(context.WithoutCancel(ctx), pooler, servers)) }()
	if err = errors.Join(err, building.Wait()); err != nil {
		return 1, err
	}
	list, err := json.Marshal(map[string]any{"Stackd": exe, "Servers": servers, "Pooler": pooler})
	if err != nil {
		return 1, err
	}
	file := filepath.Join(dir, "servers.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), sharedVar+"="+file)
	if os.Getenv("FAROL_TEST_BINARY") == "" {
		cmd.Env = append(cmd.Env, "FAROL_TEST_BINARY="+binary)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Minute
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // it has said why
	}
	return 0, err
}

// startAll starts the servers, with the database that others are copied from.
func startAll(ctx context.Context, dir, exe string) (servers, pooler *devstack.Stack, err error) {
	o := options(filepath.Join(dir, "servers"), exe)
	o.Only = []devstack.Service{devstack.Postgres, devstack.Redis, devstack.S3, devstack.NSQ, devstack.Clamd}
	if servers, err = devstack.Start(ctx, o); err != nil {
		return nil, nil, err
	}
	admin, err := pgx.Connect(ctx, servers.AdminURL)
	if err == nil {
		err = errors.Join(makeTemplate(ctx, admin, servers.AdminURL), admin.Close(ctx))
	}
	if err == nil {
		o = options(filepath.Join(dir, "pooler"), exe)
		o.Only, o.PoolerOf = []devstack.Service{devstack.PgBouncer}, servers.AdminURL
		pooler, err = devstack.Start(ctx, o)
	}
	return servers, pooler, err
}

func stopAll(ctx context.Context, stacks ...*devstack.Stack) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, s := range stacks {
		if s != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}
	return err
}

// join has this process use the servers of [Share], if there are any.
func (e *environment) join() error {
	file := os.Getenv(sharedVar)
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("find the servers of this run: %w", err)
	}
	s := &shared{}
	if err := json.Unmarshal(text, s); err != nil {
		return fmt.Errorf("find the servers of this run in %s: %w", file, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stackd, e.template.made = s.Stackd, true
	for _, service := range []devstack.Service{devstack.Postgres, devstack.Redis, devstack.S3, devstack.NSQ, devstack.Clamd, devstack.PgBouncer} {
		stack := &s.Servers
		if service == devstack.PgBouncer {
			stack = &s.Pooler
		}
		e.stacks[service] = &lazyStack{start: func() (*devstack.Stack, error) { return stack, nil }, shared: true}
	}
	return nil
}
