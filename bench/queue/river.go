package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River as its own benchmark sets it: it looks for jobs every 2 ms
// while there are some and every 20 ms otherwise, and completes them by the batch.
type riverQueue struct {
	next bool // a job inserts the next one and completes itself in one transaction

	url  string
	db   *pgxpool.Pool
	feed *river.Client[pgx.Tx] // inserts only
}

type riverArgs struct {
	Item  int `json:"item"`
	Stage int `json:"stage"`
}

func (riverArgs) Kind() string { return "hop" }

func (r *riverQueue) start(ctx context.Context, s *servers) (string, error) {
	r.url = s.Stack.AdminURL
	var err error
	if r.db, err = pgxpool.New(ctx, r.url); err != nil {
		return "", fmt.Errorf("connect to the database: %w", err)
	}
	m, err := rivermigrate.New(riverpgxv5.New(r.db), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	if r.feed, err = river.NewClient(riverpgxv5.New(r.db), &river.Config{}); err != nil {
		return "", fmt.Errorf("make a client: %w", err)
	}
	return "River " + moduleVersion("github.com/riverqueue/river"), nil
}

func (r *riverQueue) fill(ctx context.Context, n, first int) error {
	return reload(ctx, r.db, "river_job", n, 5000, func(from, to int) error { return r.insert(ctx, from, to, first) })
}

func (r *riverQueue) put(ctx context.Context, n int) error { return r.insert(ctx, 0, n, 1) }

func (r *riverQueue) insert(ctx context.Context, from, to, first int) error {
	params := make([]river.InsertManyParams, 0, to-from)
	for i := from; i < to; i++ {
		params = append(params, river.InsertManyParams{Args: riverArgs{Item: i, Stage: i % first}})
	}
	if _, err := r.feed.InsertManyFast(ctx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

func (r *riverQueue) run(ctx context.Context, l load, t *tally) error {
	config, err := pgxpool.ParseConfig(r.url)
	if err != nil {
		return fmt.Errorf("read the database's URL: %w", err)
	}
	config.MaxConns = 40
	if r.next {
		config.MaxConns = int32(min(l.Workers, 64) + 10) //nolint:gosec // it is a small number
	}
	config.ConnConfig.Tracer = &riverTracer{tally: t, completions: !r.next}
	db, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer db.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{next: r.next, drain: l.Drain, db: db, tally: t})
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: l.Workers}},
		Workers:           workers,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.DiscardHandler), // it warns of jobs that end as it stops
	})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := client.Start(ctx); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-t.done:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := client.StopAndCancel(ctx); err != nil {
		return fmt.Errorf("stop the client: %w", err)
	}
	return nil
}

func (r *riverQueue) stop(context.Context) error {
	r.db.Close()
	return nil
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	next, drain bool
	db          *pgxpool.Pool
	tally       *tally
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	w.tally.inHand(job.Args.Stage)
	if !w.next {
		return nil // the tracer counts it when its completion is written
	}
	err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		if stage := job.Args.Stage + 1; stage < stages || !w.drain {
			args := riverArgs{Item: job.Args.Item, Stage: stage % stages}
			if _, err := river.ClientFromContext[pgx.Tx](ctx).InsertTx(ctx, tx, args, nil); err != nil {
				return fmt.Errorf("insert the next job: %w", err)
			}
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.tally.hop(job.Args.Item, job.Args.Stage)
	}
	return err
}

// riverTracer sees what River does not tell its clients: how long a fetch took,
// and when completions were written. It goes by the names of River's queries.
type riverTracer struct {
	tally       *tally
	completions bool
}

type riverQuery struct {
	began   time.Time
	fetches bool
}

type riverKey struct{} // of the query in its context

func (r *riverTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.HasPrefix(q.SQL, "-- name: JobGetAvailable "):
		return context.WithValue(ctx, riverKey{}, riverQuery{began: time.Now(), fetches: true})
	case r.completions && strings.HasPrefix(q.SQL, "-- name: JobSetStateIfRunningMany "):
		return context.WithValue(ctx, riverKey{}, riverQuery{})
	default:
		return ctx
	}
}

func (r *riverTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, end pgx.TraceQueryEndData) {
	q, ok := ctx.Value(riverKey{}).(riverQuery)
	n := int(end.CommandTag.RowsAffected())
	switch {
	case !ok || end.Err != nil || n == 0:
	case q.fetches:
		r.tally.claimed(q.began)
	default:
		r.tally.add(n)
	}
}
