// Package tracing sends the spans of a process to a collector.
package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/span"
)

// flushTime is what the last spans have at the end of a process.
const flushTime = 3 * time.Second

// Tracing is what makes and sends spans; nil: nothing does.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	to       *exporter
}

// Start begins to send spans, if the settings have a collector. A collector that does not answer keeps
// nothing waiting: what there is no space for is dropped.
func Start(ctx context.Context, c settings.Traces, command, version string, log *slog.Logger) (*Tracing, error) {
	if !c.On() {
		return nil, nil //nolint:nilnil // it is the usual case
	}
	to, err := newExporter(c, log)
	if err != nil {
		return nil, err
	}
	chosen, err := samplerOf(c)
	if err != nil {
		return nil, err
	}
	about, err := c.Attributes()
	if err != nil {
		return nil, err
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", "farol-"+command), attribute.String("service.version", version)}
	for _, pair := range about {
		attributes = append(attributes, attribute.String(pair[0], pair[1])) // the last of a name counts
	}
	if c.Service != "" {
		attributes = append(attributes, attribute.String("service.name", c.Service))
	}
	process, err := resource.New(ctx, resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithAttributes(attributes...))
	if err != nil {
		log.WarnContext(ctx, "cannot describe this process in traces; what is known is sent", "err", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { to.warn(context.WithoutCancel(ctx), 0, err) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(process), sdk.WithSampler(chosen), sdk.WithIDGenerator(ids{}))
	log.InfoContext(ctx, "sending traces", "endpoint", c.URL())
	return &Tracing{p, p.Tracer(span.Scope), to}, nil
}

// samplerOf chooses by the trace, so that all processes choose alike; what is below a span goes with it.
func samplerOf(c settings.Traces) (sdk.Sampler, error) {
	share, err := c.Share()
	if err != nil {
		return nil, err
	}
	switch strings.TrimPrefix(c.Sampler, "parentbased_") {
	case "always_off":
		share = 0
	case "always_on":
		share = 1
	}
	return sdk.ParentBased(sdk.TraceIDRatioBased(share)), nil
}

// Tracer makes the spans of attempts; nil if there are none.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// Close sends what is left, for a few seconds at most. That ctx has ended does not matter.
func (t *Tracing) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.to.warn(ctx, 0, fmt.Errorf("send the last spans: %w", err))
	}
}

// ids are those that an attempt must have, and random ones for what is below it.
type ids struct{}

// NewIDs is of sdk.IDGenerator. Only attempts have nothing above them: see [span.Attempt.Begin].
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) { return span.Identity(ctx) }

// NewSpanID is of sdk.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1) // it is no secret, and must not be 0
	return id
}

// Observe has the attempts of workers that have no spans of their own be spans too: of those that are gone,
// and of other programs.
func (t *Tracing) Observe(o claim.Observer) claim.Observer {
	if t == nil {
		return o
	}
	return observer{o, t.tracer}
}

type observer struct {
	claim.Observer

	tracer trace.Tracer
}

// Ended is of claim.Observer.
func (o observer) Ended(end claim.End) {
	o.Observer.Ended(end)
	if end.Of != nil {
		a := *end.Of
		a.Stage, a.Number = end.Stage, end.Attempt
		_, s := a.Begin(context.Background(), o.tracer)
		span.Ended(s, end.Outcome, end.Code)
	}
}
