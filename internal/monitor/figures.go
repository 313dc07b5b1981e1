package monitor

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const (
	queryTime = 4 * time.Second  // for all that a scrape asks of the database; Prometheus waits for ten
	freshFor  = 5 * time.Second  // a second scrape within it gets the same figures
	scanEvery = 30 * time.Second // between two scans for old snapshots, whether or not anyone scrapes
	tooOld    = 60 * time.Second // for a snapshot
	repeat    = 10 * time.Minute // between two warnings of the same
)

// Queue is the queue as the database has it. The figures are the same from whichever
// process: dashboards take the max, not the sum. They
// have one connection of their own, since a scrape must neither wait for the
// stages nor keep them waiting.
type Queue struct {
	Registry *registry.Registry
	Close    func()
	log      *slog.Logger
	descs    figureDescs
	fresh    time.Duration
	most     time.Duration // for a query

	mu   sync.Mutex // one query at a time
	at   time.Time  // of the last query
	last registry.Figures
	took time.Duration
	err  error
}

type figureDescs struct{ items, oldestDue, failed, paused, live, dead, notify, seconds, transactions, up, took, held, failing *prometheus.Desc }

// NewQueue connects when it is first asked. Close it.
func NewQueue(ctx context.Context, command string, c settings.Database, log *slog.Logger) (*Queue, error) {
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
	return &Queue{
		Registry: registry.New(db), Close: db.Close, log: log, fresh: freshFor, most: queryTime,
		descs: figureDescs{
			items: desc("farol_queue_items", "Live items by state: due, delayed, waiting for another item, running. Items that do not run are counted up to 100000.",
				"action", "stage", "size_band", "state"),
			oldestDue:    desc("farol_queue_oldest_due_seconds", "How long the oldest due item has been due; 0 if there is none.", "action", "stage", "size_band"),
			failed:       desc("farol_failed_items", "Failed items: no attempt runs and none will be made, as in the view failed.", "action", "stage"),
			paused:       desc("farol_stage_paused", "Whether the stage is paused, so that no item of it is claimed.", "action", "stage"),
			live:         desc("farol_table_live_rows", "Live rows of the queue's tables, estimated by PostgreSQL.", "table"),
			dead:         desc("farol_table_dead_rows", "Dead rows of the queue's tables that vacuum has not removed, estimated by PostgreSQL.", "table"),
			notify:       desc("farol_notify_queue_ratio", "Used share of PostgreSQL's NOTIFY queue; commits fail when it is full."),
			seconds:      desc("farol_oldest_snapshot_seconds", "Age of the oldest snapshot that holds back vacuum.", "kind"),
			transactions: desc("farol_oldest_snapshot_transactions", "Transactions that began since the oldest snapshot that holds back vacuum.", "kind"),
			up:           desc("farol_database_up", "Whether the last query of the database succeeded."),
			took:         desc("farol_database_look_seconds", "Duration of the last query of the database."),
			held:         desc("farol_service_held", "Whether a service is held for all workers, so that no item that needs it is claimed.", "service"),
			failing:      desc("farol_service_failing_workers", "Live workers for which the service fails.", "service"),
		},
	}, nil
}

// Describe is of prometheus.Collector.
func (q *Queue) Describe(ch chan<- *prometheus.Desc) {
	d := q.descs
	for _, desc := range []*prometheus.Desc{d.items, d.oldestDue, d.failed, d.paused, d.live, d.dead, d.notify, d.seconds, d.transactions, d.up, d.took, d.held, d.failing} {
		ch <- desc
	}
}

// Collect is of prometheus.Collector. Without the database there are no figures,
// rather than old ones.
func (q *Queue) Collect(ch chan<- prometheus.Metric) {
	f, took, err := q.query()
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
	for _, c := range f.Bands {
		action, stage, band := string(c.Action), string(c.Stage), strconv.Itoa(int(c.SizeBand))
		gauge(d.items, float64(c.Due), action, stage, band, "due")
		gauge(d.items, float64(c.Delayed), action, stage, band, "delayed")
		gauge(d.items, float64(c.Waiting), action, stage, band, "waiting")
		gauge(d.items, float64(c.Running), action, stage, band, "running")
		gauge(d.oldestDue, c.OldestDue, action, stage, band)
	}
	for _, s := range f.Stages {
		action, stage := string(s.Action), string(s.Stage)
		gauge(d.failed, float64(s.Failed), action, stage)
		gauge(d.paused, map[bool]float64{true: 1}[s.Paused], action, stage)
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

// query asks the database, or returns its last answer if that is fresh. Concurrent calls
// wait for the same answer. An error is kept as long: a database in trouble is not asked
// more often.
func (q *Queue) query() (registry.Figures, time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.at.IsZero() && time.Since(q.at) < q.fresh {
		return q.last, q.took, q.err
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), q.most) // a scrape hands none over
	defer cancel()
	q.last, q.err = q.Registry.Figures(ctx)
	q.at, q.took = time.Now(), time.Since(begun)
	if q.err != nil {
		q.log.WarnContext(ctx, "cannot read the figures of the queue; metrics omit them", "err", q.err)
	}
	return q.last, q.took, q.err
}

// Watch warns of what keeps vacuum from dead rows for too long, until ctx is done:
// a table that is a queue gets slower by the minute then.
func (q *Queue) Watch(ctx context.Context) {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	c := canary{log: q.log, warned: map[string]time.Time{}}
	for {
		bounded, cancel := context.WithTimeout(ctx, queryTime)
		if list, err := q.Registry.Oldest(bounded); err == nil { // if it does not answer, others say so
			c.observe(ctx, list, time.Now())
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// canary warns of old snapshots, and of each again only after a while.
type canary struct {
	log    *slog.Logger
	warned map[string]time.Time // by kind
}

func (c canary) observe(ctx context.Context, list []record.SnapshotView, now time.Time) {
	for _, s := range list {
		age := time.Duration(s.Seconds * float64(time.Second))
		last, old := c.warned[s.Kind]
		switch {
		case age <= tooOld && old:
			delete(c.warned, s.Kind)
			c.log.InfoContext(ctx, "vacuum can remove dead rows again", "kind", s.Kind)
		case age > tooOld && (!old || now.Sub(last) >= repeat):
			c.warned[s.Kind] = now
			c.log.WarnContext(ctx, "an old snapshot holds back vacuum; the queue slows down until the snapshot ends",
				"kind", s.Kind, "held_by", s.Name, "age", age.Round(time.Second), "transactions", s.Transactions)
		}
	}
}
