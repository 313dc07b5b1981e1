package monitor

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// Any scheduler exports of all jobs what the database has, no matter who ran them.
func TestSchedulesAreShown(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	defer db.Close()
	must.Get(db.Exec(t.Context(), `
		UPDATE schedules SET ended_at = '2026-11-22 10:00:00+00', next_run_at = '2026-11-22 11:00:00+00', error = 'redis', paused = true WHERE job = 'janitor';
		UPDATE schedules SET next_run_at = now() - interval '1 hour' WHERE job = 'read-buckets'`))(t)
	r := prometheus.NewRegistry()
	r.MustRegister(NewJobs(registry.New(db)))
	got := gathered(t, r)
	for name, want := range map[string]float64{
		"farol_schedule_last_run_timestamp_seconds janitor": 1795341600, "farol_schedule_next_run_timestamp_seconds janitor": 1795345200,
		"farol_schedule_failing janitor": 1, "farol_schedule_failing read-buckets": 0,
		"farol_schedule_paused janitor": 1, "farol_schedule_paused read-buckets": 0, "farol_schedule_late_seconds janitor": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v, %v; want %v", name, v, ok, want)
		}
	}
	if late := got["farol_schedule_late_seconds read-buckets"]; late < 3600 || late > 3700 {
		t.Errorf("read-buckets is late by %v", late)
	}
	if _, ok := got["farol_schedule_last_run_timestamp_seconds read-buckets"]; ok {
		t.Error("a job that was never run has a last run")
	}
	db.Close()
	if left := gathered(t, r); len(left) != 0 {
		t.Errorf("without the database it exports %v", left)
	}
}
