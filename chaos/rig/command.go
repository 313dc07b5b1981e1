package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Main runs a command until it ends or is interrupted, and exits: 0 if all was right, 1 if
// something was not, 2 if that is not known.
func Main(name string, args []string, run func(ctx context.Context, args []string) (ok bool, err error)) {
	// The second Ctrl-C ends us at once; the servers and workers end with us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ok, err := run(ctx, args)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	default:
		os.Exit(0)
	}
}

// Choose returns those of a list that only names, separated by commas. An unknown name is
// an error.
func Choose[T any](list []T, only string, name func(T) string) (chosen []T, err error) {
	for wanted := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(list, func(e T) bool { return name(e) == strings.TrimSpace(wanted) })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q; --list lists all", wanted)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// TempDir makes a directory for data, which PostgreSQL's user can pass through if we are root.
func TempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	return dir, nil
}
