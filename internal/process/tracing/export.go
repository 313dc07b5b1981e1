package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage"
)

// repeat is how long a collector that fails is not logged again.
const repeat = 10 * time.Minute

// An exporter sends spans by OTLP over HTTP. OpenTelemetry's own brings gRPC, whose code is twice as large
// as that of the SDK, and never used here.
type exporter struct {
	to     settings.Traces
	client *http.Client
	log    *slog.Logger

	mu     sync.Mutex
	warned time.Time
	lost   int // spans, since then
}

func newExporter(c settings.Traces, log *slog.Logger) (*exporter, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second}
	if c.Certificate != "" {
		pem, err := os.ReadFile(c.Certificate)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM format", c.Certificate)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &exporter{to: c, log: log, client: &http.Client{
		Transport: transport, Timeout: c.Timeout(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers are for the collector
	}}, nil
}

// ExportSpans is of sdk.SpanExporter. Spans that the collector does not take are lost.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.send(ctx, spans); err != nil {
		e.warn(ctx, len(spans), err)
	}
	return nil // it is logged
}

func (e *exporter) send(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	body, err := proto.Marshal(message(spans))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.to.URL(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if request.Header, err = e.to.Header(); err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", response.Status)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // so that the connection can be used again
	return err
}

func (e *exporter) warn(ctx context.Context, spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if now := time.Now(); e.warned.IsZero() || now.Sub(e.warned) >= repeat {
		e.log.WarnContext(ctx, "sending traces failed; spans are lost, and work goes on", "spans", e.lost, "err", storage.Redact(err.Error()), "to_do", "check OTEL_EXPORTER_OTLP_ENDPOINT and the collector")
		e.warned, e.lost = now, 0
	}
}

// Shutdown is of sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// message has the spans of one process and one scope.
func message(spans []sdk.ReadOnlySpan) *collector.ExportTraceServiceRequest {
	if len(spans) == 0 {
		return &collector.ExportTraceServiceRequest{}
	}
	first := spans[0]
	scope := &otlp.ScopeSpans{Scope: &common.InstrumentationScope{Name: first.InstrumentationScope().Name}}
	for _, s := range spans {
		scope.Spans = append(scope.Spans, spanOf(s))
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{{
		Resource: &resource.Resource{Attributes: attributes(first.Resource().Attributes())}, ScopeSpans: []*otlp.ScopeSpans{scope},
	}}}
}

func spanOf(s sdk.ReadOnlySpan) *otlp.Span {
	in, id := s.SpanContext().TraceID(), s.SpanContext().SpanID()
	out := &otlp.Span{
		TraceId: in[:], SpanId: id[:], Flags: uint32(s.SpanContext().TraceFlags()), Name: s.Name(), Kind: otlp.Span_SpanKind(s.SpanKind()), //nolint:gosec // one of five
		StartTimeUnixNano: uint64(s.StartTime().UnixNano()), EndTimeUnixNano: uint64(s.EndTime().UnixNano()),
		Attributes: attributes(s.Attributes()),
	}
	if above := s.Parent().SpanID(); above.IsValid() {
		out.ParentSpanId = above[:]
	}
	for _, l := range s.Links() {
		in, id := l.SpanContext.TraceID(), l.SpanContext.SpanID()
		out.Links = append(out.Links, &otlp.Span_Link{TraceId: in[:], SpanId: id[:], Flags: uint32(l.SpanContext.TraceFlags())})
	}
	if status := s.Status(); status.Code == codes.Error {
		out.Status = &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: status.Description}
	}
	return out
}

// attributes are texts and whole numbers.
func attributes(list []attribute.KeyValue) (out []*common.KeyValue) {
	for _, a := range list {
		v := &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: a.Value.String()}}
		if a.Value.Type() == attribute.INT64 {
			v.Value = &common.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		}
		out = append(out, &common.KeyValue{Key: string(a.Key), Value: v})
	}
	return out
}
