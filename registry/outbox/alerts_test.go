package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// item puts an ingest of university A into the queue.
func (h *house) item(name string) int64 {
	h.t.Helper()
	return value[int64](h, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		VALUES (1001, 'Ingest', 'Receive', $1::text, 'receiving.a.edu', md5($1::text), 1000, now()) RETURNING id`, name)
}

// park ends items by the transition that workers use.
func (h *house) park(status, code string, items ...int64) {
	h.t.Helper()
	h.exec(`SELECT move_items((SELECT array_agg(jsonb_populate_record(unchanged(w), jsonb_build_object('status', $1::text, 'code', $2::text, 'note', 'It broke.')))
		FROM work_items w WHERE w.id = ANY ($3)))`, status, code, items)
}

// alerts are all as lines: type, institution, count, subject.
func (h *house) alerts() string {
	h.t.Helper()
	return value[string](h, `SELECT coalesce(string_agg(concat_ws(' | ', type, coalesce(institution_id, 0), count, subject), E'\n' ORDER BY id), '') FROM alerts`)
}

func (h *house) count() {
	h.t.Helper()
	must.Do(h.t, h.Tidy(h.t.Context()))
}

// Of many items that fail alike, people get one alert with a number.
func TestFailedItemsAreOneAlert(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var items []int64
	for n := range 6 {
		items = append(items, h.item(fmt.Sprintf("bag-%d.tar", n)))
	}
	h.park("Failed", "invalid-bag", items[0])
	h.park("Failed", "invalid-bag", items[1], items[2])
	h.park("Failed", "virus", items[3])
	h.park("Suspended", "store-unavailable", items[4])
	h.count()
	want := strings.Join([]string{
		fmt.Sprintf("Item Failed | 1001 | 3 | Item %d failed at Receive: bag-0.tar", items[0]),
		fmt.Sprintf("Item Failed | 0 | 3 | Item %d failed at Receive: bag-0.tar", items[0]),
		fmt.Sprintf("Item Failed | 1001 | 1 | Item %d failed at Receive: bag-3.tar", items[3]),
		fmt.Sprintf("Item Failed | 0 | 1 | Item %d failed at Receive: bag-3.tar", items[3]),
		fmt.Sprintf("Item Suspended | 0 | 1 | Item %d is suspended at Receive: bag-4.tar", items[4]), // a person of the archive decides
	}, "\n")
	if got := h.alerts(); got != want {
		t.Errorf("alerts:\n%s\nwant\n%s", got, want)
	}
	h.exec(`UPDATE alerts SET created_at = now() - interval '16 minutes'`)
	h.park("Failed", "invalid-bag", items[5]) // nobody has to count before people learn of it
	if got := value[int64](h, `SELECT count(*) FROM alerts WHERE type = 'Item Failed' AND error_code = 'invalid-bag'`); got != 4 {
		t.Errorf("after a quarter of an hour there are %d alerts, want two new ones", got)
	}
	h.count()
	if got := value[int64](h, `SELECT count(*) FROM alert_repeats`); got != 0 {
		t.Errorf("%d repeats are left", got)
	}
}

// What is counted late is counted where it belongs: not all of it to the alert that came last.
func TestRepeatsAreOfTheirAlert(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO alerts (type, subject, content, stage, error_code, created_at)
		SELECT 'Item Failed', 'At ' || minutes, 'C', 'Store', 'e', now() - make_interval(mins => minutes) FROM unnest('{60,40,20}'::int[]) minutes`)
	h.exec(`INSERT INTO alert_repeats (type, stage, error_code, subject, content, at)
		SELECT 'Item Failed', 'Store', 'e', 'At ' || minutes, 'C', now() - make_interval(mins => minutes) FROM unnest('{58,57,46,39,10,1}'::int[]) minutes`)
	if n := value[int](h, `SELECT count_repeats()`); n != 6 {
		t.Errorf("%d were counted", n)
	}
	// A minute ago there was no alert to count it to: one is made.
	if got := value[string](h, `SELECT string_agg(subject || ' ' || count, ', ' ORDER BY created_at) FROM alerts`); got != "At 60 4, At 40 2, At 20 2, At 1 1" {
		t.Error(got)
	}
	if n := value[int](h, `SELECT count_repeats()`); n != 0 {
		t.Errorf("%d were counted again", n)
	}
}

// An item that goes on, or is called off, alerts nobody.
func TestItemsThatDoNotFailAlertNobody(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.park("Cancelled", "", h.item("a.tar"))
	h.park("Pending", "", h.item("b.tar"))
	h.count()
	if got := h.alerts(); got != "" {
		t.Errorf("alerts: %s", got)
	}
}

// Transactions that fail items in different orders wait for each other neither at the
// alert nor at its count, and what a rolled back one would have reported comes with the
// others.
func TestAlertsDoNotMakeTransactionsWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first := must.Get(h.db.Begin(t.Context()))(t)
	raise := func(code string) string {
		return `SELECT raise_alert('Item Failed', NULL, 'Item failed', 'Text', 'Store', '` + code + `')`
	}
	must.Get(first.Exec(t.Context(), raise("x")))(t)
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := h.db.Exec(ctx, raise("y")+`; `+raise("x")); err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	must.Do(t, first.Rollback(t.Context()))
	h.count()
	if got := value[string](h, `SELECT string_agg(error_code || ' ' || n, ', ' ORDER BY error_code) FROM (SELECT error_code, sum(count) AS n FROM alerts GROUP BY 1) s`); got != "x 4, y 4" {
		t.Errorf("counted are %s, want x 4, y 4", got)
	}
	if got := value[int64](h, `SELECT count(DISTINCT alert_id) FROM mail_outbox m JOIN alerts a ON a.id = m.alert_id WHERE a.error_code = 'x'`); got != 1 {
		t.Errorf("%d alerts of what was rolled back and came again are mailed, want 1", got)
	}
}

func (h *house) raise(want string) {
	h.t.Helper()
	h.exec(`DELETE FROM alerts`)
	must.Get(h.RaiseAlerts(h.t.Context(), 90))(h.t)
	if got := h.alerts(); got != want {
		h.t.Errorf("alerts:\n%s\nwant\n%s", got, want)
	}
}

// again raises what is due once more: nothing is, since people know of it.
func (h *house) again() {
	h.t.Helper()
	if made, err := h.RaiseAlerts(h.t.Context(), 90); err != nil || made != 0 {
		h.t.Errorf("a second round makes %d alerts, %v", made, err)
	}
}

func TestApprovalsThatWait(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO deletion_requests (institution_id, requested_by) SELECT 1001, id FROM users WHERE email = 'a-admin@a.edu'`)
	age := func(hours int) {
		h.exec(`ALTER TABLE deletion_requests DISABLE TRIGGER USER; UPDATE deletion_requests SET requested_at = now() - interval '1 hour' * ` +
			fmt.Sprint(hours) + `; ALTER TABLE deletion_requests ENABLE TRIGGER USER`)
	}
	h.raise("")
	age(25)
	h.raise("Approval Waits | 1001 | 1 | Deletion request 1 waits for approval")
	h.again()
	age(73)
	if made, err := h.RaiseAlerts(t.Context(), 90); err != nil || made != 1 {
		t.Errorf("after three days: %d alerts, %v", made, err)
	}
	h.again()
	h.exec(`UPDATE deletion_requests SET cancelled_by = requested_by, cancelled_at = now()`)
	h.raise("")
}

func TestRetrievalsThatWaitOrExpire(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	h.exec(`INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier, created_at)
		VALUES (1001, 'Glacier Restore', 'Requested', 'Suspended', false, 'x.tar', 'b', md5('x'), 1, now(), 'a.edu/x', now() - interval '25 hours'),
			(1001, 'Restore Object', 'Requested', 'Pending', true, 'y.tar', 'b', md5('y'), 1, now(), 'a.edu/y', now())`)
	h.exec(`INSERT INTO retrievals (work_item_id, storage_class, tier, days, files, bytes, price, cap) SELECT id, 'GLACIER', 'Bulk', 5, 1, 1, 200, 100 FROM work_items WHERE name = 'x.tar'`)
	h.raise("Approval Waits | 1001 | 1 | The cost of a retrieval waits for approval: item 1")
	h.again()
	h.exec(`UPDATE retrievals SET price = 1, next_item = 2, readable_until = now() + interval '3 days'`)
	h.raise("")
	h.exec(`UPDATE retrievals SET readable_until = now() + interval '3 hours'`)
	h.raise("Restoration Ready Soon To Expire | 1001 | 1 | Archived copies expire soon: item 2")
	h.again()
	h.exec(`UPDATE work_items SET status = 'Success', retry = false, stage = 'Resolve' WHERE id = 2`)
	h.raise("")
}

func TestLostWorkersAndOverdueWork(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	lose := func(n int) {
		h.exec(`DELETE FROM worker_processes`)
		h.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, heartbeat, ended_at, ending)
			SELECT 'w' || n, 'node', n, 'host', 0, '10 s', now(), CASE n % 2 WHEN 0 THEN 'oom' ELSE 'silent' END FROM generate_series(1, $1) n`, n)
		h.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, heartbeat, ended_at, ending) VALUES ('stopped', 'node', 9, 'host', 0, '10 s', now(), 'stopped')`)
	}
	lose(2)
	h.raise("")
	lose(3)
	h.raise("Worker Lost | 0 | 1 | 3 workers were lost within an hour")
	h.again()
	lose(0)

	id := h.item("late.tar")
	h.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	h.exec(`UPDATE work_items SET run_at = now() - interval '59 minutes' WHERE id = $1`, id)
	h.raise("")
	h.exec(`UPDATE work_items SET run_at = now() - interval '61 minutes' WHERE id = $1`, id)
	h.raise("Queue Overdue | 0 | 1 | Items wait for too long: Ingest, Receive")
	h.again()
	h.exec(`SELECT pause_stage('Receive', 'for a test', 'Ingest')`)
	h.raise("")
}

// Of many processes that find a state at once, one alerts the staff.
func TestStateIsOneAlert(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for state := range 5 {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-begin
				if _, err := h.db.Exec(t.Context(), `SELECT alert_staff('Service Held', 'Refuses a request', 'Text', 's3', $1::text, '1 day')`, fmt.Sprint(state)); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
		if n := value[int64](h, `SELECT count(*) FROM alerts WHERE error_code = $1::text`, fmt.Sprint(state)); n != 1 {
			t.Errorf("staff got %d alerts of one state", n)
		}
	}
}
