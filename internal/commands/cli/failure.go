// Package cli is what all commands of the command line share. What comes in are arguments,
// errors and values; what goes out are refusals, questions, tables, JSON and exit codes.
package cli

import (
	"context"
	"errors"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/registry"
)

// What the process exits with.
const (
	ExitOK     = 0
	ExitFailed = 1 // failure or negative result
	ExitUsage  = 2 // usage error or unknown result
)

// Failure is an error that ends the process, with the exit code and the next step
// for the person. Without Err nothing is printed.
type Failure struct {
	Code int
	Err  error
	Next string
}

// Error is the text of Err.
func (f Failure) Error() string {
	if f.Err == nil {
		return "the answer is no"
	}
	return f.Err.Error()
}

// Unwrap returns Err.
func (f Failure) Unwrap() error { return f.Err }

// Usage is the failure of a wrong command line.
func Usage(err error, next string) Failure { return Failure{ExitUsage, err, next} }

// Run runs a command line, reports its error and returns the exit code.
func Run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	parsed := false // a wrong command line is recognized by nothing else
	before := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		parsed = true
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	f := FailureOf(err)
	if !parsed {
		f = Usage(err, "see `"+cmd.CommandPath()+" --help`")
	}
	f.report(stderr, wantsJSON(cmd, args))
	return f.Code
}

// lacks is in the text of an error of the database: it has no such table, column or function.
var lacks = regexp.MustCompile(`\(SQLSTATE (42P01|42703|42883)\)`)

// FailureOf returns the exit code and the next step for an error.
func FailureOf(err error) Failure {
	var f Failure
	known := errors.As(err, &f)
	if !known {
		f = Failure{Code: ExitFailed, Err: err}
	}
	switch {
	case errors.Is(err, context.Canceled): // only a signal does that
		f.Err, f.Next = errors.New("interrupted"), ""
	case known && f.Next != "":
	case lacks.MatchString(f.Error()):
		f.Next = "the database lacks what this version needs: run `farol migrate up`"
	case known:
	case errors.Is(err, registry.ErrNotFound):
		f.Next = "`farol item list` lists the items"
	case errors.Is(err, context.DeadlineExceeded):
		f.Next = "check that the server answers, and try again"
	}
	return f
}
