package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A server may be killed at any moment while it applies a plan, or undoes it: the next one
// goes on, changes each item once, and does so in the name of the person.
func TestKilledServerChangesEachItemOnce(t *testing.T) {
	t.Parallel()
	rounds, kills := testenv.Soak(20), 0
	for range rounds {
		kills += planUnderKills(t)
	}
	testenv.Soaked(t, kills, "kills of a server that applied a plan or undid it")
	if want := killsOfAPlan() * rounds; kills < want {
		t.Errorf("it was killed %d times in %d rounds, want %d times or more", kills, rounds, want)
	}
}

const planner = "operator@archive.org"

func planUnderKills(t *testing.T) (kills int) {
	t.Helper()
	a := newWebSite(t)
	a.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) SELECT 'Test', n || '.edu', 'in-' || n, 'out-' || n FROM generate_series(1, 5) n`)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT 1 + n % 5, 'Ingest', 'Receive', n || '.tar', 'in', 'e', n, now() FROM generate_series(1, $1::int) n`, plannedItems)
	a.exec(`UPDATE work_items SET stage = 'Store', status = 'Suspended', retry = false, needs_admin_review = true, claim_token = 7, entered_token = 5,
		attempt = 3, note = 'Note of ' || id, error_code = 'target-missing'`)
	a.exec(`TRUNCATE topic_messages`)
	a.exec(`ANALYZE`)
	stood := `SELECT md5(string_agg((to_jsonb(w) - '{claim_token,updated_at,virtual_start}'::text[])::text, ' ' ORDER BY id)) FROM work_items w`
	before := ask[string](t, a.db, stood)
	a.start("--web")
	o := a.person(planner, registry.RoleOperator, "")
	o.wants(http.StatusCreated, "POST", "/api/v1/plans", `{"action": "requeue", "filter": {"status": ["Suspended"]}}`, nil)

	for changes, verb := range []string{"apply", "undo"} {
		headers := []string{"Idempotency-Key", "once " + verb}
		kills += a.asked(http.StatusAccepted, func() httpAnswer { return o.do("POST", "/api/v1/plans/1/"+verb, "{}", headers...) })
		done := 0
		for done < plannedItems {
			least := min(done+1+rand.IntN(3*plannedItems/2/killsOfAPlan()), plannedItems)
			a.server.eventually("more items than before", func() bool {
				done = noted(t, a.db, verb, changes)
				return done >= least
			})
			a.server.kill()
			kills++
			done = noted(t, a.db, verb, changes)
			a.start("--web")
		}
		a.server.eventually("the end of the plan", func() bool {
			return ask[bool](t, a.db, `SELECT carry IS NULL AND state IN ('applied', 'undone') FROM plans`)
		})
		counts(t, a.db, map[string]int{
			`SELECT count(*) FROM work_item_audit`:                                                                                        plannedItems * (changes + 1),
			`SELECT min(n) FROM (SELECT count(*)::int AS n FROM work_item_audit GROUP BY work_item_id) c`:                                 changes + 1,
			`SELECT count(*) FROM work_item_audit WHERE actor <> '` + planner + `'`:                                                       0,
			`SELECT count(*) FROM topic_messages`:                                                                                         plannedItems, // by the requeueing alone
			fmt.Sprintf(`SELECT count(*) FROM work_items WHERE claim_token = %d`, 8+changes):                                              plannedItems,
			fmt.Sprintf(`SELECT count(*) FROM plans WHERE state = '%s'`, map[string]string{"apply": "applied", "undo": "undone"}[verb]):   1,
			fmt.Sprintf(`SELECT count(*) FROM actions WHERE operation = 'plans.%s' AND outcome = 'done' AND actor = '%s'`, verb, planner): 1,
		})
		var p struct{ Counts map[string]int }
		o.wants(http.StatusOK, "GET", "/api/v1/plans/1", "", &p)
		if state := map[string]string{"apply": "done", "undo": "undone"}[verb]; p.Counts[state] != plannedItems || len(p.Counts) != 1 {
			t.Errorf("the plan counts %v", p.Counts)
		}
	}
	if after := ask[string](t, a.db, stood); after != before {
		t.Error("the items are not what they were")
	}
	return kills
}

// asked sends a request to servers, and kills the first at a random moment of it,
// until it is answered, and returns how often a server was killed. An answer may have been
// lost.
func (a *webSite) asked(status int, send func() httpAnswer) (kills int) {
	a.t.Helper()
	answered := make(chan httpAnswer, 1)
	go func() { answered <- send() }()
	moment := time.NewTimer(time.Duration(rand.IntN(50_000)) * time.Microsecond)
	defer moment.Stop()
	<-moment.C
	a.server.kill()
	<-answered
	a.start("--web")
	// The key of a request that was not carried out is free a minute later.
	a.exec(`UPDATE idempotency_keys SET at = at - interval '2 minutes'`)
	for {
		r := send()
		switch {
		case r.status == http.StatusConflict && strings.Contains(r.body, "its answer was lost"):
			a.moments["after the commit and before the answer was kept"]++
			return 1
		case r.status == status && r.header.Get("Idempotency-Replayed") != "":
			a.moments["after the answer was kept"]++
			return 1
		case r.status == status:
			a.moments["before the commit"]++
			return 1
		case r.err == nil && r.status != http.StatusServiceUnavailable:
			a.t.Fatalf("sent again: %d %s, want %d", r.status, r.body, status)
		}
	}
}

// Requests with an Idempotency-Key that a killed server was at are carried out once when they
// are sent again: deletions, their approvals, and restorations. Each is done whole or not at
// all. Who signs in at that time can do so afterwards.
func TestKilledServerCarriesOutRequestsOnce(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	const whole = 100
	rounds := testenv.Soak(whole)
	if rounds < whole {
		rounds = 2 // each starts a server four times
	}
	must.Get(a.registry.AddInstitution(t.Context(), record.Institution{Name: "Test", Identifier: "test.edu", ReceivingBucket: "in", RestoreBucket: "out"}))(t)
	a.kept(rounds)
	a.start("--web")
	first, second := a.person("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), a.person("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	a.person("user@test.edu", registry.RoleInstitutionalUser, "test.edu")
	kills := 0
	for n := range rounds {
		kills += a.requestsUnderKills(n, first, second)
	}
	counts(t, a.db, map[string]int{
		`SELECT count(*) FROM deletion_requests`:                                                                                   rounds,
		`SELECT count(*) FROM work_items WHERE action = 'Delete'`:                                                                  objectsOfARound * rounds,
		`SELECT count(*) FROM work_items WHERE action = 'Restore File'`:                                                            rounds,
		`SELECT count(*) FROM actions WHERE operation = 'deletions.request' AND outcome = 'done'`:                                  rounds,
		`SELECT count(*) FROM actions WHERE operation = 'deletions.approve' AND outcome = 'done'`:                                  rounds,
		`SELECT count(*) FROM actions WHERE operation = 'restorations.request' AND outcome = 'done'`:                               rounds,
		`SELECT count(*) FROM actions WHERE outcome <> 'done'`:                                                                     0,
		`SELECT count(*) FROM work_items WHERE action = 'Delete' AND "user" <> 'first@test.edu'`:                                   0,
		`SELECT count(*) FROM (SELECT 1 FROM work_items WHERE action = 'Delete' GROUP BY object_identifier HAVING count(*) > 1) d`: 0,
	})
	testenv.Soaked(t, kills, fmt.Sprintf("kills of a server in the midst of requests: %v", a.moments))
}

// objectsOfARound is how many objects one request names.
const objectsOfARound = 40

// kept makes objects that may be deleted, with a file each: as many as a round takes, and one
// more whose file is restored.
func (a *webSite) kept(rounds int) {
	a.t.Helper()
	a.exec(`UPDATE storage_options SET retention_days = 0`)
	a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		SELECT 1, 'test.edu/' || r || '-' || n, 'A bag', 'institution', r || '-' || n, 'e', 'Standard', 'p' FROM generate_series(0, $1::int - 1) r, generate_series(0, $2::int) n`,
		rounds, objectsOfARound)
	a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', 7, 'Standard', now() FROM intellectual_objects`)
	a.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT id, 'https://x/' || uuid, 'Standard-VA', 'b', uuid, now(), now() FROM generic_files`)
	a.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'md5', md5(identifier), now() FROM generic_files`)
}

func (a *webSite) requestsUnderKills(n int, first, second *browser) (kills int) {
	a.t.Helper()
	var names []string
	for i := range objectsOfARound {
		names = append(names, fmt.Sprintf("test.edu/%d-%d", n, i))
	}
	key := []string{"Idempotency-Key", fmt.Sprint("round ", n)}
	kills += a.asked(http.StatusCreated, func() httpAnswer {
		return first.do("POST", "/api/v1/deletions", asJSON(map[string]any{"identifiers": names}), key...)
	})
	id := ask[int64](a.t, a.db, `SELECT max(id) FROM deletion_requests`)
	if got := ask[int](a.t, a.db, `SELECT count(*) FROM deletion_requests_intellectual_objects WHERE deletion_request_id = $1`, id); got != objectsOfARound {
		a.t.Errorf("request %d names %d objects", id, got)
	}
	kills += a.asked(http.StatusOK, func() httpAnswer {
		queued := ask[int](a.t, a.db, `SELECT count(*) FROM work_items WHERE deletion_request_id = $1`, id)
		if queued != 0 && queued != objectsOfARound {
			a.t.Errorf("%d items of request %d are in the queue", queued, id)
		}
		return second.do("POST", fmt.Sprintf("/api/v1/deletions/%d/approve", id), "", key...)
	})
	kills += a.asked(http.StatusCreated, func() httpAnswer {
		return first.do("POST", "/api/v1/restorations", fmt.Sprintf(`{"file": "test.edu/%d-%d/data/f"}`, n, objectsOfARound), "Idempotency-Key", fmt.Sprint("file ", n))
	})
	var signsIn *browser
	kills += a.asked(http.StatusOK, func() httpAnswer {
		signsIn = a.browser()
		return signsIn.do("POST", "/api/v1/session", asJSON(map[string]string{"email": "user@test.edu", "password": testPassword}))
	})
	signsIn.wants(http.StatusOK, "GET", "/api/v1/me", "", nil)
	return kills
}
