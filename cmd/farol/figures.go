package main

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
)

const (
	lookTime  = 4 * time.Second  // for all that a scrape asks of the database; Prometheus waits for ten
	lookFresh = 5 * time.Second  // a second scrape within it is told the same
	lookEvery = 30 * time.Second // between two looks for old snapshots, whether or not anybody scrapes
	tooOld    = 60 * time.Second // for a snapshot
	repeat    = 10 * time.Minute // between two warnings of the same
)

// queueFigures tells Prometheus of the queue as the database has it. They are the
// same whichever process tells them: dashboards take the max, not the sum. They
// have one connection of their own, since a scrape must neither wait for the
// stages nor keep them waiting.
type queueFigures struct {
	registry *registry.Registry
	close    func()
	log      *slog.Logger
	descs    figureDescs
	fresh    time.Duration
	most     time.Duration // for a look

	mu   sync.Mutex // one look at a time
	at   time.Time  // of the last look
	last registry.Figures
	took time.Duration
	err  error
}

type figureDescs struct{ items, oldestDue, failed, paused, live, dead, notify, seconds, transactions, up, took, held, failing *prometheus.Desc }

// newQueueFigures connects when it is first asked. Close it.
func newQueueFigures(ctx context.Context, command string, c settings.Database, log *slog.Logger) (*queueFigures, error) {
	single := func(p *pgxpool.Config) { p.MaxConns, p.MinConns, p.MinIdleConns = 1, 0, 0 }
	options := []registry.Option{single}
	if c.Pooler != "" {
		options = append(options, registry.ThroughPooler)
	}
	db, err := registry.Connect(ctx, string(c.URL), "farol-"+command+"-metrics", options...)
	if err != nil {
		return nil, err
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &queueFigures{
		registry: registry.New(db), close: db.Close, log: log, fresh: lookFresh, most: lookTime,
		descs: figureDescs{
			items: desc("farol_queue_items", "Live items, by what keeps them: due, delayed, waiting for another, running. Of what waits 100000 are counted at most.",
				"action", "stage", "size_band", "state"),
			oldestDue:    desc("farol_queue_oldest_due_seconds", "How long the first item has been due; 0 if none is.", "action", "stage", "size_band"),
			failed:       desc("farol_failed_items", "Items of which no attempt runs and none will be made, as in the view failed.", "action", "stage"),
			paused:       desc("farol_stage_paused", "Whether the stage is paused: then nothing of it is claimed.", "action", "stage"),
			live:         desc("farol_table_live_rows", "Rows of the queue's tables, as PostgreSQL estimates.", "table"),
			dead:         desc("farol_table_dead_rows", "Rows that vacuum has yet to clear away, as PostgreSQL estimates.", "table"),
			notify:       desc("farol_notify_queue_ratio", "Share of PostgreSQL's queue of notices that is in use; when it is full, commits fail."),
			seconds:      desc("farol_oldest_snapshot_seconds", "Age of what keeps vacuum from dead rows.", "kind"),
			transactions: desc("farol_oldest_snapshot_transactions", "How many transactions began since.", "kind"),
			up:           desc("farol_database_up", "Whether the last look at the database gave figures."),
			took:         desc("farol_database_look_seconds", "How long that look took."),
			held:         desc("farol_service_held", "Whether a service is held for all workers: then nothing that needs it is claimed.", "service"),
			failing:      desc("farol_service_failing_workers", "Live workers that see a service fail.", "service"),
		},
	}, nil
}

// Describe is of prometheus.Collector.
func (q *queueFigures) Describe(ch chan<- *prometheus.Desc) {
	d := q.descs
	for _, desc := range []*prometheus.Desc{d.items, d.oldestDue, d.failed, d.paused, d.live, d.dead, d.notify, d.seconds, d.transactions, d.up, d.took, d.held, d.failing} {
		ch <- desc
	}
}

// Collect is of prometheus.Collector. Without the database there are no figures,
// rather than old ones.
func (q *queueFigures) Collect(ch chan<- prometheus.Metric) {
	f, took, err := q.look()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	d := q.descs
	gauge(d.took, took.Seconds())
	if err != nil {
		gauge(d.up, 0)
		return
	}
	gauge(d.up, 1)
	for _, c := range f.Cells {
		band := strconv.Itoa(int(c.SizeBand))
		gauge(d.items, float64(c.Due), c.Action, c.Stage, band, "due")
		gauge(d.items, float64(c.Delayed), c.Action, c.Stage, band, "delayed")
		gauge(d.items, float64(c.Waiting), c.Action, c.Stage, band, "waiting")
		gauge(d.items, float64(c.Running), c.Action, c.Stage, band, "running")
		gauge(d.oldestDue, c.OldestDue, c.Action, c.Stage, band)
	}
	for _, s := range f.Stages {
		gauge(d.failed, float64(s.Failed), s.Action, s.Stage)
		gauge(d.paused, map[bool]float64{true: 1}[s.Paused], s.Action, s.Stage)
	}
	for _, t := range f.Tables {
		gauge(d.live, float64(t.Live), t.Table)
		gauge(d.dead, float64(t.Dead), t.Table)
	}
	for _, s := range f.Services {
		gauge(d.held, map[bool]float64{true: 1}[s.Held], s.Service)
		gauge(d.failing, float64(s.Failing), s.Service)
	}
	gauge(d.notify, f.Notify)
	for _, s := range f.Oldest {
		gauge(d.seconds, s.Seconds, s.Kind)
		gauge(d.transactions, float64(s.Transactions), s.Kind)
	}
}

// look asks the database, or returns what it said a moment ago. Those who come
// meanwhile wait for the same answer. That there was none is an answer, too: a
// database in trouble is not asked more often for it.
func (q *queueFigures) look() (registry.Figures, time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.at.IsZero() && time.Since(q.at) < q.fresh {
		return q.last, q.took, q.err
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), q.most) // a scrape hands none over
	defer cancel()
	q.last, q.err = q.registry.Figures(ctx)
	q.at, q.took = time.Now(), time.Since(begun)
	if q.err != nil {
		q.log.WarnContext(ctx, "no figures of the queue", "err", q.err)
	}
	return q.last, q.took, q.err
}

// watch warns of what keeps vacuum from dead rows for too long, until ctx is done:
// a table that is a queue gets slower by the minute then.
func (q *queueFigures) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	c := canary{log: q.log, warned: map[string]time.Time{}}
	for {
		bounded, cancel := context.WithTimeout(ctx, lookTime)
		if list, err := q.registry.Oldest(bounded); err == nil { // if it does not answer, others say so
			c.hears(ctx, list, time.Now())
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// canary tells of old snapshots, and of each again only after a while.
type canary struct {
	log    *slog.Logger
	warned map[string]time.Time // by kind
}

func (c canary) hears(ctx context.Context, list []registry.Snapshot, now time.Time) {
	for _, s := range list {
		age := time.Duration(s.Seconds * float64(time.Second))
		last, old := c.warned[s.Kind]
		switch {
		case age <= tooOld && old:
			delete(c.warned, s.Kind)
			c.log.InfoContext(ctx, "vacuum can clear away dead rows again", "kind", s.Kind)
		case age > tooOld && (!old || now.Sub(last) >= repeat):
			c.warned[s.Kind] = now
			c.log.WarnContext(ctx, "an old snapshot keeps vacuum from dead rows: the queue gets slower until it ends",
				"kind", s.Kind, "held_by", s.Name, "age", age.Round(time.Second), "transactions", s.Transactions)
		}
	}
}

// serveQueue serves health, the queue's figures and more for a command that works
// on no items, until ctx is done; not at all if there is no address.
func serveQueue(ctx context.Context, command string, s *connect.Services, database settings.Database, http settings.HTTP, log *slog.Logger,
	more ...prometheus.Collector,
) error {
	if http.Addr == "" {
		return nil
	}
	figures, err := newQueueFigures(ctx, command, database, log)
	if err != nil {
		return err
	}
	defer figures.close()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(append(more, figures)...)
	return serveHTTP(ctx, http.Addr, metrics, answers(s.Registry.Ping), log)
}
