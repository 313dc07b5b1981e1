package registry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Collect reads the rows of a statement, and repeats it after a deadlock. The list is
// never nil. verb says what is done, for errors.
func Collect[T any](ctx context.Context, db Database, verb, sql string, args ...any) ([]T, error) {
	return ask(ctx, db, verb, sql, args, func(rows pgx.Rows) ([]T, error) { return pgx.CollectRows(rows, pgx.RowToStructByName[T]) })
}

// One is [Collect] for a statement that returns one row. Without a row it is ErrNotFound.
func One[T any](ctx context.Context, db Database, verb, sql string, args ...any) (T, error) {
	return ask(ctx, db, verb, sql, args, func(rows pgx.Rows) (T, error) { return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T]) })
}

// Value is [One] for a row with one column.
func Value[T any](ctx context.Context, db Database, verb, sql string, args ...any) (T, error) {
	return ask(ctx, db, verb, sql, args, func(rows pgx.Rows) (T, error) { return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T]) })
}

func ask[T any](ctx context.Context, db Database, verb, sql string, args []any, read func(pgx.Rows) (T, error)) (T, error) {
	var found T
	err := db.again(ctx, func() (err error) {
		rows, _ := db.Query(ctx, sql, args...)
		found, err = read(rows)
		return err
	})
	if err != nil {
		return found, fmt.Errorf("%s: %w", verb, Refusal(err))
	}
	return found, nil
}

// Do runs a statement that returns nothing.
func Do(ctx context.Context, db Database, verb, sql string, args ...any) error {
	if _, err := db.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", verb, Refusal(err))
	}
	return nil
}
