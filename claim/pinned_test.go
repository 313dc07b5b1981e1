package claim_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// pin takes a snapshot that keeps vacuum, which is off as well, from removing
// anything, until the test ends.
func (q *queue) pin() {
	q.t.Helper()
	for _, table := range []string{"work_items", "work_item_attempts", "pipeline_messages_0", "uploads_in_work"} {
		q.exec(fmt.Sprintf(`ALTER TABLE %s SET (autovacuum_enabled = off)`, table))
	}
	tx := must.Get(q.db.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}))(q.t)
	q.t.Cleanup(func() {
		if _, err := tx.Exec(context.Background(), `SELECT`); err != nil {
			q.t.Errorf("the snapshot was not kept to the end: %v", err)
		}
		tx.Rollback(context.Background())
	})
	for _, sql := range []string{ // our own sessions do not stay idle for long
		`SET LOCAL idle_in_transaction_session_timeout = 0`, `SELECT count(*) FROM work_items`,
	} {
		must.Get(tx.Exec(context.Background(), sql))(q.t)
	}
}

// Without vacuum the queue works while there is space on the disk.
func TestTheQueueWorksWithoutVacuum(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	c := newCrew(t, testPool(t, url), 800)
	c.q.pin()
	ctx, stop := context.WithCancel(t.Context())
	var crews []*sync.WaitGroup
	for range 2 {
		crews = append(crews, c.start(ctx, workerPool(t, url), 8))
	}
	c.account()
	stop()
	for _, group := range crews {
		group.Wait()
	}
}

// Of 20,000 items that went through a stage while a snapshot was pinned, each has
// left dead entries in the indexes. Who goes by the hints, and by when leases
// lapse, passes them by; who did not would read them all.
func TestWhatIsGoneIsNotReadAgain(t *testing.T) {
	t.Parallel()
	const gone, left, batch = 20_000, 500, 200
	const blocks = gone / 20 // that have them: more rows do not fit into one
	url := testenv.DatabaseURL(t)
	q := &queue{t, testPool(t, url)}
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	q.exec(fmt.Sprintf(`DO $do$ BEGIN
		SET LOCAL session_replication_role = replica;
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, virtual_start, bag_date, object_identifier)
		SELECT i.id, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'receiving', repeat('e', 32), 1, n * 1000, now(), 'test.edu/bag-' || n
		FROM institutions i, generate_series(1, %d) n;
	END $do$`, gone+left))
	q.exec(`UPDATE stage_settings SET heartbeat = '100 milliseconds', lease = '300 milliseconds', overdue = '1 millisecond'`)
	q.pin()
	q.explain()

	p := &planned{queue: queue{t, q.db}}
	e := p.listen(url)
	for range gone / batch {
		through(t, e, batch)
	}
	for range 20 {
		through(t, e, 10)
	}
	read := p.reads("claim_ingest", "work_items_ready")
	t.Logf("blocks read by claims of 10: %v", read[len(read)-20:])
	if least := slices.Min(read[len(read)-20:]); least > 100 {
		t.Errorf("a claim of 10 items read %d blocks, want at most 100", least)
	}

	must.Do(t, e.FindOverdue(t.Context()))
	if read := p.reads("overdue_ingest", "work_items_ready"); read[0] > 100 {
		t.Errorf("a look for overdue priorities read %d blocks, want at most 100", read[0])
	}

	q.exec(`UPDATE stage_settings SET cap = 1000000 WHERE action = 'Ingest' AND stage = 'Receive'`)
	capped := p.listen(url) // which learns of the cap, and of nothing that is gone
	through(t, capped, 10)
	if read := p.reads("claim_ingest", "work_items_ready"); read[0] < blocks {
		t.Errorf("a claim without a cursor read %d blocks: the %d items that are gone are not in its way", read[0], gone)
	}
	testenv.Eventually(t, "the leases to be long over", func() bool {
		through(t, capped, 1)
		read := p.reads("claim_ingest", "work_items_lease")
		return read[len(read)-1] <= 100
	})

	for range 2 { // the first round goes all the way
		must.Get(capped.Reap(t.Context()))(t)
	}
	if read := p.reads("reap_due", "work_items_lease"); read[0] < blocks {
		t.Errorf("a round that goes all the way read %d blocks: the leases that are over are not in its way", read[0])
	}
	testenv.Eventually(t, "a round to begin where the one before did", func() bool {
		must.Get(capped.Reap(t.Context()))(t)
		read := p.reads("reap_due", "work_items_lease")
		return read[len(read)-1] <= 200
	})
}

// through takes n items through Receive.
func through(t *testing.T, e *claim.Engine, n int) {
	t.Helper()
	items, err := e.Claim(t.Context(), at("Receive", n), n)
	if err != nil || len(items) != n {
		t.Fatalf("Claim = %d items, %v; want %d", len(items), err, n)
	}
	var endings []claim.Ending
	for _, i := range items {
		endings = append(endings, claim.Ending{Item: i, Done: claim.Done{Next: "Validate"}})
	}
	for _, err := range e.Settle(t.Context(), endings) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reads reports how many blocks each statement of a kind read by an index.
func (p *planned) reads(purpose, index string) (blocks []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, root := range p.plans[purpose] {
		n := 0
		for _, node := range root.all() {
			if node.Index == index {
				n += node.Hit + node.Read
			}
		}
		blocks = append(blocks, n)
	}
	return blocks
}
