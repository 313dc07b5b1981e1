// Stackd runs the children of a test's [devstack.Stack], as "farol-dev internal"
// does for a real one. It is a program of its own so that the tests of one
// package neither wait for all the others to compile nor fail with them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/farol-preservation/farol/internal/devstack/servers"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] != "internal" {
		fmt.Fprintln(os.Stderr, "stackd: started by testenv as: stackd internal COMMAND")
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
