// Package span has the spans of OpenTelemetry that are made of work on items. An item is one trace, and
// each attempt a span in it, with IDs that follow from what they are: so every process knows them, and
// nothing of them is stored.
//
// Below an attempt, a call is a span only while that of its context is recorded. Without tracing none
// is, and asking costs no memory.
package span

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Scope is what made the spans, as OpenTelemetry calls it.
const Scope = "github.com/farol-preservation/farol"

// TraceOf is the trace of an item. The IDs of items are those of one registry; the time makes them differ
// between registries.
func TraceOf(item int64, created time.Time) trace.TraceID {
	sum := hash([]byte("farol item"), item, created.UnixMicro())
	return trace.TraceID(sum[:16])
}

// of is the span of the attempt that has a claim.
func of(in trace.TraceID, token int64) trace.SpanID {
	sum := hash(in[:], token)
	return trace.SpanID(sum[:8])
}

func hash(text []byte, numbers ...int64) [sha256.Size]byte {
	for _, n := range numbers {
		text = binary.BigEndian.AppendUint64(text, uint64(n)) //nolint:gosec // only its bits count
	}
	return sha256.Sum256(text)
}

// An Attempt is what an attempt is known by.
type Attempt struct {
	Item, Token    int64
	Created, Began time.Time // the item; the attempt
	Stage          string
	Number         int // of the attempt
	Institution    string
	Size           int64
	Worker         string
}

type identity struct {
	trace trace.TraceID
	span  trace.SpanID
}

type identityKey struct{}

// Identity are the IDs that the span of an attempt which begins in a context must have.
func Identity(ctx context.Context) (trace.TraceID, trace.SpanID) {
	i, _ := ctx.Value(identityKey{}).(identity)
	return i.trace, i.span
}

// step is by how much the token of an item grows from an attempt to the next: by the end of one and the
// claim of the other.
const step = 2

// Begin begins the span of an attempt, in the trace of its item, with a link to the attempt before. That
// leads nowhere if a person has changed the item in between, which is a transition too.
func (a Attempt) Begin(ctx context.Context, t trace.Tracer) (context.Context, trace.Span) {
	in := TraceOf(a.Item, a.Created)
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(a.Began), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.Int64("farol.item", a.Item), attribute.String("farol.stage", a.Stage), attribute.Int("farol.attempt", a.Number),
		attribute.String("farol.institution", a.Institution), attribute.Int64("farol.size", a.Size), attribute.String("farol.worker", a.Worker),
	)}
	if a.Token > step {
		before := trace.NewSpanContext(trace.SpanContextConfig{TraceID: in, SpanID: of(in, a.Token-step), TraceFlags: trace.FlagsSampled, Remote: true})
		options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
	}
	return t.Start(context.WithValue(ctx, identityKey{}, identity{in, of(in, a.Token)}), "attempt "+a.Stage, options...)
}

// Ended is how an attempt ended, in the words of the ledger.
func Ended(s trace.Span, outcome, code string) {
	s.SetAttributes(attribute.String("farol.outcome", outcome))
	if code != "" {
		s.SetAttributes(attribute.String("farol.code", code))
		s.SetStatus(codes.Error, code)
	}
	s.End()
}

// Recorded reports whether a call with the context is to be a span. Ask before the attributes are made:
// they cost memory.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Begin begins a span of something that the work of ctx does itself.
func Begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return below(ctx, name, trace.SpanKindInternal)
}

// Call begins the span of a call of a service.
func Call(ctx context.Context, name string, about ...attribute.KeyValue) (context.Context, trace.Span) {
	return below(ctx, name, trace.SpanKindClient, about...)
}

func below(ctx context.Context, name string, kind trace.SpanKind, about ...attribute.KeyValue) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, above // which does nothing
	}
	return above.TracerProvider().Tracer(Scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(about...))
}

// End ends the span of a call. What the error says is for the log: it may name files.
func End(s trace.Span, failed bool) {
	if failed {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}
