package main

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Three hosts that each have other stages take a bag from one to the next, and
// each reports its own.
func TestAnyStagesRunOnAnyHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settings["FAROL_HTTP_ADDR"] = "127.0.0.1:0"
	hosts := map[string]*process{}
	for _, stages := range []string{
		"Receive,Validate,Cleanup", "Copy To Staging,Store", "Reingest Check,Format Identification,Storage Validation,Record",
	} {
		hosts[stages] = startProcess(t, s.binary, t.TempDir(), s.settings, "work", "--stages", stages)
	}
	id := s.depositSample()
	for stages, p := range hosts {
		p.eventually("the bag to pass "+stages, func() bool { return !s.item(id).Retry })
	}
	s.intact(id)
	rows, _ := s.db.Query(t.Context(), `SELECT stage, pid FROM work_item_attempts WHERE outcome = 'done'`)
	var stage string
	var pid, stages int
	_, err := pgx.ForEachRow(rows, []any{&stage, &pid}, func() error {
		stages++
		for theirs, p := range hosts {
			if (p.Process.Pid == pid) != strings.Contains(theirs, stage) {
				t.Errorf("%s was done by process %d; process %d has %s", stage, pid, p.Process.Pid, theirs)
			}
		}
		return nil
	})
	if err != nil || stages != len(settings.StageNames()) {
		t.Errorf("%d stages are done, %v", stages, err)
	}
	for theirs, p := range hosts {
		var metrics map[string]float64
		p.eventually("the last stage to be reported", func() bool {
			metrics = scrape(t, p)
			done := 0.0
			for name, n := range metrics {
				if strings.HasPrefix(name, `farol_attempts_total{outcome="done"`) {
					done += n
				}
			}
			return done >= float64(1+strings.Count(theirs, ","))
		})
		for _, stage := range settings.StageNames() {
			want := 0.0
			if strings.Contains(theirs, stage) {
				want = 1
			}
			if got := metrics[`farol_attempts_total{outcome="done",stage="`+stage+`"}`]; got != want {
				t.Errorf("the host of %s reports %v attempts at %s", theirs, got, stage)
			}
		}
		if metrics["farol_database_up"] != 1 || metrics[`farol_failed_items{action="Ingest",stage="Store"}`] != 0 || metrics["farol_settle_seconds_count"] == 0 {
			t.Errorf("the host of %s reports %v", theirs, metrics)
		}
		s.terminate(p)
	}
}

// scrape reads the metrics of a process.
func scrape(t *testing.T, p *process) map[string]float64 {
	t.Helper()
	address := regexp.MustCompile(`serving metrics and health" addr=(\S+)`).FindStringSubmatch(p.said())
	if address == nil {
		t.Fatalf("no address in %s", p.said())
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[1]+"/metrics", nil))(t)
	response, err := (&http.Client{Timeout: testenv.Patience}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", response.StatusCode, err, body)
	}
	metrics := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if value == "" {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		} else {
			name += "}"
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			metrics[name] = v
		}
	}
	return metrics
}
