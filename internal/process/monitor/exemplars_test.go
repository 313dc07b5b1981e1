package monitor

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
)

// A slow stage leads to the trace of one that was slow.
func TestStagesHaveTracesAsExamples(t *testing.T) {
	t.Parallel()
	const trace = "08be0f9407ef3babb757faac3990e33c"
	m := NewWork()
	m.Observe(pipeline.Outcome{Stage: "Store", Took: time.Second, Trace: trace})
	m.Observe(pipeline.Outcome{Stage: "Record", Took: time.Second})
	server := httptest.NewServer(healthHandler(m.Registry, Answers(func(context.Context) error { return nil }), slog.New(slog.DiscardHandler)))
	defer server.Close()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil))(t)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := server.Client().Do(request)
	must.Do(t, err)
	defer response.Body.Close() //nolint:errcheck // it was only read
	var with []string
	for line := range strings.Lines(string(must.Get(io.ReadAll(response.Body))(t))) {
		if strings.Contains(line, "# {") {
			with = append(with, line)
		}
	}
	if len(with) != 1 || !strings.HasPrefix(with[0], `farol_stage_seconds_bucket{stage="Store"`) || !strings.Contains(with[0], `# {trace_id="`+trace+`"} 1.0 `) {
		t.Errorf("the metrics with examples are %q", with)
	}
}
