package dial

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/farol-preservation/farol/span"
)

// spans has each statement be a span where the work of its context is traced. pgx hands the context that
// a start returns to the end, which ends the span in it.
type spans struct{}

func (spans) begin(ctx context.Context, name string) context.Context {
	ctx, call := span.Call(ctx, name, attribute.String("db.system.name", "postgresql"), attribute.String("db.query.summary", name))
	return context.WithValue(ctx, statementKey{}, call)
}

func (spans) end(ctx context.Context, err error) {
	if call, ok := ctx.Value(statementKey{}).(trace.Span); ok {
		span.End(call, err != nil)
	}
}

type statementKey struct{}

// nameOf is the name that a statement begins with, as in "-- settle: ends", or its first words. It has
// neither values nor names of files: these are arguments.
func nameOf(sql string) string {
	if name, ok := strings.CutPrefix(strings.TrimSpace(sql), "-- "); ok {
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	words := strings.Fields(sql[:min(len(sql), 200)])
	return strings.Join(words[:min(len(words), 3)], " ")
}

// TraceQueryStart begins the span of a statement.
func (s spans) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !span.Recorded(ctx) {
		return ctx
	}
	return s.begin(ctx, nameOf(data.SQL))
}

// TraceQueryEnd ends it.
func (s spans) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.end(ctx, data.Err)
}

// TraceBatchStart begins the span of several statements.
func (s spans) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if !span.Recorded(ctx) {
		return ctx
	}
	name := "batch"
	for _, q := range data.Batch.QueuedQueries {
		name += " " + nameOf(q.SQL)
		if len(name) > 100 {
			break
		}
	}
	return s.begin(ctx, name)
}

// TraceBatchQuery does nothing.
func (spans) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends it.
func (s spans) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	s.end(ctx, data.Err)
}

// TraceCopyFromStart begins the span of rows that are copied into a table.
func (s spans) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	if !span.Recorded(ctx) {
		return ctx
	}
	return s.begin(ctx, "COPY "+strings.Join(data.TableName, "."))
}

// TraceCopyFromEnd ends it.
func (s spans) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	s.end(ctx, data.Err)
}
