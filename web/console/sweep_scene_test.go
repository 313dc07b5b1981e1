package console_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
)

// long is a name as programs make them: it has no place to break.
var long = strings.Repeat("Photographs_of_the_lighthouse-", 8) + hostile //nolint:gochecknoglobals // a name

// records are the numbers in the addresses of pages, by the first part of the address.
type records map[string][]int64

// furnished is a site with a record of each kind, in each of its states. Names are long or
// hostile.
func furnished(t *testing.T) (*site, records) {
	t.Helper()
	store := must.Get(progress.Connect(context.Background(), testenv.RedisURL(t), progress.Prefix))(t)
	t.Cleanup(func() { store.Close() }) //nolint:errcheck // the test is over
	s := newSite(t, func(a *api.API) {
		a.Interim = api.Interim{
			Progress: func(context.Context) (*progress.Store, error) { return store, nil },
			Reader:   interim.Reader{Registry: a.Registry, Staging: staging(t), Log: a.Log, Stages: []interim.Stage{{Name: "Receive", List: "inventory.jsonl.zst", File: interim.Received}}},
			Measures: map[registry.Stage]progress.Measure{"Receive": progress.ByBytes},
		}
		a.Deposits = api.Deposits{
			Bucket:   func(string) (*storage.Bucket, error) { return nil, storage.ErrNotFound },
			Endpoint: "https://s3.example.org", MaxFiles: 400_000,
		}
		a.ArchiveClass = func(string, bool) string { return "GLACIER" }
		a.Next = func(context.Context, []string, int) ([]int64, error) { return []int64{1, 2}, nil }
		running := false
		a.Mirror = func(context.Context) (record.MirrorView, error) {
			return record.MirrorView{Known: true, NSQD: "nsqd:4151", Running: &running, Behind: 2, Oldest: 90, Topics: []record.MirrorTopic{
				{Topic: "ingest06_storage", Due: 5, Depth: 2, Drift: 3, PausedInNSQ: true}, {Topic: "ingest01_prefetch", Due: 5, Depth: 5},
			}}, nil
		}
	})
	r := records{"institutions": {s.test.ID, s.other.ID}}
	s.people4(r)
	s.holds(r)
	s.works(r, store)
	s.requests(r)
	s.planned(r)
	s.minded(r)
	for name, like := range map[string]string{"object-files": "objects", "object-events": "objects", "file-events": "files"} {
		r[name] = r[like][:1]
	}
	return s, r
}

// staging is a staging bucket in which nothing is.
func staging(t *testing.T) *storage.Bucket {
	t.Helper()
	at := testenv.S3(t)
	client := storage.NewClient(storage.Options{})
	t.Cleanup(client.Close)
	bucket, err := client.Bucket(storage.Target{
		Name: at.Prefix + "staging", Bucket: at.Prefix + "staging", Endpoint: at.Endpoint, Region: at.Region, CAFile: at.CAFile, PathStyle: true,
		AccessKeyID: at.AccessKeyID, SecretAccessKey: storage.Secret(at.SecretAccessKey),
	})
	if err == nil {
		err = bucket.Create(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// scene sets the scene of a site, and returns the number of a record.
func (s *site) scene(sql string, args ...any) {
	s.t.Helper()
	testenv.Scene(s.t, s.db, sql, args...)
}

// last is the highest number of a table.
func (s *site) last(table string) int64 {
	s.t.Helper()
	return ask[int64](s, `SELECT max(id) FROM `+table)
}

// people4 are people with each role; some have not signed in, or may not.
func (s *site) people4(r records) {
	s.t.Helper()
	for n, role := range []string{registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin, registry.RoleAuditor, registry.RoleOperator, registry.RoleAdmin} {
		institution := ""
		if n < 2 {
			institution = s.test.Identifier
		}
		u := must.Get(s.registry.AddUser(context.Background(), record.User{Email: fmt.Sprintf("%s@test.edu", role), Name: "Ann " + role, Role: role, Institution: institution}))(s.t)
		r["users"] = append(r["users"], u.ID)
	}
	s.scene(`UPDATE users SET deactivated_at = now() WHERE id = $1`, r["users"][0])
	s.scene(`UPDATE users SET signed_in_at = now() - interval '3 days' WHERE id = $1`, r["users"][1])
	s.scene(`INSERT INTO api_tokens (name, digest, institution_id, rights, stages, created_by, expires_at, used_at) VALUES
		('appraiser', sha256('a'), $1, '{lease}', '{Appraise}', 'ann@test.edu', now() + interval '30 days', now() - interval '1 hour'), ('bagger', sha256('b'), NULL, '{post,pull}', '{}', 'ann@test.edu', NULL, NULL)`, s.test.ID)
	s.scene(`INSERT INTO api_tokens (name, digest, rights, permissions, user_id, created_by) SELECT 'laptop ' || id, sha256(id::text::bytea), '{}', '{items.read,objects.read}', id, email FROM users`)
}

// holds are objects with their files, copies and events, and what is counted of them.
func (s *site) holds(r records) {
	s.t.Helper()
	for _, name := range []string{"photographs", long, "letters"} {
		r["objects"] = append(r["objects"], s.keeps(s.test, name, "Standard", 3<<30))
	}
	s.keeps(s.other, "maps", "Glacier-VA", 5<<40)
	s.scene(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/' || n || repeat('long', n % 10 * 3), gen_random_uuid(), 'application/octet-stream', n * 1000, storage_option, now()
		FROM intellectual_objects, generate_series(1, 60) n WHERE id = $1`, r["objects"][0])
	first := ask[int64](s, `SELECT min(id) FROM generic_files`)
	r["files"] = []int64{first, ask[int64](s, `SELECT id FROM generic_files WHERE intellectual_object_id = $1 LIMIT 1`, r["objects"][1])}
	s.scene(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at, verified_by)
		SELECT $1, 'https://' || t || '/' || repeat('b', 80), t, 'preservation', repeat('k', 80), now() - interval '1 year', now() - interval '200 days', now() - interval '3 days', 'sha256' FROM unnest('{Wasabi-OR,Glacier-OH}'::text[]) t`, first)
	copied := s.last("storage_records")
	s.scene(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at)
		VALUES ($1, $2, 'Wasabi-OR', 'Wasabi-OR', 'https://wasabi/x', 'altered', 'sha256', $3, $4, now(), now())`, copied, first, strings.Repeat("a1", 32), strings.Repeat("b2", 32))
	s.scene(`INSERT INTO fixity_checks (storage_record_id, target, requested, error) VALUES ($1, 'Wasabi-OR', true, 'timeout')`, copied)
	s.scene(`INSERT INTO fixity_done (target, minute, checks, failures, bytes) SELECT 'Wasabi-OR', date_trunc('minute', now()) - n * interval '1 minute', 900, 1, 123456789 FROM generate_series(1, 20) n`)
	s.scene(`INSERT INTO repair_stops (provider, reason) VALUES ('Wasabi-OR', 'twelve copies failed within an hour')`)
	s.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, generic_file_id, identifier, event_type, date_time, detail, outcome, outcome_detail, outcome_information, object, agent)
		SELECT institution_id, intellectual_object_id, id, gen_random_uuid(), e, now(), $2, CASE WHEN e = 'fixity check' THEN 'Failure' ELSE 'Success' END, $3, 'i', 'o', 'https://agent.example.org' FROM generic_files,
		unnest('{ingestion,fixity check,replication}'::text[]) e WHERE id = $1`, first, hostile, "sha256:"+strings.Repeat("a1", 32))
	s.scene(`INSERT INTO holdings_daily (day, institution_id, storage_option, objects, files, bytes) SELECT (now() AT TIME ZONE 'UTC')::date - n, i, o, 90 - n, 12345 * (90 - n), (90 - n) * 1073741824::bigint * i
		FROM generate_series(0, 80) n, unnest($1::bigint[]) i, unnest('{Standard,Glacier-VA}'::text[]) o`, r["institutions"])
	s.scene(`INSERT INTO daily_outcomes (day, institution_id, action, result, items, bytes) SELECT (now() AT TIME ZONE 'UTC')::date - n, $1, 'Ingest', result, 7 + n, 1073741824 FROM generate_series(0, 80) n, unnest('{Success,Failed,Cancelled}'::text[]) result`, s.test.ID)
	s.scene(`UPDATE storage_options SET per_gib_month = 0.5, included_tib = 1 WHERE name = 'Standard'`)
	for n, state := range []string{"records = 7, bytes = 7, sha256 = sha256('x'), taken_at = now(), completed_at = now()", "work_item_id = 999"} {
		s.scene(`INSERT INTO exports (kind, institution_id, intellectual_object_id, requested_by) VALUES ($1, $2, $3, 'ann@test.edu')`, []string{"evidence", "inventory"}[n], s.test.ID, r["objects"][n])
		r["exports"] = append(r["exports"], s.last("exports"))
		s.scene(`UPDATE exports SET `+state+` WHERE id = $1`, s.last("exports"))
	}
}

// works are items in each state, with what became of them.
func (s *site) works(r records, store *progress.Store) {
	s.t.Helper()
	const ran = `node = 'node-1', pid = 7, worker = 'node-1-7', lease_expires_at = now() + interval '1 minute', stage_started_at = now() - interval '2 minutes', attempt = 2, claim_token = 5, entered_token = 4`
	for name, set := range map[string]string{
		"due":       "run_at = now() - interval '3 hours'",
		"backoff":   "stage = 'Validate', attempt = 2, claim_token = 4, entered_token = 2, run_at = now() + interval '9 minutes', note = 'timeout: ' || repeat('x', 300)",
		"running":   "status = 'Started', " + ran,
		"invalid":   "stage = 'Validate', status = 'Failed', retry = false, needs_admin_review = true, error_code = 'invalid-bag', claim_token = 3, entered_token = 1, note = 'invalid-bag: 40 faults'",
		"timeout":   "stage = 'Store', status = 'Failed', retry = false, needs_admin_review = true, error_code = 'timeout', claim_token = 9, entered_token = 6",
		"suspended": "stage = 'Record', status = 'Suspended', retry = false, needs_admin_review = true, error_code = 'crashed', claim_token = 3, entered_token = 3",
		"cancelled": "stage = 'Receive', status = 'Cancelled', retry = false, note = 'asked for by the depositor'",
		"safe":      fmt.Sprintf("stage = 'Cleanup', status = 'Success', retry = false, claim_token = 12, entered_token = 12, intellectual_object_id = %d", r["objects"][0]),
	} {
		id := s.item(name+long+".tar", "")
		s.scene(`UPDATE work_items SET `+set+`, created_at = now() - interval '45 minutes', updated_at = now() - interval '2 minutes' WHERE id = $1`, id)
		r["items"] = append(r["items"], id)
		s.scene(`INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, heartbeat_at, ended_at, outcome, error_code, error, current_file)
			SELECT w.id, n, w.stage, n, 'node-1', 7, 'node-1-7', now() - (40 - n * 3) * interval '1 minute', now(), CASE WHEN w.status <> 'Started' OR n < w.claim_token THEN now() - (39 - n * 3) * interval '1 minute' END,
			CASE WHEN w.status <> 'Started' OR n < w.claim_token THEN (ARRAY['transient','lease expired','oom','killed','fatal'])[1 + n % 5] END, CASE n % 2 WHEN 0 THEN 'timeout' ELSE '' END, $2, $3 FROM work_items w, generate_series(1, w.claim_token) n WHERE w.id = $1`, id, "timeout: "+hostile, "data/"+long)
		c := progress.Claim{Item: id, Token: ask[int64](s, `SELECT claim_token FROM work_items WHERE id = $1`, id)}
		must.Do(s.t, s.reports(name, store, c))
	}
	s.scene(`UPDATE work_items SET note = note || $2 WHERE id = $1`, r["items"][0], hostile)
	s.parked(60)
	s.exec(`UPDATE stage_settings SET paused = true, paused_by = 'ann', paused_at = now(), pause_reason = $1, cap = 4 WHERE stage = 'Record'`, long)
}

// reports writes what a worker would of an item.
func (s *site) reports(name string, store *progress.Store, c progress.Claim) error {
	switch name {
	case "running":
		const pass = "Receive@4"
		var files []*bag.File
		for n := range 120 {
			files = append(files, &bag.File{Path: fmt.Sprintf("data/%d/%s", n, long[n%10*len(long)/10:]), Size: 7})
		}
		text, err := json.Marshal(bag.Checkpoint{Offset: 512, TopDir: "1", Files: files})
		if err != nil {
			return err //nolint:wrapcheck // for a test
		}
		z, err := zstd.NewWriter(nil)
		if err != nil {
			return err //nolint:wrapcheck // for a test
		}
		_, err = store.Begin(context.Background(), c, pass)
		return errors.Join(err, store.Append(context.Background(), c, pass, "checkpoints", string(z.EncodeAll(text, nil))), store.Count(context.Background(), c, progress.Counters{
			Stage: "Receive", Elapsed: 10 * time.Second, Moved: 10 * time.Second, Files: 2, FilesTotal: 10, Bytes: 700, BytesTotal: 1400, Busy: 1,
			CurrentFiles: []progress.CurrentFile{{Path: "data/" + long, Files: 1, Bytes: 1, Size: 9}},
		}))
	case "invalid":
		list := []progress.Fault{{Code: "checksum-mismatch", Path: "data/" + long, Expected: strings.Repeat("a1", 64), Found: strings.Repeat("b2", 64), Message: "the digest differs"}}
		for n := range 20 {
			list = append(list, progress.Fault{Code: "file-missing", Path: fmt.Sprintf("data/%d", n), Message: hostile})
		}
		return store.Fail(context.Background(), c, progress.Faults{Token: c.Token, List: list, More: 20}) //nolint:wrapcheck // for a test
	}
	return nil
}

// requests are deletions and restorations in each state.
func (s *site) requests(r records) {
	s.t.Helper()
	for n, state := range []string{"", "approved_by = %[2]d, approved_at = now()", "cancelled_by = %[2]d, cancelled_at = now()", "approved_by = %[2]d, approved_at = now() - interval '1 day'"} {
		s.scene(`INSERT INTO deletion_requests (institution_id, requested_by, requested_at) VALUES ($1, $2, now() - interval '2 days')`, s.test.ID, r["users"][0])
		id := s.last("deletion_requests")
		r["deletions"] = append(r["deletions"], id)
		if state != "" {
			s.scene(fmt.Sprintf(`UPDATE deletion_requests SET `+state+` WHERE id = %[1]d`, id, r["users"][1]))
		}
		s.scene(`INSERT INTO deletion_requests_intellectual_objects VALUES ($1, $2), ($1, $3)`, id, r["objects"][0], r["objects"][1])
		s.scene(`INSERT INTO deletion_requests_generic_files VALUES ($1, $2)`, id, r["files"][1])
		if n != 1 && n != 3 {
			continue
		}
		status := []string{"", "stage = 'Requested', status = 'Pending'", "", "stage = 'Resolve', status = 'Success', retry = false"}[n]
		item := s.item(fmt.Sprintf("photographs-%d.tar", n), "")
		s.scene(fmt.Sprintf(`UPDATE work_items SET action = 'Delete', deletion_request_id = %d, %s WHERE id = %d`, id, status, item))
		s.scene(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, seen_at, removed_at, absent_at, found_missing, accepted_by)
			SELECT $1, $2, t, 'b', repeat('k', 60), 'https://x/' || repeat('k', 60), now(), now(), CASE t WHEN 'Standard-VA' THEN now() END, t <> 'Standard-VA', '' FROM unnest('{Standard-VA,Wasabi-OR}'::text[]) t`, item, r["files"][1])
	}
	for n, set := range []string{
		"stage = 'Requested'", "stage = 'Requested', status = 'Suspended', retry = false, error_code = 'cost-approval', needs_admin_review = true",
		"stage = 'Available in S3', run_at = now() + interval '5 hours'", "stage = 'Resolve', status = 'Success', retry = false, note = 'Restored to out.test.edu'",
	} {
		item := s.item(fmt.Sprintf("restored-%d.tar", n), "")
		s.scene(`UPDATE work_items SET action = 'Restore Object', intellectual_object_id = `+fmt.Sprint(r["objects"][0])+`, `+set+` WHERE id = $1`, item)
		s.scene(`INSERT INTO retrievals (work_item_id, storage_class, tier, days, files, bytes, price, cap, requested_by) VALUES ($1, 'GLACIER', 'Bulk', 5, 1000, 123456789012, 1234.50, 100, $2)`, item, r["users"][0])
		r["restorations"] = append(r["restorations"], item)
	}
}

// planned are plans in each state.
func (s *site) planned(r records) {
	s.t.Helper()
	for _, state := range []string{
		"state = 'ready', items = 5", "state = 'ready', items = 500", "state = 'applying', items = 9, begun_at = now(), begun_by = 'ann@test.edu', approved_by = 'ben@test.edu', approved_at = now()",
		"state = 'applied', items = 9, begun_at = now(), begun_by = 'ann@test.edu', applied_at = now()", "state = 'undone', items = 9, begun_at = now(), begun_by = 'ann@test.edu', applied_at = now(), undone_at = now(), undone_by = 'ben@test.edu'",
	} {
		s.scene(`INSERT INTO plans (action, to_stage, condition, refused, bytes, set_hash, created_by) VALUES ('requeue', 'Validate', 'error code = timeout and name = ' || $1, 2, 123456789, encode(sha256('x'), 'hex'), 'ann@test.edu')`, long)
		id := s.last("plans")
		r["plans"] = append(r["plans"], id)
		s.scene(`UPDATE plans SET `+state+` WHERE id = $1`, id)
		s.scene(`INSERT INTO plan_items (plan_id, work_item_id, claim_token, stage, status, priority, size, state, detail, before, token_after)
			SELECT $1, id, claim_token, stage, status, priority, size, i.state, i.detail, i.before, i.after FROM work_items w JOIN (VALUES ('planned', '', NULL::jsonb, NULL::bigint), ('refused', $2, NULL, NULL), ('done', '', '{}', 7), ('changed', 'it has changed since', NULL, NULL)) i (state, detail, before, after)
			ON i.state = (ARRAY['planned', 'refused', 'done', 'changed'])[1 + w.id % 4]`, id, "it waits for "+hostile)
	}
}

// minded are workers, services, schedules, alerts and what people did.
func (s *site) minded(r records) {
	s.t.Helper()
	for _, name := range []string{"node-1-7", "node-1-8", "node-with-a-long-name.rack-17.example.org-9", "gone", "stopped"} {
		s.worker(name)
	}
	s.scene(`UPDATE worker_processes SET draining = true WHERE worker = 'node-1-8'`)
	s.scene(`UPDATE worker_processes SET ended_at = now(), ending = CASE worker WHEN 'gone' THEN 'oom' ELSE 'stopped' END WHERE worker IN ('gone', 'stopped')`)
	s.scene(`INSERT INTO known_services (service, of_process, held_at, held_by, held_reason) VALUES ('s3:Wasabi OR', false, NULL, NULL, NULL), ('disk', true, NULL, NULL, NULL), ('s3:Glacier OH', false, now(), 'ann@test.edu', $1)`, long)
	s.scene(`INSERT INTO service_reports (service, worker, state, code, said, detail, probe_at) VALUES ('s3:Wasabi OR', 'node-1-7', 'failing', 'timeout', $1, $2, now() + interval '1 minute')`, hostile, long)
	s.scene(`UPDATE schedules SET error = $1, ended_at = now(), began_at = now() - interval '1 minute', runs = 3, failures = 1 WHERE job = 'janitor'`, long)
	s.scene(`UPDATE schedules SET result = 'read 4 buckets', ended_at = now(), began_at = now(), runs = 9 WHERE job = 'read-buckets'`)
	s.scene(`UPDATE schedules SET paused = true WHERE job = 'spot-restore'`)
	s.scene(`INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id, work_item_id) VALUES ($1, 'Item Failed', 's', $2, NULL, 1), ($1, 'Deletion Requested', 's', $3, 1, NULL), (NULL, 'Worker Lost', 's', 'Three workers were lost.', NULL, NULL)`, s.test.ID, hostile, long)
	last := s.last("alerts")
	r["alerts"] = []int64{last - 2, last - 1, last}
	s.scene(`INSERT INTO alert_reads (alert_id, user_id) SELECT a.id, u.id FROM alerts a, users u WHERE a.type = 'Deletion Requested'`)
	s.scene(`INSERT INTO actions (actor, ip, operation, subject_type, subject_id, institution_id, outcome, detail) SELECT 'ann@test.edu', '10.0.0.1', o, 'item', '1', $1, CASE o WHEN 'items.cancel' THEN 'refused' ELSE 'done' END, jsonb_build_object('reason', $2::text, 'to', 'Validate')
		FROM unnest('{items.requeue,items.cancel,users.add,plans.apply}'::text[]) o`, s.test.ID, long)
}
