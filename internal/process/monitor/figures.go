package monitor

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
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
	figures
	asked[registry.Figures]

	Registry *registry.Registry
	Close    func()
	log      *slog.Logger
}

// NewQueue connects when it is first asked. Close it.
func NewQueue(ctx context.Context, command string, c settings.Database, log *slog.Logger) (*Queue, error) {
	single := func(p *pgxpool.Config) { p.MaxConns, p.MinConns, p.MinIdleConns = 1, 0, 0 }
	db, err := dial.Connect(ctx, string(c.URL), "farol-"+command+"-metrics", single, dial.Through(c.Pooler), dial.Renewed(c.CurrentURL))
	if err != nil {
		return nil, err
	}
	q := &Queue{Registry: registry.New(db), Close: db.Close, log: log, asked: asked[registry.Figures]{fresh: freshFor, most: queryTime}}
	up := q.gauge("farol_database_up", "Whether the last query of the database succeeded.")
	took := q.gauge("farol_database_look_seconds", "Duration of the last query of the database.")
	parts := []func(chan<- prometheus.Metric, registry.Figures){q.items(), q.stages(), q.tables(), q.services()}
	// Without the database there are no figures, rather than old ones.
	q.collect = func(ctx context.Context, ch chan<- prometheus.Metric) {
		f, seconds, err := q.query(ctx, q.ask)
		ch <- took(seconds.Seconds())
		ch <- up(yes(err == nil))
		if err != nil {
			return
		}
		for _, part := range parts {
			part(ch, f)
		}
	}
	return q, nil
}

func (q *Queue) ask(ctx context.Context) (registry.Figures, error) {
	f, err := q.Registry.Figures(ctx)
	if err != nil {
		q.log.WarnContext(ctx, "cannot read the figures of the queue; metrics omit them", "err", err)
	}
	return f, err
}

func (q *Queue) items() func(chan<- prometheus.Metric, registry.Figures) {
	items := q.gauge("farol_queue_items", "Live items by state: due, delayed, waiting for another item, running. Items that do not run are counted up to 100000.",
		"action", "stage", "size_band", "state")
	oldestDue := q.gauge("farol_queue_oldest_due_seconds", "How long the oldest due item has been due; 0 if there is none.", "action", "stage", "size_band")
	return func(ch chan<- prometheus.Metric, f registry.Figures) {
		for _, c := range f.Bands {
			action, stage, band := string(c.Action), string(c.Stage), strconv.Itoa(int(c.SizeBand))
			ch <- items(float64(c.Due), action, stage, band, "due")
			ch <- items(float64(c.Delayed), action, stage, band, "delayed")
			ch <- items(float64(c.Waiting), action, stage, band, "waiting")
			ch <- items(float64(c.Running), action, stage, band, "running")
			ch <- oldestDue(c.OldestDue, action, stage, band)
		}
	}
}

func (q *Queue) stages() func(chan<- prometheus.Metric, registry.Figures) {
	failed := q.gauge("farol_failed_items", "Failed items: no attempt runs and none will be made, as in the view failed.", "action", "stage")
	paused := q.gauge("farol_stage_paused", "Whether the stage is paused, so that no item of it is claimed.", "action", "stage")
	scaling := q.gauge("farol_scaling_items", "Live items that autoscalers count, by state: running; claimable now; held, which a held service keeps from being claimed.", "action", "stage", "state")
	return func(ch chan<- prometheus.Metric, f registry.Figures) {
		for _, s := range f.Stages {
			ch <- scaling(float64(s.Running), string(s.Action), string(s.Stage), "running")
			ch <- scaling(float64(s.Claimable), string(s.Action), string(s.Stage), "claimable")
			ch <- scaling(float64(s.Held), string(s.Action), string(s.Stage), "held")
			ch <- failed(float64(s.Failed), string(s.Action), string(s.Stage))
			ch <- paused(yes(s.Paused), string(s.Action), string(s.Stage))
		}
	}
}

func (q *Queue) tables() func(chan<- prometheus.Metric, registry.Figures) {
	live := q.gauge("farol_table_live_rows", "Live rows of the queue's tables, estimated by PostgreSQL.", "table")
	dead := q.gauge("farol_table_dead_rows", "Dead rows of the queue's tables that vacuum has not removed, estimated by PostgreSQL.", "table")
	notify := q.gauge("farol_notify_queue_ratio", "Used share of PostgreSQL's NOTIFY queue; commits fail when it is full.")
	seconds := q.gauge("farol_oldest_snapshot_seconds", "Age of the oldest snapshot that holds back vacuum.", "kind")
	transactions := q.gauge("farol_oldest_snapshot_transactions", "Transactions that began since the oldest snapshot that holds back vacuum.", "kind")
	return func(ch chan<- prometheus.Metric, f registry.Figures) {
		for _, t := range f.Tables {
			ch <- live(float64(t.Live), t.Table)
			ch <- dead(float64(t.Dead), t.Table)
		}
		ch <- notify(f.Notify)
		for _, s := range f.Oldest {
			ch <- seconds(s.Seconds, s.Kind)
			ch <- transactions(float64(s.Transactions), s.Kind)
		}
	}
}

func (q *Queue) services() func(chan<- prometheus.Metric, registry.Figures) {
	held := q.gauge("farol_service_held", "Whether a service is held for all workers, so that no item that needs it is claimed.", "service")
	failing := q.gauge("farol_service_failing_workers", "Live workers for which the service fails.", "service")
	return func(ch chan<- prometheus.Metric, f registry.Figures) {
		for _, s := range f.Services {
			ch <- held(yes(s.Held), s.Service)
			ch <- failing(float64(s.Failing), s.Service)
		}
	}
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
