package monitor

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	upkeeppkg "github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// Runs counts what the recurring jobs of this process did since it started.
type Runs struct {
	Registry *prometheus.Registry
	runs     *prometheus.CounterVec
	took     *prometheus.HistogramVec
	Janitor  Janitor
	Mail     Mail
}

// NewRuns has a counter for each of the jobs.
func NewRuns(jobs []string) *Runs {
	r := prometheus.NewRegistry()
	m := &Runs{
		Registry: r,
		runs:     counter(r, "farol_schedule_runs_total", "Runs of recurring jobs that this process made, by result.", "job", "result"),
		took:     histogram(r, "farol_schedule_run_seconds", "Duration of the runs of recurring jobs.", 0.01, 4, 10, "job"),
	}
	for _, job := range jobs { // what has not happened is 0, and an alarm sees the first time
		for _, result := range []string{upkeeppkg.Ran, upkeeppkg.Failed, upkeeppkg.Lost} {
			m.runs.WithLabelValues(job, result)
		}
	}
	if slices.Contains(jobs, upkeeppkg.JanitorJob) {
		m.Janitor = newJanitor(r)
	}
	if slices.Contains(jobs, upkeeppkg.SendMailJob) {
		m.Mail = newMail(r)
	}
	return m
}

// Observe counts a run.
func (m *Runs) Observe(r upkeeppkg.JobRun) {
	m.runs.WithLabelValues(r.Job, r.Outcome).Inc()
	m.took.WithLabelValues(r.Job).Observe(r.Took.Seconds())
}

// NewJobs are the recurring jobs as the database has them, the same from whichever
// process. Without the database there are no figures.
func NewJobs(r *registry.Registry) prometheus.Collector {
	f, jobs := &figures{}, &asked[[]record.Schedule]{most: queryTime}
	last := f.gauge("farol_schedule_last_run_timestamp_seconds", "When the job's last run ended, in any process.", "job")
	next := f.gauge("farol_schedule_next_run_timestamp_seconds", "When the next run of the job is due.", "job")
	late := f.gauge("farol_schedule_late_seconds", "How long the next run of the job has been overdue; 0 if the job is paused.", "job")
	failing := f.gauge("farol_schedule_failing", "Whether the last run of the job failed or was incomplete.", "job")
	paused := f.gauge("farol_schedule_paused", "Whether the job is paused.", "job")
	f.collect = func(ctx context.Context, ch chan<- prometheus.Metric) {
		list, _, err := jobs.query(ctx, upkeep.In(r).Schedules)
		if err != nil {
			return // farol_database_up says so
		}
		for _, j := range list {
			if j.EndedAt != nil {
				ch <- last(float64(j.EndedAt.Unix()), j.Job)
			}
			ch <- next(float64(j.NextRunAt.Unix()), j.Job)
			ch <- late(j.Late.Seconds(), j.Job)
			ch <- failing(yes(j.Error != ""), j.Job)
			ch <- paused(yes(j.Paused), j.Job)
		}
	}
	return f
}
