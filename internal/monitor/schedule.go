package monitor

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	upkeeppkg "github.com/farol-preservation/farol/pipeline/upkeep"
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
	m := &Runs{
		Registry: prometheus.NewRegistry(),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "farol_schedule_runs_total", Help: "Runs of recurring jobs that this process made, by result.",
		}, []string{"job", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "farol_schedule_run_seconds", Help: "Duration of the runs of recurring jobs.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}, []string{"job"}),
	}
	for _, job := range jobs { // what has not happened is 0, and an alarm sees the first time
		for _, result := range []string{upkeeppkg.Ran, upkeeppkg.Failed, upkeeppkg.Lost} {
			m.runs.WithLabelValues(job, result)
		}
	}
	if slices.Contains(jobs, upkeeppkg.JanitorJob) {
		m.Janitor = newJanitor(m.Registry)
	}
	if slices.Contains(jobs, upkeeppkg.SendMailJob) {
		m.Mail = newMail(m.Registry)
	}
	m.Registry.MustRegister(m.runs, m.took)
	return m
}

// Observe counts a run.
func (m *Runs) Observe(r upkeeppkg.JobRun) {
	m.runs.WithLabelValues(r.Job, r.Outcome).Inc()
	m.took.WithLabelValues(r.Job).Observe(r.Took.Seconds())
}

// Jobs are the recurring jobs as the database has them, the same from whichever
// process.
type Jobs struct{ Registry *registry.Registry }

func (Jobs) descs() (last, next, late, failing, paused *prometheus.Desc) {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, []string{"job"}, nil) }
	return desc("farol_schedule_last_run_timestamp_seconds", "When the job's last run ended, in any process."),
		desc("farol_schedule_next_run_timestamp_seconds", "When the next run of the job is due."),
		desc("farol_schedule_late_seconds", "How long the next run of the job has been overdue; 0 if the job is paused."),
		desc("farol_schedule_failing", "Whether the last run of the job failed or was incomplete."),
		desc("farol_schedule_paused", "Whether the job is paused.")
}

// Describe is of prometheus.Collector.
func (f Jobs) Describe(ch chan<- *prometheus.Desc) {
	last, next, late, failing, paused := f.descs()
	for _, d := range []*prometheus.Desc{last, next, late, failing, paused} {
		ch <- d
	}
}

// Collect is of prometheus.Collector. Without the database there are no figures.
func (f Jobs) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime) // a scrape hands none over
	defer cancel()
	list, err := upkeep.In(f.Registry).Schedules(ctx)
	if err != nil {
		return // farol_database_up says so
	}
	last, next, late, failing, paused := f.descs()
	yes := map[bool]float64{true: 1}
	for _, j := range list {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, j.Job)
		}
		if j.EndedAt != nil {
			gauge(last, float64(j.EndedAt.Unix()))
		}
		gauge(next, float64(j.NextRunAt.Unix()))
		gauge(late, j.Late.Seconds())
		gauge(failing, yes[j.Error != ""])
		gauge(paused, yes[j.Paused])
	}
}
