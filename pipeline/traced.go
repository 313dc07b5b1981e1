package pipeline

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/span"
)

// traced is the span of an attempt; nil: attempts are not traced. One whose lease is lost never ends
// here: who ends the attempt ends its span.
type traced struct{ span trace.Span }

// trace begins the span of an attempt.
func (r *Runner) trace(ctx context.Context, item claim.Item) (context.Context, *traced) {
	if r.options.Tracer == nil {
		return ctx, nil
	}
	ctx, s := span.Attempt{
		Item: item.ID, Token: item.Token, Created: item.CreatedAt, Began: time.Now(), Stage: item.Step(), Number: item.Attempt,
		Institution: item.Institution, Size: item.Size, Worker: r.engine.Worker(),
	}.Begin(ctx, r.options.Tracer)
	return ctx, &traced{s}
}

// ids are for the log.
func (t *traced) ids() []any {
	if t == nil {
		return nil
	}
	c := t.span.SpanContext()
	return []any{"trace_id", c.TraceID().String(), "span_id", c.SpanID().String()}
}

// id is that of the trace, if the attempt is in it.
func (t *traced) id() string {
	if t == nil || !t.span.SpanContext().IsSampled() {
		return ""
	}
	return t.span.SpanContext().TraceID().String()
}

// ended ends the span as the attempt ended.
func (t *traced) ended(end claim.End) {
	if t != nil {
		span.Ended(t.span, end.Outcome, end.Code)
	}
}

// runTraced runs a stage, as a span below its attempt.
func runTraced(ctx context.Context, step Step, w *Work) (err error) {
	ctx, stage := span.Begin(ctx, step.Name())
	defer func() { span.End(stage, err != nil) }()
	return step.Run.Run(ctx, w)
}
