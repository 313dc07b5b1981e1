// Stackd runs the servers of tests. "stackd run COMMAND" starts one of each kind,
// which all tests that COMMAND starts share. "stackd internal" is a child of a
// [devstack.Stack], and "stackd identify" one of a format identifier, as "farol-dev
// internal" is of a real one. It is a program of its own
// so that the tests of one package neither wait for all the others to compile nor
// fail with them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farol-preservation/farol/dev/servers"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "run" {
		os.Exit(run(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == "identify" {
		if err := format.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "stackd identify:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 3 || os.Args[1] != "internal" {
		fmt.Fprintln(os.Stderr, "usage: stackd run COMMAND [ARG...]")
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := servers.Run(ctx, os.Args[2], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "stackd %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}

func run(command []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := testenv.Share(ctx, command)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stackd:", err)
		code = max(code, 1)
	}
	return code
}
