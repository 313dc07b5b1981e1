package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv/collector"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/span"
)

func configured(t testing.TB, environ map[string]string) settings.Traces {
	t.Helper()
	return must.Get(settings.Load(environ, settings.Traces{}))(t)
}

func attempt(tracing *Tracing, token int64) {
	ctx, s := span.Attempt{Item: 7, Token: token, Created: time.Unix(1, 0), Began: time.Now(), Stage: "Store"}.Begin(context.Background(), tracing.Tracer())
	_, call := span.Call(ctx, "S3 GetObject")
	span.End(call, true)
	span.Ended(s, "transient", "s3-unavailable")
}

// Off is the default, and then nothing runs.
func TestOffRunsNothing(t *testing.T) { //nolint:paralleltest // it counts goroutines
	for _, environ := range []map[string]string{
		{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		before := runtime.NumGoroutine()
		off, err := Start(t.Context(), configured(t, environ), "work", "1", slog.New(slog.DiscardHandler))
		if err != nil || off != nil || off.Tracer() != nil || runtime.NumGoroutine() != before {
			t.Errorf("%v: %v, %v, %d goroutines more", environ, off, err, runtime.NumGoroutine()-before)
		}
		off.Close(t.Context())
	}
}

func TestAttemptsOfGoneWorkersAreSent(t *testing.T) {
	t.Parallel()
	traces := collector.New(t)
	c := configured(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": traces.URL + "/"})
	tracing := must.Get(Start(t.Context(), c, "mirror", "1", slog.New(slog.DiscardHandler)))(t)
	attempt(tracing, 3)
	ends := tracing.Observe(ends{})
	ends.Ended(claim.End{Stage: "Store"}) // one of our own, whose span its runner ends
	ends.Ended(claim.End{Stage: "Store", Outcome: "oom", Code: "oom", Of: &span.Attempt{Item: 7, Token: 1, Created: time.Unix(1, 0), Began: time.Unix(2, 0), Worker: "w"}})
	tracing.Close(t.Context())
	spans := traces.Spans()
	if len(spans) != 3 {
		t.Fatalf("%+v were sent", spans)
	}
	call, own, other := spans[0], spans[1], spans[2]
	if call.Parent != own.ID || !call.Failed || own.Trace != other.Trace || own.Links[0] != other.ID || other.Links != nil {
		t.Errorf("they are %+v", spans)
	}
	if other.About["farol.outcome"] != "oom" || other.About["farol.worker"] != "w" || other.Service != "farol-mirror" || own.About["farol.code"] != "s3-unavailable" {
		t.Errorf("they are %+v", spans)
	}
}

type ends struct{ claim.Observer }

func (ends) Ended(claim.End) {}

// A collector that never answers, one that refuses, and one that is elsewhere keep nothing waiting, neither endless spans nor
// the end of the process.
func TestCollectorThatHangsDelaysNothing(t *testing.T) {
	t.Parallel()
	hangs := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) // it never accepts
	defer hangs.Close()                                    //nolint:errcheck // nobody reads
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer refuses.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the headers went elsewhere") }))
	defer elsewhere.Close()
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	for _, url := range []string{"http://" + hangs.Addr().String(), refuses.URL, redirects.URL} {
		var logged bytes.Buffer
		c := configured(t, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url, "OTEL_EXPORTER_OTLP_HEADERS": "key=geheim"})
		tracing := must.Get(Start(t.Context(), c, "work", "1", slog.New(slog.NewTextHandler(&logged, nil))))(t)
		began := time.Now()
		for i := range int64(20_000) {
			attempt(tracing, i)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: 20000 attempts took %s", url, took)
		}
		began = time.Now()
		tracing.Close(t.Context())
		if took := time.Since(began); took > 2*flushTime {
			t.Errorf("%s: the end took %s", url, took)
		}
		if text := logged.String(); strings.Count(text, "level=WARN") != 1 || strings.Contains(text, "geheim") {
			t.Errorf("%s: the log is %s", url, text)
		}
	}
}

// All processes sample the same items.
func TestItemsAreSampled(t *testing.T) {
	t.Parallel()
	traces := collector.New(t)
	c := configured(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": traces.URL, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5", "OTEL_SERVICE_NAME": "ours", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other",
	})
	for range 2 {
		tracing := must.Get(Start(t.Context(), c, "work", "1", slog.New(slog.DiscardHandler)))(t)
		for item := range int64(200) {
			_, s := span.Attempt{Item: item, Token: 1, Created: time.Unix(1, 0)}.Begin(t.Context(), tracing.Tracer())
			s.End()
		}
		tracing.Close(t.Context())
	}
	times := map[string]int{}
	for _, s := range traces.Spans() {
		if times[s.Trace]++; s.Service != "ours" {
			t.Errorf("the process is %s", s.Service)
		}
	}
	if len(times) < 60 || len(times) > 140 {
		t.Errorf("%d of 200 items were sampled", len(times))
	}
	for trace, n := range times {
		if n != 2 {
			t.Errorf("%s was sampled %d times of 2", trace, n)
		}
	}
}
