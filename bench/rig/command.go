package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Program is one of those that measure. It returns [flag.ErrHelp] for a wrong command line, when
// it has said what is wrong.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs the program that the first argument names, until it ends or is interrupted. The exit
// code is 2 for a wrong command line, and 1 for any other error.
func Main(programs map[string]Program) {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: bench %s [FLAG...]\n", strings.Join(slices.Sorted(maps.Keys(programs)), "|"))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := programs[os.Args[1]](ctx, os.Args[2:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// Words are those of a list that is separated by commas or spaces.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Numbers are those of such a list, each above zero.
func Numbers(list string) (out []int, err error) {
	for _, word := range Words(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above zero", word)
		}
		out = append(out, n)
	}
	return out, nil
}
