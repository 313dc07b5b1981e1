package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv/collector"
	"github.com/farol-preservation/farol/span"
)

// A bag is one trace, whatever process works on it: that of a worker that is killed in the midst of Store,
// and that of the next one, which sends the attempt of the first and links its own to it.
func TestBagIsOneTrace(t *testing.T) {
	t.Parallel()
	s, traces := newSite(t), collector.New(t)
	s.settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.URL
	s.settings["OTEL_BSP_SCHEDULE_DELAY"] = "50" // ms
	s.settings["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20geheim"
	proxy := s.s3Proxy()
	id := s.depositSample()
	s.exec(`UPDATE stage_settings SET paused = (stage = 'Store'), backoff_first = '100 milliseconds', backoff_most = '200 milliseconds'`)
	first := s.worker()
	first.eventually("the item to come to Store", func() bool { return s.item(id).Stage == "Store" })
	proxy.Delay(slowly)
	s.exec(`UPDATE stage_settings SET paused = false`)
	first.eventually("the middle of Store", func() bool { return s.inTheMiddle(id, "Store", 0) })
	want := settings.StageNames()
	at := slices.Index(want, "Store")
	first.eventually("the attempts before it to be sent", func() bool { return len(attemptsOf(traces.Spans())) == at })
	first.kill()
	proxy.Delay(0)
	second := s.worker()
	s.atRest(second)
	s.terminate(second)

	trace := span.TraceOf(id, ask[time.Time](t, s.db, `SELECT created_at FROM all_work_items WHERE id = $1`, id)).String()
	spans := map[string]collector.Span{}
	for _, one := range traces.Spans() {
		if one.Trace != trace {
			t.Errorf("%s is in the trace %s; the item is %s", one.Name, one.Trace, trace)
		}
		if _, twice := spans[one.ID]; twice {
			t.Errorf("the span of %s came twice", one.Name)
		}
		spans[one.ID] = one
	}
	attempts := attemptsOf(traces.Spans())
	want = slices.Insert(want, at, "Store") // which was killed
	if len(attempts) != len(want) {
		t.Fatalf("%d attempts were sent, want %d: %+v", len(attempts), len(want), attempts)
	}
	slices.SortStableFunc(attempts, func(a, b collector.Span) int {
		return slices.Index(want, a.About["farol.stage"]) - slices.Index(want, b.About["farol.stage"])
	})
	for i, a := range attempts {
		outcome := "done"
		if i == at {
			outcome = "killed"
		}
		if a.About["farol.stage"] != want[i] || a.About["farol.outcome"] != outcome || a.Parent != "" || a.About["farol.institution"] != "test.edu" {
			t.Errorf("attempt %d is %+v; want %s %s", i, a, want[i], outcome)
		}
		if i > 0 && !slices.Equal(a.Links, []string{attempts[i-1].ID}) {
			t.Errorf("the attempt of %s links to %v; the one before is %s", want[i], a.Links, attempts[i-1].ID)
		}
	}
	if attempts[at].About["farol.worker"] == attempts[at+1].About["farol.worker"] {
		t.Errorf("one worker made both attempts of Store: %+v", attempts[at])
	}
	belowStage(t, spans)
	for _, text := range []string{first.said(), second.said()} {
		if !strings.Contains(text, "trace_id="+trace) || strings.Contains(text, "geheim") {
			t.Errorf("the log has no %s, or a secret", trace)
		}
	}
	if got := traces.Header().Get("Authorization"); got != "Bearer geheim" {
		t.Errorf("the collector was sent the authorization %q", got)
	}
}

func attemptsOf(spans []collector.Span) []collector.Span {
	return slices.DeleteFunc(spans, func(s collector.Span) bool { return !strings.HasPrefix(s.Name, "attempt ") })
}

// belowStage fails unless each service was called below the attempt of a stage that is done, and no span
// names a file.
func belowStage(t *testing.T, spans map[string]collector.Span) {
	t.Helper()
	found := map[string]bool{}
	for _, one := range spans {
		for name, text := range one.About {
			if strings.Contains(text, "data/") {
				t.Errorf("%s of %s names a file: %s", name, one.Name, text)
			}
		}
		top := one
		for top.Parent != "" {
			top = spans[top.Parent]
		}
		if top.About["farol.stage"] != "Store" || top.About["farol.outcome"] != "done" {
			continue
		}
		found[one.About["db.system.name"]], found[one.About["rpc.system.name"]], found[one.Name] = true, true, true
	}
	for _, service := range []string{"postgresql", "redis", "aws-api", "Store", "S3 CopyObject", "S3 CreateMultipartUpload"} {
		if !found[service] {
			t.Errorf("nothing below Store is of %s: %v", service, found)
		}
	}
}

// The attempt of a program that processes a stage over HTTP is a span in the trace of its item, too.
func TestStageOfAnotherProgramIsTraced(t *testing.T) {
	t.Parallel()
	s, traces := newSite(t), collector.New(t)
	s.settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.URL
	s.exec(`SELECT add_stage('Virus Scan', 'Validate')`)
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT id, 'Ingest', 'Virus Scan', 'a.tar', 'in', 'e', 7, now() FROM institutions`)
	server, at := startServe(t, s.binary, "127.0.0.1", s.settings)
	id := ask[int64](t, s.db, `SELECT id FROM work_items`)
	if status, answer := send(t, at+"/v1/claim", "", `{"worker": "anna", "stages": ["Virus Scan"], "wait": 20}`, "Content-Type", "application/json"); status != http.StatusOK {
		t.Fatalf("claim: %d %s", status, answer)
	}
	token := ask[int64](t, s.db, `SELECT claim_token FROM work_items`)
	if status, answer := send(t, at+"/v1/finish", "", fmt.Sprintf(`{"id": %d, "token": %d}`, id, token), "Content-Type", "application/json"); status != http.StatusOK {
		t.Fatalf("finish: %d %s", status, answer)
	}
	s.terminate(server)
	sent := traces.Spans()
	trace := span.TraceOf(id, ask[time.Time](t, s.db, `SELECT created_at FROM work_items`)).String()
	if len(sent) != 1 || sent[0].Trace != trace || sent[0].Service != "farol-serve" || sent[0].About["farol.worker"] != "anna" || sent[0].About["farol.outcome"] != "done" {
		t.Errorf("the trace %s was sent as %+v", trace, sent)
	}
}
