package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api"
)

// hostile is a name that is markup, turns lines around, and would break out of an attribute.
const hostile = "\u202e\"><script>alert(1)</script>'"

// forced changes an item as only a worker may.
func (s *site) forced(id int64, set string) {
	s.t.Helper()
	s.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	s.exec(`UPDATE work_items SET `+set+` WHERE id = $1`, id)
	s.exec(`ALTER TABLE work_items ENABLE TRIGGER USER`)
}

// keeps puts an object with a file and a copy on record, and returns its ID.
func (s *site) keeps(in record.Institution, name, option string, size int64) int64 {
	s.t.Helper()
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		VALUES ($1, $2 || '/' || $3, $4, 'institution', $3, 'e', $5, 'p')`, in.ID, in.Identifier, name, hostile, option)
	id := ask[int64](s, `SELECT max(id) FROM intellectual_objects`)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, format_puid, size, storage_option, last_fixity_check, created_at)
		SELECT institution_id, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', 'x-fmt/111', $2, storage_option, now(), now() - interval '2 years'
		FROM intellectual_objects WHERE id = $1`, id, size)
	s.exec(`UPDATE intellectual_objects SET created_at = now() - interval '2 years' WHERE id = $1`, id)
	s.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'http://x/' || uuid, 'Standard-VA', 'b', uuid, now(), now() FROM generic_files WHERE intellectual_object_id = $1`, id)
	s.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime)
		SELECT id, 'md5', md5(identifier), now() FROM generic_files WHERE intellectual_object_id = $1`, id)
	s.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, identifier, event_type, date_time, detail, outcome, outcome_detail,
		outcome_information, object, agent) SELECT institution_id, id, gen_random_uuid(), 'ingestion', now(), $2, 'Success', 'x', 'i', 'o', 'a'
		FROM intellectual_objects WHERE id = $1`, id, hostile)
	return id
}

// Objects, files and events show what the registry has, to the people of their institution.
func TestRecordsAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id, theirs := s.keeps(s.test, "photographs", "Standard", 7), s.keeps(s.other, "secret", "Standard", 7)
	file := ask[int64](s, `SELECT id FROM generic_files WHERE intellectual_object_id = $1`, id)
	s.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '3 days' WHERE generic_file_id = $1`, file)
	member, auditor := s.in(registry.RoleInstitutionalUser, "test.edu"), s.in(registry.RoleAuditor, "")
	for path, texts := range map[string][]string{
		"/objects":                             {"test.edu/photographs", `\u202e"><script>alert(1)</script>'`},
		fmt.Sprintf("/objects/%d", id):         {"test.edu/photographs", "1 active files", "Standard-VA", "3 days ago", "x-fmt/111", "ingestion"},
		fmt.Sprintf("/object-files/%d", id):    {"test.edu/photographs/data/f"},
		fmt.Sprintf("/object-events/%d", id):   {"ingestion", "http://id.loc.gov/vocabulary/preservation/eventType/ing"},
		fmt.Sprintf("/files/%d", file):         {"test.edu/photographs/data/f", ask[string](s, `SELECT digest FROM checksums WHERE generic_file_id = $1`, file), "Standard-VA", "http://x/" + ask[string](s, `SELECT uuid::text FROM generic_files WHERE id = $1`, file)},
		fmt.Sprintf("/file-events/%d", file):   {"No events"},
		"/files?identifier_prefix=test.edu/ph": {"test.edu/photographs/data/f"},
		"/files":                               {"Say which files"},
		"/events":                              {"ingestion", "test.edu/photographs"},
	} {
		for _, b := range []*browser{member, auditor} {
			a := b.sees(path, texts...)
			if strings.Contains(a.text, "<script>alert") {
				t.Errorf("%s: a name is markup", path)
			}
		}
		member.open(path).lacks(t, "other.edu")
	}
	auditor.sees("/objects", "other.edu/secret")
	other, none := member.open(fmt.Sprintf("/objects/%d", theirs)), member.open("/objects/999999")
	if other.status != http.StatusNotFound || wordsIn(strings.ReplaceAll(other.text, fmt.Sprint(theirs), "999999")) != wordsIn(none.text) {
		t.Errorf("another's object: %d %s", other.status, wordsIn(other.text))
	}
	auditor.sees("/events?recorded_after=2020-01-01T00:00:00Z&recorded_before=2026-01-01T00:00:00Z", "31 days")
	operator := s.in(registry.RoleOperator, "")
	if a := operator.open("/objects"); a.status != http.StatusForbidden {
		t.Errorf("an operator sees objects: %d", a.status)
	}
}

// An export is made from the page of an object, and downloaded.
func TestAnExportIsMadeFromTheObject(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.keeps(s.test, "photographs", "Standard", 7)
	b := s.in(registry.RoleInstitutionalUser, "test.edu")
	form := b.open(fmt.Sprintf("/objects/%d", id)).form(t, "exports.make")
	form.Set("kind", "manifest")
	a := b.send("/do/exports.make", form)
	a.shows(t, "Done: export records", "Download", "test.edu/photographs")
	form.Set("kind", "evidence")
	form.Set("key", "another-key")
	if a := b.send("/do/exports.make", form); a.status != http.StatusConflict || !strings.Contains(a.text, "evidence") {
		t.Errorf("a user exports evidence: %d %s", a.status, wordsIn(a.text))
	}
}

// The page of a large export is fetched again until its item has ended, and says how it ended.
func TestALargeExportIsFollowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := ask[string](s, `
		WITH i AS (INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, note)
			VALUES ($1, 'Export', 'Requested', 'inventory.csv', 'out.test.edu', 'export-1', 7, now(), 'test.edu/exports/1', 'Waiting.') RETURNING id)
		INSERT INTO exports (kind, institution_id, requested_by, work_item_id, key) SELECT 'inventory', $1, 'a@test.edu', id, 'test.edu/exports/1/inventory.csv' FROM i
		RETURNING id || ' ' || work_item_id`, s.test.ID)
	export, item, _ := strings.Cut(made, " ")
	b := s.in(registry.RoleInstitutionalAdmin, "test.edu")
	if a := b.sees("/exports/"+export, "Item "+item+" writes it", "inventory.csv"); !strings.Contains(a.text, `data-every="5"`) {
		t.Error("it is not fetched again")
	}
	s.exec(`UPDATE work_items SET status = 'Failed', retry = false, note = 'The bucket is gone.' WHERE id::text = $1`, item)
	if a := b.sees("/exports/"+export, "was to write it into the restoration bucket, and is Failed: The bucket is gone. Its page says what to do"); strings.Contains(a.text, "data-every") {
		t.Error("it is fetched for as long as it is open")
	}
}

// A deletion is asked for after a look at what would be refused, approved by another person
// with a fresh proof, and refused to the one who asked.
func TestADeletionTakesTwoPeople(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keeps(s.test, "old", "Standard", 7)
	s.keeps(s.test, "older", "Standard", 7)
	s.keeps(s.other, "theirs", "Standard", 7)
	s.exec(`UPDATE storage_options SET retention_days = 0 WHERE name = 'Standard'`)
	ann, ben := s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu")
	checked := ann.send("/deletions/check", url.Values{"identifiers": {"test.edu/old\nother.edu/theirs\n" + hostile}})
	checked.shows(t, "no object or file with these 2 names", "other.edu/theirs", `\u202e"><script>`)
	if strings.Contains(checked.text, `action="/do/deletions.request"`) || strings.Contains(checked.text, "<script>alert") {
		t.Error("what would be refused can be sent, or a name is markup")
	}
	checked = ann.send("/deletions/check", url.Values{"identifiers": {"test.edu/old", "test.edu/old", "test.edu/older"}})
	checked.shows(t, "2 objects, with all their files", "14 B")
	form := checked.form(t, "deletions.request")
	form.Set("identifiers", "test.edu/old\ntest.edu/older")
	made := ann.send("/do/deletions.request", form)
	id := ask[int64](s, `SELECT max(id) FROM deletion_requests`)
	if made.path != fmt.Sprintf("/deletions/%d", id) {
		t.Fatalf("the request leads to %s: %s", made.path, wordsIn(made.text))
	}
	made.shows(t, "It waits for another person", "test.edu/old", "2 active files go", "is over")
	made.shows(t, "test.edu/old object 7 B – ")
	s.exec(`UPDATE storage_options SET retention_days = 1000 WHERE name = 'Standard'`)
	s.exec(`UPDATE generic_files SET created_at = created_at + interval '90 days' WHERE identifier = 'test.edu/old/data/f'`)
	until := ask[string](s, `SELECT to_char((created_at + interval '1000 days') AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM generic_files WHERE identifier = 'test.edu/old/data/f'`)
	ann.sees(made.path, "test.edu/old object 7 B "+until, "2 of what is named cannot be deleted now")
	s.exec(`UPDATE storage_options SET retention_days = 0 WHERE name = 'Standard'`)
	if strings.Contains(made.text, `action="/do/deletions.approve"`) {
		t.Error("who asked is offered to approve")
	}
	s.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	again := s.item("old.tar", "")
	s.forced(again, `status = 'Success', stage = 'Cleanup', retry = false, updated_at = now() + interval '1 second'`)
	ben.sees("/deletions", "Wait for you", ann.person.Email)
	ann.sees("/deletions", "Nothing waits for you", "Wait for another person")
	refuse := ben.open(made.path).form(t, "deletions.cancel")
	refuse.Set("reason", hostile+strings.Repeat("x", 1000))
	ben.refused("deletions.cancel", refuse, http.StatusBadRequest, "reason", hostile)
	page := ben.sees(made.path, "A new version of test.edu/old was ingested", fmt.Sprintf("item %d", again))
	approve := page.form(t, "deletions.approve")
	if a := ann.send("/do/deletions.approve", approve); ask[bool](s, `SELECT approved_at IS NOT NULL FROM deletion_requests WHERE id = $1`, id) || a.status < 400 {
		t.Errorf("who asked approves: %d", a.status)
	}
	s.exec(`UPDATE sessions SET strong_at = NULL`)
	ben.send("/do/deletions.approve", approve).shows(t, "Prove once more who you are")
	s.exec(`UPDATE sessions SET strong_at = now()`)
	ben.send("/do/deletions.approve", approve).shows(t, "Done: approve a deletion")
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE deletion_request_id = $1`, id); n != 2 {
		t.Errorf("%d items of the deletion", n)
	}
	s.keeps(s.test, "oldest", "Standard", 7)
	form = ann.send("/deletions/check", url.Values{"identifiers": {"test.edu/oldest"}}).form(t, "deletions.request")
	form.Set("identifiers", "test.edu/oldest")
	refuse = ben.open(ann.done("deletions.request", form).path).form(t, "deletions.cancel")
	refuse.Set("reason", "It is kept "+hostile)
	ben.done("deletions.cancel", refuse)
	ann.sees("/deletions/"+refuse.Get("id"), "Cancelled by "+ben.person.Email, "Reason It is kept")
	user := s.in(registry.RoleInstitutionalUser, "test.edu")
	if a := user.send("/deletions/check", url.Values{"identifiers": {"test.edu/old"}}); a.status != http.StatusForbidden {
		t.Errorf("a user checks a deletion: %d", a.status)
	}
}

// An inbox of more than a hundred requests says that there are more.
func TestTheInboxOfDeletionsSaysIfThereIsMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, other := s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu")
	asked := func(n int) {
		s.exec(`INSERT INTO deletion_requests (institution_id, requested_by) SELECT $1, $2 FROM generate_series(1, $3::int)`, s.test.ID, other.person.ID, n)
	}
	asked(100)
	admin.sees("/deletions", "Wait for you").lacks(t, "More than 100 requests wait")
	admin.sees("/", "Needs you: 100 things").lacks(t, "These are the newest")
	asked(1)
	admin.sees("/deletions", "More than 100 requests wait", "All that wait")
	admin.sees("/", "Needs you: more than 100 things", "These are the newest")
}

// What a restoration costs is shown before it is asked for; one above the cap waits for
// another person.
func TestARestorationShowsItsPriceFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(a *api.API) {
		a.ArchiveClass = func(option string, _ bool) string {
			if option == "Glacier-VA" {
				return "GLACIER"
			}
			return ""
		}
	})
	s.keeps(s.test, "cold", "Glacier-VA", 1_000_000_000_000_000)
	user, admin := s.in(registry.RoleInstitutionalUser, "test.edu"), s.in(registry.RoleInstitutionalAdmin, "test.edu")
	quoted := user.sees("/restorations/new?object=test.edu/cold&days=5&tier=Expedited", "Price", "GLACIER", "More than the cap")
	user.sees("/restorations/new?object=test.edu/none&days=5", "There is no such record")
	form := quoted.form(t, "restorations.request")
	user.send("/do/restorations.request", form).shows(t, "Done: request the restoration")
	id := ask[int64](s, `SELECT max(work_item_id) FROM retrievals`)
	s.forced(id, `status = 'Suspended', error_code = 'cost-approval', retry = false, needs_admin_review = true`)
	s.exec(`INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id, object_identifier)
		SELECT 'Restore Object', 'Requested', 'r' || n, 'e', 'b', now(), 1, $1, 'test.edu/r' || n FROM generate_series(1, 60) n`, s.test.ID) // newer ones wait for other reasons
	s.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	s.exec(`UPDATE work_items SET status = 'Suspended', error_code = 'timeout', retry = false, needs_admin_review = true WHERE name LIKE 'r%'`)
	s.exec(`ALTER TABLE work_items ENABLE TRIGGER USER`)
	price := ask[string](s, `SELECT price::text FROM retrievals WHERE work_item_id = $1`, id)
	admin.sees("/restorations", "Wait for an approval of their cost", "$"+price)
	admin.sees("/", "Waits for your decision", fmt.Sprintf("Restoration %d", id))
	path := fmt.Sprintf("/restorations/%d", id)
	user.sees(path, "It waits for a person to approve its cost", "$"+price).lacks(t, "Approve the cost")
	admin.send("/do/restorations.approve", admin.sees(path).form(t, "restorations.approve")).shows(t, "Done: approve a restoration")
	if !ask[bool](s, `SELECT approved_at IS NOT NULL FROM retrievals WHERE work_item_id = $1`, id) {
		t.Error("the cost is not approved")
	}
	s.forced(id, `status = 'Pending', error_code = '', retry = true, needs_admin_review = false`)
	cancel := user.sees(path, "Cancel").form(t, "restorations.cancel")
	cancel.Set("reason", "By mistake "+hostile)
	user.done("restorations.cancel", cancel).shows(t, "Cancelled by "+user.person.Email+". By mistake")
	if got := ask[string](s, `SELECT status FROM all_work_items WHERE id = $1`, id); got != "Cancelled" {
		t.Errorf("the restoration is %s", got)
	}
	if a := user.send("/do/restorations.request", form); a.status >= 300 && a.path != "/restorations" {
		t.Errorf("the form that is sent twice: %d %s", a.status, wordsIn(a.text))
	}
	if n := ask[int](s, `SELECT count(*) FROM retrievals`); n != 1 {
		t.Errorf("%d retrievals of a form that was sent twice", n)
	}
	s.exec(`ALTER TABLE work_items DISABLE TRIGGER USER`)
	s.exec(`UPDATE work_items SET error_code = 'cost-approval' WHERE name LIKE 'r%'`)
	s.exec(`ALTER TABLE work_items ENABLE TRIGGER USER`)
	s.exec(`INSERT INTO retrievals SELECT (jsonb_populate_record(r, jsonb_build_object('work_item_id', w.id))).* FROM retrievals r, work_items w WHERE w.name LIKE 'r%'`)
	admin.sees("/restorations", "All that wait for an approval")
	admin.sees("/restorations?status=Suspended&error_code=cost-approval", "test.edu/r60").lacks(t, "test.edu/cold")
}

// The first page of a depositor says what failed and what to do, what is in work and what
// became safe; alerts are marked as read.
func TestDepositorsBeginAtTheirDeposits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.keeps(s.test, "photographs", "Standard", 7)
	b := s.in(registry.RoleInstitutionalUser, "test.edu")
	b.sees("/", "Nothing needs you, and nothing is in work", "None: no ingest ended", "Not known now: it is counted once an hour")
	s.forced(s.item("bad.tar", ""), `status = 'Failed', stage = 'Validate', error_code = 'invalid-bag', retry = false, needs_admin_review = true`)
	s.forced(s.item("going.tar", ""), `stage = 'Store'`)
	s.forced(s.item("photographs.tar", ""), fmt.Sprintf("status = 'Success', stage = 'Cleanup', retry = false, intellectual_object_id = %d", id))
	page := b.sees("/", "Needs you: 1 thing", "bad.tar", "Whose fault: the bag's", "What to do:", "Stage 6 of 9: Store", "test.edu/photographs")
	page.lacks(t, "Waits for your decision", "other.edu")
	if len(page.text) > 60_000-19_000 {
		t.Errorf("the first page has %d bytes", len(page.text))
	}
	s.exec(`INSERT INTO alerts (institution_id, type, subject, content) VALUES ($1, 'Item Failed', 's', $2), ($3, 'Item Failed', 's', 'theirs')`, s.test.ID, hostile, s.other.ID)
	alerts := b.sees("/alerts", "Unread", `\u202e"><script>alert(1)</script>'`)
	alerts.lacks(t, "theirs")
	for mine, of := range map[bool]int64{true: s.test.ID, false: s.other.ID} { // a mail leads to the page of one
		path := fmt.Sprint("/alerts/", ask[int64](s, `SELECT id FROM alerts WHERE institution_id = $1`, of))
		if mine {
			b.sees(path, "New: Item Failed", "Mark as read", "All alerts")
		} else if a := b.open(path); a.status != http.StatusNotFound {
			t.Errorf("an alert of another institution is shown: %d %s", a.status, wordsIn(a.text))
		}
	}
	all := alerts.form(t, "alerts.read")
	one := all
	one.Del("before")
	one.Set("ids", fmt.Sprint(ask[int64](s, `SELECT id FROM alerts WHERE institution_id = $1`, s.test.ID)))
	b.send("/do/alerts.read", one).shows(t, "Done: mark alerts as read")
	if n := ask[int](s, `SELECT count(*) FROM alert_reads WHERE user_id = $1`, b.person.ID); n != 1 {
		t.Errorf("%d alerts are marked as read", n)
	}
	b.sees("/alerts?unread=true", "You have read all alerts")
	empty := s.in(registry.RoleInstitutionalUser, "other.edu")
	empty.open("/").lacks(t, "bad.tar", "photographs")
}

// Depositors read what they can do: nothing, where the staff of the archive has to act.
func TestDepositorsAreNotAskedToDoWhatStaffDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("slow.tar", "")
	s.forced(id, `status = 'Failed', stage = 'Store', error_code = 'timeout', retry = false, needs_admin_review = true`)
	waits := s.item("waits.tar", "")
	member, staff := s.in(registry.RoleInstitutionalAdmin, "test.edu"), s.in(registry.RoleOperator, "")
	page := fmt.Sprint("/items/", id)
	for _, path := range []string{"/", page} {
		member.sees(path, "slow.tar", "What to do: Nothing. The staff of the archive sees it and decides.").lacks(t, "requeue item", "farol requeue", "farol stage set")
	}
	staff.sees(page, "requeue item")
	page = fmt.Sprint("/items/", waits)
	staff.sees(page, "There is no live worker", "farol work --stages")
	member.sees(page, "Waits: no worker").lacks(t, "farol work --stages")
}
