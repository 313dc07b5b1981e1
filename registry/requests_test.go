package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// user registers a person.
func (a *archive) user(email, role, institution string) record.User {
	a.t.Helper()
	return must.Get(a.AddUser(context.Background(), record.User{Email: email, Name: "Some Body", Role: role, Institution: institution}))(a.t)
}

// twoAdmins are those of test.edu.
func (a *archive) twoAdmins() (first, second string) {
	a.t.Helper()
	return a.user("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu").Email, a.user("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu").Email
}

// objects puts so many objects on record, test.edu/o1 and so on, each with a file
// data/f that has a copy.
func (a *archive) objects(n int, option string) {
	a.t.Helper()
	a.exec(`
		WITH o AS (
			INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, storage_option)
			SELECT $1, 'test.edu/o' || n, 'O', 'o' || n, 'p', 'e' || n, $3 FROM generate_series(1, $2) n RETURNING id, identifier
		), f AS (
			INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
			SELECT $1, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', 7, $3, now() FROM o RETURNING id, uuid
		)
		INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'https://x/' || uuid, 'Standard-VA', 'b', uuid, now(), now() FROM f`, a.in.ID, n, option)
}

func refusedFor(t *testing.T, err error, why string) {
	t.Helper()
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), why) {
		t.Errorf("error = %v, want it refused because of %q", err, why)
	}
}

// paper is why the second person's approval is entered by a program.
const paper = "form 7, signed on 24 November"

// A deletion takes two people, and becomes an item for each object and file once.
func TestDeletionTakesTwoPeople(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(3, "Standard")
	first, second := a.twoAdmins()
	a.institution("other.edu")
	a.user("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	a.user("reader@test.edu", registry.RoleInstitutionalUser, "test.edu")
	a.user("staff@archive.org", registry.RoleAdmin, "")

	for by, why := range map[string]string{
		"nobody@test.edu": "no user", "reader@test.edu": "no institutional admin", "staff@archive.org": "no institutional admin",
	} {
		_, err := requests.In(a.Registry).RequestDeletion(ctx, by, []string{"test.edu/o1"})
		refusedFor(t, err, why)
	}
	for _, identifier := range []string{"test.edu/nothing", "test.edu/o1/data/none"} {
		if _, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", identifier}); !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), identifier) {
			t.Errorf("%s: %v, want it not found", identifier, err)
		}
	}
	if _, err := requests.In(a.Registry).RequestDeletion(ctx, "admin@other.edu", []string{"test.edu/o1"}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("of another institution: %v, want it not found", err)
	}
	_, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", "test.edu/o1/data/f"})
	refusedFor(t, err, "its object is named too")

	d, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", "test.edu/o2/data/f", "test.edu/o1"})
	if err != nil || d.Objects != 1 || d.Files != 1 || d.RequestedAs == "" || d.ApprovedAs != "" {
		t.Fatalf("request = %+v, %v", d, err)
	}
	if n := value[int](a, `SELECT count(*) FROM work_items`); n != 0 {
		t.Fatalf("%d items before anybody approved", n)
	}
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, " ")
	refusedFor(t, err, "no paper is named")
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, strings.ToUpper(first), paper)
	refusedFor(t, err, "nobody approves the own request")
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, "staff@archive.org", paper)
	refusedFor(t, err, "the institution has another admin")
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, "reader@test.edu", paper)
	refusedFor(t, err, "no institutional admin")
	if _, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, "admin@other.edu", paper); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("approved by another institution: %v, want it not found", err)
	}
	approved, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	if err != nil || approved.Items != 2 || approved.ApprovedBy != second || approved.OnPaper != paper || approved.ApprovedAs == "" {
		t.Fatalf("approved = %+v, %v", approved, err)
	}
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	refusedFor(t, err, "approved already")
	got := value[string](a, `SELECT string_agg(concat_ws(' ', action, stage, status, note, outcome, object_identifier, generic_file_id IS NOT NULL, size, "user",
		inst_approver), E'\n' ORDER BY id) FROM work_items`)
	want := "Delete Requested Pending Requested by first@test.edu, approved by second@test.edu. Item is pending deletion test.edu/o1 f 7 first@test.edu second@test.edu\n" +
		"Delete Requested Pending Requested by first@test.edu, approved by second@test.edu. Item is pending deletion test.edu/o2 t 7 first@test.edu second@test.edu"
	if got != want {
		t.Errorf("items:\n%s\nwant:\n%s", got, want)
	}
	if n := value[string](a, `SELECT string_agg(type, ', ' ORDER BY id) FROM alerts`); n != "Deletion Requested, Deletion Confirmed" {
		t.Errorf("alerts: %s", n)
	}
	if topics := value[string](a, `SELECT string_agg(topic, ' ') FROM topic_messages`); topics != "delete_item delete_item" {
		t.Errorf("topics: %s", topics)
	}
}

// Where an institution has one active admin, the second person is of the archive.
func TestStaffApprovesWhereAnInstitutionHasOneAdmin(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	a.user("staff@archive.org", registry.RoleAdmin, "")
	d := must.Get(requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1"}))(t)
	a.exec(`UPDATE users SET deactivated_at = now() WHERE email = $1`, second)
	_, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	refusedFor(t, err, "deactivated")
	_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, first, paper)
	refusedFor(t, err, "nobody approves the own request")
	_, err = requests.In(a.Registry).MayApproveDeletion(ctx, d.ID, "staff@archive.org", paper)
	refusedFor(t, err, "had one within seven days")
	a.exec(`UPDATE admins_left SET left_at = now() - interval '7 days'`)
	if _, err := requests.In(a.Registry).MayApproveDeletion(ctx, d.ID, "staff@archive.org", paper); err != nil {
		t.Error(err)
	}
	if n := value[int](a, `SELECT count(*) FROM deletion_requests WHERE approved_at IS NOT NULL`); n != 0 {
		t.Error("to ask has approved it")
	}
	if d, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, "staff@archive.org", paper); err != nil || d.ApprovedBy != "staff@archive.org" {
		t.Errorf("approved = %+v, %v", d, err)
	}
}

// A cancelled request is never approved.
func TestCancelledDeletionIsOver(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	d := must.Get(requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1"}))(t)
	if d, err := requests.In(a.Registry).CancelDeletion(ctx, d.ID, second, ""); err != nil || d.CancelledBy != second {
		t.Fatalf("cancelled = %+v, %v", d, err)
	}
	_, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	refusedFor(t, err, "cancelled already")
	if n := value[int](a, `SELECT count(*) FROM work_items`); n != 0 {
		t.Errorf("%d items", n)
	}
}

// What was stored too short a time ago stays, by its storage option, both when it is
// asked for and when it is approved.
func TestRetentionIsKept(t *testing.T) {
	t.Parallel()
	for option, days := range map[string]int{"Standard": 0, "Wasabi-TX": 90, "Glacier-OH": 90, "Glacier-Deep-VA": 180} {
		a, ctx := newArchive(t), context.Background()
		a.objects(1, option)
		first, second := a.twoAdmins()
		age := func(days int) {
			a.exec(`UPDATE intellectual_objects SET created_at = now() - $1 * interval '1 day'`, days)
			a.exec(`UPDATE generic_files SET created_at = now() - $1 * interval '1 day'`, days)
		}
		for _, identifier := range []string{"test.edu/o1", "test.edu/o1/data/f"} {
			if days > 0 {
				age(days - 1)
				_, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{identifier})
				refusedFor(t, err, fmt.Sprintf("must be kept for %d days", days))
				a.exec(`UPDATE intellectual_objects SET created_at = now() - interval '10 years'`)
				_, err = requests.In(a.Registry).RequestDeletion(ctx, first, []string{identifier}) // a file is younger than its object
				refusedFor(t, err, fmt.Sprintf("must be kept for %d days", days))
			}
			age(days)
			d, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{identifier})
			if err != nil {
				t.Fatalf("%s after %d days: %v", option, days, err)
			}
			if days > 0 {
				age(days - 1)
				_, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
				refusedFor(t, err, fmt.Sprintf("must be kept for %d days", days))
				age(days)
			}
			if _, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper); err != nil {
				t.Errorf("%s after %d days: %v", option, days, err)
			}
			a.exec(`SELECT cancel(id) FROM work_items WHERE retry`)
		}
	}
}

// While anything is in work on an object nothing of it is deleted or given back; one
// that cannot go keeps back all that its request names.
func TestPendingWorkHoldsBackRequests(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(2, "Standard")
	first, second := a.twoAdmins()
	d := must.Get(requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", "test.edu/o2"}))(t)
	for what, begin := range map[string]func() int64{
		"ingest": func() int64 { return a.upload("e", time.Now(), "o2.tar")[0] },
		"restoration of the object": func() int64 {
			r := must.Get(requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o2"}))(t)
			return r.Item.ID
		},
		"restoration of a file": func() int64 {
			r := must.Get(requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o2/data/f", File: true}))(t)
			return r.Item.ID
		},
	} {
		item := begin()
		why := fmt.Sprintf("item %d is in the queue for the same", item)
		_, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
		refusedFor(t, err, why)
		_, err = requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o2"})
		refusedFor(t, err, why)
		for _, q := range []requests.RestorationRequest{{Identifier: "test.edu/o2"}, {Identifier: "test.edu/o2/data/f", File: true}} {
			_, err := requests.In(a.Registry).RequestRestoration(ctx, q)
			refusedFor(t, err, why)
		}
		if n := value[int](a, `SELECT count(*) FROM work_items WHERE retry`); n != 1 {
			t.Errorf("%s: %d items are live, want that one", what, n)
		}
		a.exec(`SELECT cancel($1)`, item)
	}
	if d, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper); err != nil || d.Items != 2 {
		t.Errorf("approved = %+v, %v", d, err)
	}
}

// Two files of an object may be given back at once, one file not twice.
func TestFilesOfOneObjectDoNotHoldBackEachOther(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, intellectual_object_id, 'test.edu/o1/data/g', gen_random_uuid(), 'x/y', 1, storage_option, now() FROM generic_files`)
	ask := func(path string) error {
		_, err := requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o1" + path, File: path != ""})
		return err
	}
	for _, path := range []string{"/data/f", "/data/g"} {
		if err := ask(path); err != nil {
			t.Error(err)
		}
		refusedFor(t, ask(path), "same file")
	}
	refusedFor(t, ask(""), "same object")
}

// A parked request comes back only if nothing else has begun in the meantime.
func TestParkedRequestComesBackAlone(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	r := must.Get(requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o1"}))(t)
	a.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, r.Item.ID)
	ingest := a.upload("e", time.Now(), "o1.tar")[0]
	_, err := a.Requeue(ctx, r.Item.ID, "")
	refusedFor(t, err, fmt.Sprintf("item %d is in the queue for the same object: Ingest", ingest))
	testenv.Refused(t, a.db, fmt.Sprintf("item %d is in the queue for the same object: Ingest", ingest),
		`UPDATE work_items SET status = 'Pending' WHERE id = $1`, r.Item.ID)
	a.exec(`SELECT cancel($1)`, ingest)
	if item, err := a.Requeue(ctx, r.Item.ID, ""); err != nil || item.Status != "Pending" {
		t.Errorf("requeued = %+v, %v", item, err)
	}
}

// Nothing makes an item of a deletion that was not approved: no INSERT, and no
// requeue of one whose approval was taken back by hand.
func TestUnapprovedDeletionIsNeverInTheQueue(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(2, "Standard")
	first, second := a.twoAdmins()
	d := must.Get(requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1"}))(t)
	const insert = `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, intellectual_object_id,
			generic_file_id, inst_approver, deletion_request_id)
		SELECT o.institution_id, 'Delete', 'Requested', 'n', 'b', 'e', 1, now(), o.identifier, o.id, CASE WHEN $3 THEN f.id END, 'x@test.edu', $2
		FROM intellectual_objects o JOIN generic_files f ON f.intellectual_object_id = o.id WHERE o.identifier = $1`
	try := func(what, object string, request any, file bool) {
		if _, err := a.db.Exec(ctx, insert, object, request, file); err == nil || !strings.Contains(err.Error(), "was not approved") {
			t.Errorf("%s: %v, want it refused as not approved", what, err)
		}
	}
	try("not approved", "test.edu/o1", d.ID, false)
	try("without a request", "test.edu/o1", nil, false)
	approved, err := requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper)
	if err != nil || approved.Items != 1 {
		t.Fatal(approved, err)
	}
	a.exec(`SELECT cancel(id) FROM work_items`)
	try("of another object", "test.edu/o2", d.ID, false)
	try("of a file that the request does not name", "test.edu/o1", d.ID, true)
	a.scene(`UPDATE work_items SET status = 'Suspended', retry = false`)
	a.scene(`UPDATE deletion_requests SET approved_by = NULL, approved_at = NULL, begins_at = NULL`)
	if _, err := a.Requeue(ctx, value[int64](a, `SELECT id FROM work_items`), ""); err == nil || !strings.Contains(err.Error(), "was not approved") {
		t.Errorf("requeued without approval: %v", err)
	}
}

// Thousands of objects are one request and as many items, each once.
func TestDeletionOfThousands(t *testing.T) {
	t.Parallel()
	const n = 3000
	a, ctx := newArchive(t), context.Background()
	a.objects(n, "Standard")
	first, second := a.twoAdmins()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("test.edu/o%d", i+1))
	}
	d, err := requests.In(a.Registry).RequestDeletion(ctx, first, names)
	if err != nil {
		t.Fatal(err)
	}
	if d, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper); err != nil || d.Items != n {
		t.Fatalf("%+v, %v", d, err)
	}
	if distinct := value[int](a, `SELECT count(DISTINCT object_identifier) FROM work_items WHERE action = 'Delete' AND retry`); distinct != n {
		t.Errorf("items for %d objects", distinct)
	}
}

// The engine ends many items in one statement, and each of the last ones sees that
// there are no others.
func TestDeletionWhoseItemsEndTogetherIsCompletedOnce(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(3, "Standard")
	first, second := a.twoAdmins()
	d, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", "test.edu/o2", "test.edu/o3"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper); err != nil {
		t.Fatal(err)
	}
	ended := func() int {
		return value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Deletion Completed' AND deletion_request_id = $1`, d.ID)
	}
	const end = `UPDATE work_items SET status = 'Success', stage = 'Resolve', retry = false, claim_token = claim_token + 1 WHERE deletion_request_id = $1 AND object_identifier`
	a.exec(end+` = 'test.edu/o2'`, d.ID)
	if n := ended(); n != 0 {
		t.Errorf("%d alerts while items are left", n)
	}
	a.exec(end+` <> 'test.edu/o2'`, d.ID)
	if n := ended(); n != 1 {
		t.Errorf("%d alerts say that the deletion is completed, want 1", n)
	}
}

// A deletion with an item that was cancelled has not deleted everything, also once that item
// has left the queue.
func TestDeletionWithACancelledItemIsNotCompleted(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(2, "Standard")
	first, second := a.twoAdmins()
	d, err := requests.In(a.Registry).RequestDeletion(ctx, first, []string{"test.edu/o1", "test.edu/o2"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = requests.In(a.Registry).ApproveDeletion(ctx, d.ID, second, paper); err != nil {
		t.Fatal(err)
	}
	testenv.Scene(t, a.db, `WITH gone AS (DELETE FROM work_items WHERE object_identifier = 'test.edu/o1' RETURNING *)
		INSERT INTO work_items_archive SELECT * FROM gone`)
	testenv.Scene(t, a.db, `UPDATE work_items_archive SET status = 'Cancelled', retry = false`)
	a.exec(`UPDATE work_items SET status = 'Success', stage = 'Resolve', retry = false, claim_token = claim_token + 1 WHERE deletion_request_id = $1`, d.ID)
	if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Deletion Completed'`); n != 0 {
		t.Errorf("%d alerts say that all was deleted", n)
	}
}

// The example that AWS gives: 15 million objects of 100 TB in all cost $1,774 by the
// tier Standard and more than $150,000 by Expedited.
func TestRetrievalIsPricedAsAWSDoes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.objects(1, "Glacier-OH")
	a.exec(`UPDATE generic_files SET size = 100::bigint << 40`)
	quote := func(class, tier string) record.Quote {
		t.Helper()
		return must.Get(requests.In(a.Registry).Quote(context.Background(), requests.RestorationRequest{Identifier: "test.edu/o1", Class: class, Tier: tier, Days: 10}))(t)
	}
	for _, tc := range []struct{ class, tier, price string }{
		{"GLACIER", "Standard", "1024.00"},
		{"GLACIER", "Expedited", "3072.01"},
		{"GLACIER", "Bulk", "0.00"},
		{"DEEP_ARCHIVE", "Standard", "2048.00"},
		{"DEEP_ARCHIVE", "Bulk", "256.00"},
	} {
		if q := quote(tc.class, tc.tier); q.Price != tc.price || q.Files != 1 || q.Bytes != 100<<40 || q.NeedsApproval != (tc.price > "1" && tc.price != "0.00") {
			t.Errorf("%s by %s: %+v, want $%s", tc.class, tc.tier, q, tc.price)
		}
	}
	// 15 million requests in addition to the bytes: as many files of an object would be slow to make.
	for tier, want := range map[string]string{"Standard": "1774.00", "Expedited": "153072.00"} {
		got := value[string](a, `SELECT round(102400 * per_gib + 15000 * per_1000_requests, 2)::text FROM retrieval_prices WHERE storage_class = 'GLACIER' AND tier = $1`, tier)
		if got != want {
			t.Errorf("15 million objects by %s cost $%s, want $%s", tier, got, want)
		}
	}
	_, err := requests.In(a.Registry).Quote(context.Background(), requests.RestorationRequest{Identifier: "test.edu/o1", Class: "DEEP_ARCHIVE", Tier: "Expedited", Days: 1})
	refusedFor(t, err, "Standard, Bulk")
}

// What costs more than the cap is not claimable before someone who may has approved
// it, who is not who asked.
func TestCostAboveTheCapNeedsApproval(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(2, "Glacier-OH")
	a.exec(`UPDATE generic_files SET size = 1::bigint << 40`)
	first, second := a.twoAdmins()
	a.user("reader@test.edu", registry.RoleInstitutionalUser, "test.edu")
	a.exec(`UPDATE request_settings SET retrieval_cap = 10`)
	ask := func(identifier, by string) record.Restoration {
		t.Helper()
		return must.Get(requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{By: by, Identifier: identifier, Class: "GLACIER", Tier: "Standard", Days: 10}))(t)
	}
	r := ask("test.edu/o1", strings.ToUpper(first)) // who is the same person
	if r.Item.Status != "Suspended" || r.Item.ErrorCode != "cost-approval" || !r.Item.NeedsAdminReview || !r.Quote.NeedsApproval || r.Quote.Price != "10.24" ||
		!strings.HasPrefix(r.Item.Note, "Requested by "+first+". Restoring 1 files (1099511627776 bytes) from the archive costs about $10.24") {
		t.Fatalf("restoration = %+v", r)
	}
	for by, why := range map[string]string{first: "may not approve", "First@Test.edu": "may not approve", "reader@test.edu": "may not approve"} {
		_, err := requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, by)
		refusedFor(t, err, why)
	}
	if q, err := requests.In(a.Registry).Retrieval(ctx, r.Item.ID); err != nil || q.Approved {
		t.Errorf("retrieval = %+v, %v", q, err)
	}
	if item, err := requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, second); err != nil || item.Status != "Pending" {
		t.Errorf("approved = %+v, %v", item, err)
	}
	if q, err := requests.In(a.Registry).Retrieval(ctx, r.Item.ID); err != nil || !q.Approved {
		t.Errorf("retrieval = %+v, %v", q, err)
	}
	_, err := requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, second)
	refusedFor(t, err, "approved already")
	a.exec(`UPDATE request_settings SET retrieval_cap = 10.24`)
	if r = ask("test.edu/o2", ""); r.Item.Status != "Pending" || r.Quote.NeedsApproval {
		t.Errorf("at the cap: %+v", r)
	}
	_, err = requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, second) // which would requeue it
	refusedFor(t, err, "needs no approval")
}

// Who has requested a restoration does not approve its cost under another address.
func TestCostIsNotApprovedUnderAnotherName(t *testing.T) {
	t.Parallel()
	for _, recorded := range []bool{true, false} {
		a, ctx := newArchive(t), context.Background()
		a.objects(1, "Glacier-OH")
		a.exec(`UPDATE generic_files SET size = 1::bigint << 40; UPDATE request_settings SET retrieval_cap = 10`)
		first, second := a.twoAdmins()
		r := must.Get(requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{By: first, Identifier: "test.edu/o1", Class: "GLACIER", Tier: "Standard", Days: 10}))(t)
		by := "renamed@test.edu"
		if recorded {
			a.exec(`UPDATE users SET email = 'renamed@test.edu' WHERE email = $1`, first)
		} else { // as before there was a column for it
			by = strings.ToUpper(first)
			a.exec(`UPDATE retrievals SET requested_by = NULL`)
		}
		_, err := requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, by)
		refusedFor(t, err, "may not approve")
		if _, err := requests.In(a.Registry).ApproveRetrieval(ctx, r.Item.ID, second); err != nil {
			t.Error(err)
		}
	}
}

// Nobody gets or sees what another institution has.
func TestRestorationIsForOnesOwn(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.objects(1, "Standard")
	a.institution("other.edu")
	a.user("reader@other.edu", registry.RoleInstitutionalUser, "other.edu")
	a.user("reader@test.edu", registry.RoleInstitutionalUser, "test.edu")
	q := requests.RestorationRequest{By: "reader@other.edu", Identifier: "test.edu/o1"}
	_, err := requests.In(a.Registry).RequestRestoration(ctx, q)
	_, quoteErr := requests.In(a.Registry).Quote(ctx, q)
	if !errors.Is(err, registry.ErrNotFound) || !errors.Is(quoteErr, registry.ErrNotFound) {
		t.Errorf("another's: %v, %v; want it not found", err, quoteErr)
	}
	q.By = "reader@test.edu"
	if r, err := requests.In(a.Registry).RequestRestoration(ctx, q); err != nil || r.Item.User != "reader@test.edu" || r.Item.Name != "o1.tar" {
		t.Errorf("restoration = %+v, %v", r, err)
	}
	a.exec(`UPDATE intellectual_objects SET state = 'D'; `)
	_, err = requests.In(a.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: "test.edu/o1"})
	refusedFor(t, err, "it was deleted")
}

// An e-mail is one person, whatever its case, and only an admin has no institution.
func TestUsersAreDistinguished(t *testing.T) {
	t.Parallel()
	a, ctx := newArchive(t), context.Background()
	a.twoAdmins()
	for _, u := range []record.User{
		{Email: "FIRST@test.edu", Name: "Again", Role: registry.RoleAdmin},
		{Email: "x@test.edu", Name: "No Institution", Role: registry.RoleInstitutionalUser},
		{Email: "x@test.edu", Name: "An Institution", Role: registry.RoleAdmin, Institution: "test.edu"},
		{Email: "x@test.edu", Name: "No Role", Role: "king", Institution: "test.edu"},
		{Email: "no address", Name: "No Address", Role: registry.RoleAdmin},
	} {
		if _, err := a.AddUser(ctx, u); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("%+v: %v, want it refused", u, err)
		}
	}
	if _, err := a.AddUser(ctx, record.User{Email: "x@no.edu", Name: "Nowhere", Role: registry.RoleInstitutionalUser, Institution: "no.edu"}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("in no institution: %v", err)
	}
	list, err := a.Users(ctx, "test.edu")
	if err != nil || len(list) != 2 || list[0].Email != "first@test.edu" || list[0].InstitutionID != a.in.ID {
		t.Errorf("users = %+v, %v", list, err)
	}
}

// What was deleted and is ingested again has its retention before it again.
func TestRetentionBeginsAnewAfterADeletion(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.exec(`UPDATE intellectual_objects SET created_at = now() - interval '1 year'; `)
	a.exec(`UPDATE generic_files SET created_at = now() - interval '1 year'`)
	young := func() int {
		return value[int](a, `SELECT (SELECT count(*) FROM intellectual_objects WHERE created_at > now() - interval '1 day')
			+ (SELECT count(*) FROM generic_files WHERE created_at > now() - interval '1 day')`)
	}
	a.ingested(etag2, fileRecord("data/a.txt", 2))
	if n := young(); n != 0 {
		t.Errorf("a new version makes %d rows young", n)
	}
	a.exec(`UPDATE intellectual_objects SET state = 'D'`)
	a.exec(`UPDATE generic_files SET state = 'D'`)
	a.ingested("etag3", fileRecord("data/a.txt", 3))
	if n := young(); n != 2 {
		t.Errorf("%d rows are young after it came back, want the object and its file", n)
	}
}
