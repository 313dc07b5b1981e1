package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/registry"
)

// What the process exits with.
const (
	exitOK     = 0
	exitFailed = 1 // it went wrong, or the answer is no
	exitUsage  = 2 // it was called in a wrong way, or could not find out
)

// failure is an error that ends the process, with the code to exit with and
// what the person should do next. Without err nothing is printed.
type failure struct {
	code int
	err  error
	next string
}

func (f failure) Error() string {
	if f.err == nil {
		return "the answer is no"
	}
	return f.err.Error()
}

func (f failure) Unwrap() error { return f.err }

// usage is the failure of who called a command in a wrong way.
func usage(err error, next string) failure { return failure{exitUsage, err, next} }

const nextOfOldSchema = "docs/upgrading.md says how to dump its data and load them into a new database"

// asFailure finds out what can be said of an error to a person.
func asFailure(err error) failure {
	var f failure
	var pg *pgconn.PgError
	known := errors.As(err, &f)
	if !known {
		f = failure{code: exitFailed, err: err}
	}
	switch {
	case errors.Is(err, context.Canceled): // only a signal does that
		f.err, f.next = errors.New("interrupted"), ""
	case known:
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703" || pg.Code == "42883"): // no such table, column, function
		f.next = "the database lacks what this version needs: run `farol migrate up`"
	case errors.Is(err, migrations.ErrOldSchema):
		f.next = nextOfOldSchema
	case errors.Is(err, registry.ErrNotFound):
		f.next = "`farol item list` shows the items there are"
	case errors.Is(err, context.DeadlineExceeded):
		f.next = "see that the server answers, and try again"
	}
	return f
}

// orderly is what a service that runs until it is told to end comes to: that it
// was told so while it was still starting is no failure.
func orderly(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
