package api_test

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
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
)

// interimOf has the site's server read Redis, and a staging bucket in which nothing is.
func (s *site) interimOf(redis func(context.Context) (*progress.Store, error)) {
	s.t.Helper()
	at := testenv.S3(s.t)
	name := at.Prefix + "staging"
	bucket, err := storage.NewClient(storage.Options{}).Bucket(storage.Target{
		Name: name, Bucket: name, Endpoint: at.Endpoint, Region: at.Region, CAFile: at.CAFile, PathStyle: true,
		AccessKeyID: at.AccessKeyID, SecretAccessKey: storage.Secret(at.SecretAccessKey),
	})
	if err == nil {
		err = bucket.Create(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.api.Interim = api.Interim{
		Progress: redis,
		Reader:   interim.Reader{Registry: s.registry, Staging: bucket, Log: s.api.Log, Stages: []interim.Stage{{Name: "Receive", List: "inventory.jsonl.zst", File: interim.Received}}},
		Measures: map[registry.Stage]progress.Measure{"Receive": progress.ByBytes},
	}
}

// running has the first item of an institution run, with two files read.
func (s *site) running(store *progress.Store) (id int64) {
	s.t.Helper()
	id = s.ids(s.test)["items"]
	s.exec(`UPDATE work_items SET claim_token = claim_token + 1, status = 'Started', node = 'secret-host', pid = 7, worker = 'secret-worker', lease_expires_at = now() + interval '1 minute',
		stage_started_at = now(), attempt = 1, run_at = now() WHERE id = $1`, id)
	c := progress.Claim{Item: id, Token: ask[int64](s, `SELECT claim_token FROM work_items WHERE id = $1`, id)}
	pass := fmt.Sprint("Receive@", ask[int64](s, `SELECT entered_token FROM work_items WHERE id = $1`, id))
	text := must.Get(json.Marshal(bag.Checkpoint{Offset: 512, TopDir: "1", Files: []*bag.File{{Path: "data/a", Size: 3}, {Path: "data/b", Size: 4}}}))(s.t)
	z := must.Get(zstd.NewWriter(nil))(s.t)
	_, err := store.Begin(s.t.Context(), c, pass)
	must.Do(s.t, errors.Join(err,
		store.Append(s.t.Context(), c, pass, "checkpoints", string(z.EncodeAll(text, nil))),
		store.Count(s.t.Context(), c, progress.Counters{
			Stage: "Receive", Elapsed: 10 * time.Second, Moved: 10 * time.Second, Files: 2, FilesTotal: -1, Bytes: 700, BytesTotal: 70_000, Busy: 1,
			CurrentFiles: []progress.CurrentFile{{Path: "data/c", Files: 1, Bytes: 1, Size: 9}},
		})))
	return id
}

// While a bag is read, people see how far that is, and staff sees where.
func TestItemsInProgress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	store := must.Get(progress.Connect(t.Context(), testenv.RedisURL(t), progress.Prefix))(t)
	t.Cleanup(func() { store.Close() }) //nolint:errcheck // the test is over
	s.interimOf(func(context.Context) (*progress.Store, error) { return store, nil })
	id := s.running(store)
	own, other, o := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("eve@other.edu", registry.RoleInstitutionalUser, "other.edu"), s.in("operator@archive.org", registry.RoleOperator, "")
	at := fmt.Sprint("/api/v1/items/", id)
	for _, c := range []*caller{own, o} {
		var v struct {
			Current struct {
				Stage     string
				FilesDone int64   `json:"files_done"`
				BytesLeft float64 `json:"seconds_left"`
				InHand    []struct{ Path string }
			}
		}
		a := c.wants(200, "GET", at+"/progress", nil)
		c.reads(a, &v)
		if v.Current.Stage != "Receive" || v.Current.FilesDone != 2 || v.Current.BytesLeft <= 0 || !strings.Contains(a.body, "data/c") || strings.Contains(a.body, "secret") != (c == o) {
			t.Errorf("%s: %s", c.person.Email, a.body)
		}
		var page struct {
			Items []struct{ Path, State string }
			Next  *string
			Known bool
		}
		c.reads(c.wants(200, "GET", at+"/files?limit=1", nil), &page)
		if !page.Known || len(page.Items) != 1 || page.Items[0].Path != "data/a" || page.Items[0].State != "read" || page.Next == nil {
			t.Fatalf("%s: %+v", c.person.Email, page)
		}
		if a := c.wants(200, "GET", *page.Next, nil); !strings.Contains(a.body, "data/b") || strings.Contains(a.body, "data/a") || !strings.Contains(a.body, `"next":null`) {
			t.Errorf("the next page: %s", a.body)
		}
		if a := c.wants(200, "GET", at+"/files?after_path=data/a", nil); !strings.Contains(a.body, "data/b") || strings.Contains(a.body, "data/a") {
			t.Errorf("behind a path: %s", a.body)
		}
		if a := c.do("GET", strings.Replace(*page.Next, fmt.Sprint("/", id, "/"), fmt.Sprint("/", id+1, "/"), 1), nil); a.status != 400 {
			t.Errorf("a cursor of another item: %d %s", a.status, a.body)
		}
		if a := c.wants(200, "GET", at+"/files?state=failed", nil); !strings.Contains(a.body, `"items":[]`) {
			t.Errorf("those that failed: %s", a.body)
		}
		if a := c.do("GET", at+"/files?limit=501", nil); a.status != 400 {
			t.Errorf("a long page: %d", a.status)
		}
	}
	for _, path := range []string{"/progress", "/files"} {
		theirs, absent := other.do("GET", at+path, nil), other.do("GET", "/api/v1/items/987654321"+path, nil)
		if theirs.status != 404 || theirs.body != absent.body {
			t.Errorf("%s of another: %d %s, of nothing: %d %s", path, theirs.status, theirs.body, absent.status, absent.body)
		}
	}
	if a := own.wants(200, "GET", fmt.Sprintf("/api/v1/items/%d/files", id+1), nil); !strings.Contains(a.body, `"known":false`) {
		t.Errorf("an item that was not read: %s", a.body)
	}
}

// Without Redis people are asked to try again, and what is on record is shown all the same.
func TestItemsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	id := s.ids(s.test)["items"]
	s.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, intellectual_object_id, "user")
		SELECT institution_id, 'Restore Object', 'Requested', 'bag.tar', 'out', 'e', 7, now(), identifier, id, 'ann@test.edu' FROM intellectual_objects WHERE institution_id = $1`, s.test.ID)
	c := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	later := func(want string) {
		t.Helper()
		for _, path := range []string{"/progress", "/files"} {
			a := c.do("GET", fmt.Sprint("/api/v1/items/", id, path), nil)
			if a.status != 503 || a.code() != "try-later" || !strings.Contains(a.text("detail"), want) || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	later("no connection to Redis")
	store, err := progress.Connect(t.Context(), testenv.RedisURL(t), progress.Prefix)
	if err == nil {
		err = store.Close() // nothing is answered any more
	}
	if err != nil {
		t.Fatal(err)
	}
	s.interimOf(func(context.Context) (*progress.Store, error) { return store, nil })
	later("not known now")
	requested := ask[int64](s, `SELECT id FROM work_items WHERE action = 'Restore Object'`)
	if a := c.wants(200, "GET", fmt.Sprintf("/api/v1/items/%d/files", requested), nil); !strings.Contains(a.body, `"path":"data/f"`) || !strings.Contains(a.body, `"state":"pending"`) || !strings.Contains(a.body, `"targets":["Standard-VA"]`) {
		t.Errorf("what is on record: %s", a.body)
	}
}

// What people may change of an item is changed together, and noted.
func TestItemsAreSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	id := s.ids(s.test)["items"]
	at := fmt.Sprint("/api/v1/items/", id)
	tag := o.wants(200, "GET", at, nil).header.Get("ETag")
	a := o.wants(200, "PATCH", at, `{"priority": -5, "note": "asked the\ndepositor", "needs_admin_review": true}`, "If-Match", tag)
	if !strings.Contains(a.body, `"priority":-5`) || a.text("note") != "asked the depositor" || !strings.Contains(a.body, `"needs_admin_review":true`) || a.header.Get("ETag") == tag {
		t.Errorf("tag %s, %s", a.header.Get("ETag"), a.body)
	}
	if a := o.do("PATCH", at, `{"note": "x"}`, "If-Match", tag); a.status != 412 {
		t.Errorf("with an old tag: %d %s", a.status, a.body)
	}
	if a := o.wants(200, "PATCH", at, `{"needs_admin_review": false}`); !strings.Contains(a.body, `"priority":-5`) || a.text("note") != "asked the depositor" {
		t.Errorf("what was left out has changed: %s", a.body)
	}
	for body, status := range map[string]int{`{}`: 400, `{"priority": 101}`: 400, `{"status": "Success"}`: 400, `{"note": null}`: 400, `{"note": "` + strings.Repeat("x", 1001) + `"}`: 400} {
		if a := o.do("PATCH", at, body); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	ended := ask[int64](s, `SELECT min(id) FROM work_items WHERE name = '3.tar'`)
	for _, body := range []string{`{"note": "x"}`, `{"priority": 1}`} {
		if a := o.do("PATCH", fmt.Sprint("/api/v1/items/", ended), body); a.status != 409 || !strings.Contains(a.text("detail"), "has ended") {
			t.Errorf("%s of what has ended: %d %s", body, a.status, a.body)
		}
	}
	if got := ask[string](s, `SELECT detail->'set'->>'note' FROM actions WHERE operation = 'items.set' AND outcome = 'done' AND subject_id = $1 AND institution_id = $2 ORDER BY id LIMIT 1`, fmt.Sprint(id), s.test.ID); got != "asked the\ndepositor" {
		t.Errorf("on record: %q", got)
	}
	if got := ask[string](s, `SELECT string_agg(DISTINCT actor, ' ') FROM work_item_audit WHERE work_item_id = $1`, id); got != "operator@archive.org" {
		t.Errorf("the audit has %s", got)
	}
}
