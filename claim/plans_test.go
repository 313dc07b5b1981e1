package claim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// Whatever the database believes of its tables, the queue's statements go by
// their indexes, in the order of these, and read no more than they are for.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string][3]string{
		"never analysed":       {"", "", "prepared"},
		"analysed while empty": {`ANALYZE`, "", "transaction"},
		"analysed":             {"", `ANALYZE`, "prepared"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.DatabaseURL(t)
			q := &queue{t, testPool(t, url)}
			q.exec(sql[0])
			q.fill()
			q.exec(sql[1])
			q.explain()
			t.Run("directly", func(t *testing.T) { (&planned{queue: queue{t, q.db}}).work(url) })
			t.Run("pooled", func(t *testing.T) {
				(&planned{queue: queue{t, q.db}}).work(testenv.Pooled(t, url), dial.Through(sql[2]))
			})
		})
	}
}

const filled = 100_000

// fill makes a large queue quickly, without the triggers.
func (q *queue) fill() {
	q.t.Helper()
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	q.exec(fmt.Sprintf(`DO $do$ BEGIN
		SET LOCAL session_replication_role = replica;
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, size_band, virtual_start, priority, bag_date, object_identifier,
			status, retry, claim_token, attempt, lease_expires_at, node, pid, worker)
		SELECT i.id, 'Ingest', (SELECT stage FROM stage_settings WHERE action = 'Ingest' AND ordinal = 1 + n %% 9),
			'bag-' || n || '.tar', 'receiving', repeat('e', 32), (ARRAY[1, 100000000, 2000000000, 70000000000])[1 + n / 9 %% 4], n / 9 %% 4,
			n * 1000, n / 36 %% 3, now(), 'test.edu/bag-' || n,
			status, status <> 'Failed', CASE status WHEN 'Started' THEN 1 ELSE 0 END, CASE status WHEN 'Started' THEN 1 ELSE 0 END,
			CASE WHEN status = 'Started' THEN now() + make_interval(secs => n %% 600 - 60) END, nodes, pids, workers
		FROM institutions i, generate_series(1, %d) n,
			LATERAL (SELECT CASE WHEN n %% 50 = 49 THEN 'Started' WHEN n %% 10 < 6 THEN 'Pending' ELSE 'Failed' END AS status) s,
			LATERAL (SELECT 'n' AS nodes, 1 AS pids, 'w' || n %% 20 AS workers WHERE status = 'Started' UNION ALL SELECT NULL, NULL, NULL WHERE status <> 'Started') w;
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, ended_at, outcome)
		SELECT id, 1, stage, 1, 'n', 1, 'w', CASE WHEN status <> 'Started' THEN now() END, CASE WHEN status <> 'Started' THEN 'fatal' END
		FROM work_items WHERE status <> 'Pending';
	END $do$`, filled))
}

// explain has the database send its clients the plan of every statement, with its costs.
func (q *queue) explain() {
	q.t.Helper()
	name := value[string](q, `SELECT current_database()`)
	for setting, to := range map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
		"auto_explain.log_format": "json", "auto_explain.log_nested_statements": "on", "auto_explain.log_level": "notice", "auto_explain.log_buffers": "on",
	} {
		q.exec(`LOAD 'auto_explain'`) // which knows the other settings
		q.exec(fmt.Sprintf(`ALTER DATABASE %s SET %s = '%s'`, name, setting, to))
	}
}

// plan is a node of a plan.
type plan struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []plan
}

func (p plan) all() []plan {
	list := []plan{p}
	for _, below := range p.Plans {
		list = append(list, below.all()...)
	}
	return list
}

// planned is an engine on whose plans the test listens in.
type planned struct {
	queue

	statements map[string]statement

	mu    sync.Mutex
	plans map[string][]plan // by the statement's name
}

// inFunctions are the statements in functions of the schema that settle and reap call, by
// words that only they have, with their indexes.
func inFunctions() map[string]struct{ words, index string } {
	return map[string]struct{ words, index string }{
		"move_items":   {"WITH landing AS", "work_items_pkey"},
		"record_moves": {"FROM unnest(moves) m\n		WHERE a.work_item_id = m.id AND a.claim_token = m.token", "work_item_attempts_pkey"},
	}
}

// watched are the statements that the engine is waited for to send.
func watched() []string {
	return []string{
		"claim_ingest", "settle_done", "settle", "renew", "lapsed", "reap", "overdue_ingest", "behind_cursor_ingest", "archive", "move_items", "record_moves",
	}
}

func (p *planned) hear(_ *pgconn.PgConn, n *pgconn.Notice) {
	_, text, ok := strings.Cut(n.Message, "plan:")
	if !ok {
		return
	}
	var logged struct {
		Text string `json:"Query Text"`
		Plan plan
	}
	if err := json.Unmarshal([]byte(text), &logged); err != nil {
		p.t.Errorf("%v: %s", err, text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, of := range inFunctions() {
		if strings.Contains(logged.Text, of.words) {
			p.plans[name] = append(p.plans[name], logged.Plan)
		}
	}
	if name, _, ok := strings.Cut(strings.TrimPrefix(logged.Text, "-- "), ": "); ok {
		if _, ok := p.statements[name]; ok {
			p.plans[name] = append(p.plans[name], logged.Plan)
		}
	}
}

func (p *planned) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.plans[name])
}

// listen returns an engine on whose plans p listens in.
func (p *planned) listen(url string, options ...dial.Option) *claim.Engine {
	p.t.Helper()
	p.plans, p.statements = map[string][]plan{}, statements(p.t)
	for name, of := range inFunctions() {
		p.statements[name] = statement{indexes: []string{of.index}}
	}
	config := connect(p.t, url, "planned", options...).Config()
	config.ConnConfig.OnNotice = p.hear
	db := must.Get(dial.Open(context.Background(), config))(p.t)
	p.t.Cleanup(db.Close)
	return (&queue{p.t, db}).engine(func(o *claim.Options) { o.Log = slog.New(slog.DiscardHandler) })
}

// work has an engine do all that it does, while someone locks what it would
// take first.
func (p *planned) work(url string, options ...dial.Option) {
	p.t.Helper()
	e := p.listen(url, options...)

	tx := must.Get(p.db.Begin(context.Background()))(p.t)
	defer tx.Rollback(context.Background())
	const locked, limit = 30, 40
	must.Get(tx.Exec(context.Background(), `SELECT FROM work_items
		WHERE status = 'Pending' AND retry AND stage IN ('Store', 'Record') ORDER BY priority, virtual_start LIMIT $1 FOR UPDATE SKIP LOCKED`, locked))(p.t)
	wants := claim.Filter{Stages: []claim.Want{{Stage: "Record", Most: limit}, {Stage: "Store", Most: limit}, {Stage: "Receive", Most: limit}}}
	narrow := wants
	narrow.Institutions = []string{"test.edu"}
	var endings []claim.Ending
	for _, f := range []claim.Filter{wants, wants, narrow} {
		items, err := e.Claim(context.Background(), f, limit)
		if err != nil || len(items) == 0 {
			p.t.Fatalf("Claim = %d items, %v", len(items), err)
		}
		for _, item := range items {
			endings = append(endings, claim.Ending{Item: item, Done: claim.Done{Next: "Cleanup"}})
		}
	}
	e.Rescan(context.Background(), wants)
	e.Rescan(context.Background(), narrow)
	held := e.Hold(context.Background(), endings[0].Item)
	if err := e.Settle(context.Background(), endings[1:2])[0]; err != nil {
		p.t.Fatal(err)
	}
	endings[2].Result = claim.Snooze(time.Hour, "the provider takes its time")
	for _, err := range e.Settle(context.Background(), endings[2:]) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var upkeep sync.WaitGroup
	upkeep.Go(func() {
		if err := e.Run(ctx); err != nil {
			p.t.Errorf("Run: %v", err)
		}
	})
	for _, name := range watched() {
		testenv.Eventually(p.t, "the engine to "+name, func() bool { return p.count(name) > 0 })
	}
	stop()
	upkeep.Wait()
	p.settle(held, claim.Done{Next: "Cleanup"}, nil)
	p.check(limit + locked)
}

// check looks at how each statement went through the large tables.
func (p *planned) check(most int) {
	p.t.Helper()
	for name, list := range p.plans {
		read := 0.0
		for _, root := range list {
			p.statements[name].checkIndexes(p.t, name, root)
			read = 0
			for _, n := range root.all() {
				if n.Index == "work_items_ready" {
					read += (n.Rows + n.Removed) * n.Loops
				}
			}
			if name == "claim_ingest" && int(read) > most {
				p.t.Errorf("a claim read %v rows, want at most %d", read, most)
			}
		}
		p.t.Logf("%d × %s, the last one read %v ready entries", len(list), name, read)
	}
}
