package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// approved has two people decide to delete objects, each with an item of its own.
func (a *archive) approved(first, second string, identifiers ...string) record.DeletionRequest {
	a.t.Helper()
	d, err := requests.In(a.Registry).RequestDeletion(context.Background(), first, identifiers)
	if err == nil {
		d, err = requests.In(a.Registry).ApproveDeletion(context.Background(), d.ID, second, paper)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return d
}

// working makes an item one that a worker runs, and is the work of that worker.
func (a *archive) working(item int64) requests.DeletionWork {
	a.t.Helper()
	a.scene(fmt.Sprintf(`UPDATE work_items SET status = 'Started', claim_token = claim_token + 1, lease_expires_at = now() + interval '1 hour', node = 'n', pid = 1,
		worker = 'w', attempt = 1, stage_started_at = now() WHERE id = %d`, item))
	w := requests.DeletionWork{Item: item}
	must.Do(a.t, a.db.QueryRow(context.Background(), `SELECT claim_token, intellectual_object_id, coalesce(generic_file_id, 0), deletion_request_id FROM work_items WHERE id = $1`, item).
		Scan(&w.Token, &w.ObjectID, &w.FileID, &w.DeletionID))
	return w
}

const itemOf = `SELECT id FROM work_items WHERE deletion_request_id = $1 AND object_identifier = $2`

// An approved deletion waits, whatever is done to its items, and its time is fixed when it is
// approved: by the institution's policy, or else by the installation's.
func TestApprovedDeletionWaits(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(3, "Standard")
	first, second := a.twoAdmins()
	if d := a.approved(first, second, "test.edu/o3"); d.Waits(time.Now()) {
		t.Errorf("with a wait of 0 it begins at %s", d.BeginsAt)
	}
	a.exec(`UPDATE request_settings SET deletion_wait = '24 hours'`)
	d := a.approved(first, second, "test.edu/o1")
	a.exec(`UPDATE institutions SET deletion_wait = '48 hours' WHERE identifier = 'test.edu'`)
	longer := a.approved(first, second, "test.edu/o2")
	a.exec(`UPDATE institutions SET deletion_wait = '0' WHERE identifier = 'test.edu'`)
	a.exec(`UPDATE request_settings SET deletion_wait = '0'`)
	for _, one := range []struct {
		d     record.DeletionRequest
		hours float64
	}{{d, 24}, {longer, 48}} {
		now, err := requests.In(a.Registry).DeletionRequest(ctx, one.d.ID)
		if err != nil || now.BeginsAt == nil || now.BeginsAt.Sub(*now.ApprovedAt).Hours() != one.hours || !now.Waits(time.Now()) {
			t.Errorf("request = %+v, %v; want it to wait for %v hours", now, err, one.hours)
		}
		if !value[bool](a, `SELECT bool_and(w.run_at = d.begins_at) FROM work_items w JOIN deletion_requests d ON d.id = w.deletion_request_id WHERE d.id = $1`, one.d.ID) {
			t.Errorf("the items of request %d are due before it begins", one.d.ID)
		}
	}

	item := value[int64](a, itemOf, d.ID, "test.edu/o1")
	says := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, fmt.Sprintf("Deletion request %d begins in ", d.ID)) || !strings.Contains(text, "cancelling the request stops it") {
			t.Errorf("%s says %q", what, text)
		}
	}
	says("why_not", value[string](a, `SELECT string_agg(reason || ' ' || detail, ' ') FROM why_not($1)`, item))
	_, err := requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o1"})
	says("a restoration", fmt.Sprint(err))
	_, _, waits, err := requests.In(a.Registry).LiveRequests(ctx, "test.edu/o1")
	says("a new version", fmt.Sprint(waits, err))
	says("the alert", value[string](a, `SELECT content FROM alerts WHERE type = 'Deletion Confirmed' AND deletion_request_id = $1`, d.ID))

	a.exec(`SELECT requeue($1)`, item)
	a.exec(`UPDATE work_items SET run_at = now() - interval '1 hour', priority = -100 WHERE id = $1`, item)
	w := a.working(item)
	order, err := requests.In(a.Registry).AuthoriseDeletion(ctx, w)
	if err != nil || order.For < 23*time.Hour || order.For > 24*time.Hour {
		t.Errorf("order = %+v, %v; want it to wait for about a day", order, err)
	}
	says("the order", order.Waits)
	if n := value[int](a, `SELECT count(*) FROM intellectual_objects WHERE deleted_by_item IS NOT NULL`); n != 0 {
		t.Errorf("%d objects are marked as being deleted", n)
	}
	a.scene(fmt.Sprintf(`UPDATE deletion_requests SET begins_at = now() WHERE id = %d`, d.ID))
	if order, err = requests.In(a.Registry).AuthoriseDeletion(ctx, w); err != nil || order.Waits != "" {
		t.Errorf("order = %+v, %v; want it to begin", order, err)
	}
	for _, wait := range []string{"-1 hours", "91 days"} {
		if _, err := a.db.Exec(ctx, `UPDATE institutions SET deletion_wait = $1`, wait); err == nil {
			t.Errorf("a wait of %s is taken", wait)
		}
	}
}

// Any admin of the institution stops an approved deletion, and any of the archive; nobody else.
func TestWhoStopsADeletion(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	a.institution("other.edu")
	a.user("third@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	a.user("staff@archive.org", registry.RoleAdmin, "")
	a.user("reader@test.edu", registry.RoleInstitutionalUser, "test.edu")
	a.user("auditor@test.edu", registry.RoleAuditor, "test.edu")
	a.user("operator@archive.org", registry.RoleOperator, "")
	a.user("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	a.user("gone@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	a.exec(`UPDATE users SET deactivated_at = now() WHERE email = 'gone@test.edu'`)
	for by, may := range map[string]bool{
		first: true, second: true, "third@test.edu": true, "staff@archive.org": true,
		"reader@test.edu": false, "auditor@test.edu": false, "operator@archive.org": false, "admin@other.edu": false, "gone@test.edu": false,
	} {
		d := a.approved(first, second, "test.edu/o1")
		_, err := requests.In(a.Registry).CancelDeletion(ctx, d.ID, by, "")
		if (err == nil) != may {
			t.Errorf("%s: %v; may = %t", by, err, may)
		}
		_, typed := a.db.Exec(ctx, `UPDATE deletion_requests SET cancelled_by = (SELECT id FROM users WHERE email = $2) WHERE id = $1`, d.ID, by)
		if typed == nil {
			t.Errorf("%s: typed, it is cancelled although %t", by, may)
		}
		if !may {
			if n := value[int](a, `SELECT count(*) FROM work_items WHERE deletion_request_id = $1 AND status = 'Pending'`, d.ID); n != 1 {
				t.Errorf("%s: %d items are left", by, n)
			}
			must.Get(requests.In(a.Registry).CancelDeletion(ctx, d.ID, first, ""))(t)
		}
	}
}

// A stopped deletion ends each of its items that has not ended, whatever its state, and never
// goes on again. The alert says what had been removed.
func TestStoppedDeletionStaysStopped(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(5, "Standard")
	first, second := a.twoAdmins()
	d := a.approved(first, second, "test.edu/o1", "test.edu/o2", "test.edu/o3", "test.edu/o4", "test.edu/o5")
	of := func(n int) int64 { return value[int64](a, itemOf, d.ID, fmt.Sprint("test.edu/o", n)) }
	work := a.working(of(2))
	a.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, of(3))
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, of(4))
	a.scene(fmt.Sprintf(`UPDATE work_items SET status = 'Success', stage = 'Resolve', retry = false WHERE id = %d`, of(5)))
	a.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, removed_at)
		SELECT $1, id, t, 'b', 'k', 'u', now() FROM generic_files, unnest('{A,B}'::text[]) t WHERE identifier = 'test.edu/o5/data/f'`, of(5))
	stopped, err := requests.In(a.Registry).CancelDeletion(ctx, d.ID, second, "the wrong objects")
	if err != nil || stopped.CancelledBy != second || stopped.Cancelled != 4 || stopped.Done != 1 || !stopped.Removed || stopped.Stoppable() {
		t.Fatalf("stopped = %+v, %v", stopped, err)
	}
	if got := value[string](a, `SELECT string_agg(status || ' ' || retry, ', ' ORDER BY object_identifier) FROM work_items`); got !=
		"Cancelled false, Cancelled false, Cancelled false, Cancelled false, Success false" {
		t.Errorf("items: %s", got)
	}
	text := value[string](a, `SELECT content FROM alerts WHERE type = 'Deletion Cancelled'`)
	for _, want := range []string{second, "1 of its 5 items were done", "2 copies had been removed", "Workers ran 1 of its items", "Reason: the wrong objects"} {
		if !strings.Contains(text, want) {
			t.Errorf("the alert does not say %q: %s", want, text)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM work_item_audit u JOIN work_items w ON w.id = u.work_item_id WHERE w.deletion_request_id = $1 AND u.after ->> 'status' = 'Cancelled'`, d.ID); n != 4 {
		t.Errorf("%d of 4 ends are in the audit", n)
	}
	if _, err := requests.In(a.Registry).AuthoriseDeletion(ctx, work); !errors.Is(err, registry.ErrLost) && !errors.Is(err, requests.ErrUnauthorised) {
		t.Errorf("the worker that ran it goes on: %v", err)
	}
	_, err = requests.In(a.Registry).CancelDeletion(ctx, d.ID, first, "")
	refusedFor(t, err, "cancelled already")
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	refusedFor(t, err, "cancelled already")
	for _, sql := range []string{
		`UPDATE deletion_requests SET cancelled_by = NULL, cancelled_at = NULL WHERE id = $1`,
		`UPDATE deletion_requests SET approved_at = now() WHERE id = $1`,
		`UPDATE deletion_requests SET begins_at = now() WHERE id = $1`,
		`UPDATE work_items SET status = 'Pending' WHERE deletion_request_id = $1 AND status = 'Cancelled'`,
		`SELECT requeue(id) FROM work_items WHERE deletion_request_id = $1 AND status = 'Cancelled'`,
		`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, intellectual_object_id, deletion_request_id)
			SELECT institution_id, action, 'Requested', name, bucket, etag, size, bag_date, object_identifier, intellectual_object_id, deletion_request_id
			FROM work_items WHERE deletion_request_id = $1 AND object_identifier = 'test.edu/o1'`,
	} {
		if _, err := a.db.Exec(ctx, sql, d.ID); err == nil {
			t.Errorf("%s: done", sql)
		}
	}

	// What was carried out cannot be stopped, and a new request is another one.
	again := a.approved(first, second, "test.edu/o1")
	a.scene(fmt.Sprintf(`UPDATE work_items SET status = 'Success', stage = 'Resolve', retry = false WHERE deletion_request_id = %d`, again.ID))
	_, err = requests.In(a.Registry).CancelDeletion(ctx, again.ID, first, "")
	refusedFor(t, err, "carried out already")
	one := a.approved(first, second, "test.edu/o2")
	a.exec(`SELECT cancel(id) FROM work_items WHERE deletion_request_id = $1`, one.ID)
	_, err = requests.In(a.Registry).CancelDeletion(ctx, one.ID, first, "")
	refusedFor(t, err, "nothing of it is left to stop")
}

// However an approval, two stops and a worker's last check meet: a request that is cancelled has
// no live item, and no worker is let on after that.
func TestStopMeetsApprovalAndWorker(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	records := requests.In(a.Registry)
	together := func(do ...func()) {
		var all sync.WaitGroup
		for _, one := range do {
			all.Go(one)
		}
		all.Wait()
	}
	for round := range 15 {
		d := must.Get(records.RequestDeletion(ctx, first, []string{"test.edu/o1"}))(t)
		var approved, one, two error
		stop := func(by string, err *error) func() {
			return func() { _, *err = records.CancelDeletion(ctx, d.ID, by, "") }
		}
		together(func() { _, approved = records.ApproveDeletion(ctx, d.ID, second, paper) }, stop(first, &one), stop(second, &two))
		if (one == nil) == (two == nil) || approved != nil && !errors.Is(approved, registry.ErrRefused) {
			t.Fatalf("round %d: approved %v, stopped %v and %v", round, approved, one, two)
		}
		d = a.approved(first, second, "test.edu/o1")
		w := a.working(value[int64](a, itemOf, d.ID, "test.edu/o1"))
		together(func() { _, approved = records.AuthoriseDeletion(ctx, w) }, stop(first, &one))
		if one != nil || approved != nil && !errors.Is(approved, registry.ErrLost) && !errors.Is(approved, requests.ErrUnauthorised) {
			t.Fatalf("round %d: authorised %v, stopped %v", round, approved, one)
		}
		if _, err := records.AuthoriseDeletion(ctx, w); err == nil {
			t.Fatalf("round %d: a worker goes on after the stop", round)
		}
		if n := value[int](a, `SELECT count(*) FROM work_items w JOIN deletion_requests d ON d.id = w.deletion_request_id
			WHERE d.cancelled_at IS NOT NULL AND w.status <> 'Cancelled'`); n != 0 {
			t.Fatalf("round %d: %d items of cancelled requests are live", round, n)
		}
	}
}
