package registry

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Export reads what is on record of an object or a file, as it was at one moment,
// row by row: an object may have more files than memory has space for. It reads one
// thing at a time.
type Export struct{ tx pgx.Tx }

// Export calls do with an export that ends with it.
func (r *Registry) Export(ctx context.Context, do func(*Export) error) error {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, r.db, snapshot, func(tx pgx.Tx) error { return do(&Export{tx}) })
}

// Object returns the object with an identifier, in whichever state, or ErrNotFound.
func (e *Export) Object(ctx context.Context, identifier string) (record.Object, error) {
	rows, _ := e.tx.Query(ctx, SelectObject+` WHERE o.identifier = $1`, identifier)
	o, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Object])
	if err != nil {
		return record.Object{}, fmt.Errorf("look up object %q: %w", identifier, Refusal(err))
	}
	return o, nil
}

// File returns the file with an identifier, in whichever state, or ErrNotFound.
func (e *Export) File(ctx context.Context, identifier string) (record.File, error) {
	rows, _ := e.tx.Query(ctx, SelectFile+` WHERE f.identifier = $1`, identifier)
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.File])
	if err != nil {
		return record.File{}, fmt.Errorf("look up file %q: %w", identifier, Refusal(err))
	}
	return f, nil
}

// LinkedEvent is an event and what it happened to: the identifier of a file or of
// an object.
type LinkedEvent struct {
	record.Event

	About string
}

// Files streams the files of an object in the order of their identifiers, deleted
// ones too.
func (e *Export) Files(ctx context.Context, object record.Object) iter.Seq2[record.File, error] {
	return streamed[record.File](ctx, e.tx, "export", SelectFile+` WHERE f.intellectual_object_id = $1 ORDER BY f.identifier`, object.ID)
}

// ObjectEvents streams the events of an object itself, and then those of its files
// in their order (premis_events_object, premis_events_file).
func (e *Export) ObjectEvents(ctx context.Context, object record.Object) iter.Seq2[LinkedEvent, error] {
	own := streamed[LinkedEvent](ctx, e.tx, "export", `SELECT `+EventColumns+`, $2::text AS about FROM premis_events e
		WHERE e.intellectual_object_id = $1 AND e.generic_file_id IS NULL ORDER BY e.date_time, e.id`, object.ID, object.Identifier)
	files := streamed[LinkedEvent](ctx, e.tx, "export", `SELECT `+EventColumns+`, f.identifier AS about
		FROM generic_files f JOIN premis_events e ON e.generic_file_id = f.id
		WHERE f.intellectual_object_id = $1 ORDER BY f.identifier, e.date_time, e.id`, object.ID)
	return func(yield func(LinkedEvent, error) bool) {
		for _, events := range []iter.Seq2[LinkedEvent, error]{own, files} {
			for event, err := range events {
				if !yield(event, err) || err != nil {
					return
				}
			}
		}
	}
}

// FileEvents streams the events of a file (premis_events_file).
func (e *Export) FileEvents(ctx context.Context, file record.File) iter.Seq2[LinkedEvent, error] {
	return streamed[LinkedEvent](ctx, e.tx, "export", `SELECT `+EventColumns+`, $2::text AS about FROM premis_events e
		WHERE e.generic_file_id = $1 ORDER BY e.date_time, e.id`, file.ID, file.Identifier)
}

// streamed reads the rows of a statement one by one.
func streamed[T any](ctx context.Context, db RowQuerier, verb, sql string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			yield(none, fmt.Errorf("%s: %w", verb, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			row, err := pgx.RowToStructByName[T](rows)
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, fmt.Errorf("%s: %w", verb, err))
		}
	}
}
