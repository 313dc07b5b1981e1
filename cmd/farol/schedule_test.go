package main

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// Any scheduler tells of all jobs what the database has, whoever ran them.
func TestSchedulesAreTold(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(t.Context(), `
		UPDATE schedules SET ended_at = '2026-11-22 10:00:00+00', next_run_at = '2026-11-22 11:00:00+00', error = 'redis', paused = true WHERE job = 'janitor';
		UPDATE schedules SET next_run_at = now() - interval '1 hour' WHERE job = 'read-buckets'`); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(scheduleFigures{registry.New(db)})
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
		t.Errorf("without the database it tells %v", left)
	}
}

func TestSchedulesAreShownInWords(t *testing.T) {
	t.Parallel()
	for want, j := range map[string]upkeep.Schedule{
		"running":        {Running: true, Paused: true},
		"paused":         {Paused: true},
		"due":            {Late: time.Second},
		"late by 2h05m":  {Late: 125 * time.Minute},
		"waits":          {},
		"late by 3d00h":  {Late: 72 * time.Hour},
		"late by 1m01s":  {Late: 61 * time.Second},
		"late by 10m00s": {Late: 10 * time.Minute},
	} {
		if got := scheduleState(j); got != want {
			t.Errorf("scheduleState = %q, want %q", got, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"24h": 24 * time.Hour, "15m": 15 * time.Minute, "1h30m": 90 * time.Minute, "1m30s": 90 * time.Second, "200ms": 200 * time.Millisecond,
		"30s": 30 * time.Second, "10m": 10 * time.Minute, "20h": 20 * time.Hour,
	} {
		if got := everyOf(d); got != want {
			t.Errorf("everyOf(%v) = %q, want %q", d, got, want)
		}
	}
	for want, j := range map[string]upkeep.Schedule{
		"3 made": {Result: "3 made"}, "3 made; could not do all: a; b": {Result: "3 made", Error: "a\nb"}, "could not do all: a": {Error: "a"},
	} {
		if got := resultOf(j); got != want {
			t.Errorf("resultOf = %q, want %q", got, want)
		}
	}
}
