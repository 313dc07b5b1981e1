package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/storage"
)

// requests prepares a site for what is asked of it: a restoration bucket, and two
// people who may have things deleted.
func (s *site) requests() (first, second string) {
	s.t.Helper()
	s.created(s.in.RestoreBucket)
	s.settings["FAROL_COLD_POLL"] = "100ms"
	first, second = "first@test.edu", "second@test.edu"
	for _, email := range []string{first, second} {
		s.farol("user", "add", email, "--name", "Some Body", "--role", "institutional_admin", "--institution", "test.edu")
	}
	return first, second
}

// newest is the newest item of an action.
func (s *site) newest(action string) record.WorkItem {
	s.t.Helper()
	return s.item(ask[int64](s.t, s.db, `SELECT max(id) FROM work_items WHERE action = '`+action+`'`))
}

func (s *site) aged() {
	s.exec(`UPDATE intellectual_objects SET created_at = now() - interval '1 year'`)
	s.exec(`UPDATE generic_files SET created_at = now() - interval '1 year'`)
}

// delete has two people decide on a deletion.
func (s *site) delete(first, second string, identifiers ...string) {
	s.t.Helper()
	said := s.farol(append([]string{"delete", "request", "--by", first}, identifiers...)...)
	fields := strings.Fields(said[strings.Index(said, "farol delete approve"):])
	s.farol("delete", "approve", fields[3], "--by", second, "--on-paper", "test")
}

func (s *site) content(bucket, key string) []byte {
	s.t.Helper()
	r := must.Get(s.created(bucket).Get(s.t.Context(), key, storage.Range{Length: -1}))(s.t)
	defer r.Close() //nolint:errcheck // read below
	content := must.Get(io.ReadAll(r))(s.t)
	return content
}

// restoredBag reads the bag that an object was given back as, which must be valid
// and have the bytes that are on record.
func (s *site) restoredBag(object string) *bag.Bag {
	s.t.Helper()
	b := must.Get(bag.Read(s.t.Context(), bytes.NewReader(s.content(s.in.RestoreBucket, object+".tar")), bag.ReadOptions{}))(s.t)
	if v := b.Validate(nil); !v.Valid {
		s.t.Errorf("%s as it was given back: %+v", object, v.Errors)
	}
	var got []string
	for _, f := range b.Files {
		if f.Preservable() && f.Path != "bag-info.txt" {
			got = append(got, f.Path+" "+f.Digests.Hex(bag.SHA256))
		}
	}
	slices.Sort(got)
	want := ask[[]string](s.t, s.db, fmt.Sprintf(`SELECT array_agg(substr(f.identifier, length('%s') + 2) || ' ' || (
			SELECT digest FROM checksums c WHERE c.generic_file_id = f.id AND algorithm = 'sha256' ORDER BY datetime DESC LIMIT 1)
			ORDER BY f.identifier COLLATE "C") FROM generic_files f
		WHERE f.state = 'A' AND f.identifier LIKE '%s/%%' AND f.identifier NOT LIKE '%%/bag-info.txt'`, object, object))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("%s as it was given back:\n%s\non record:\n%s", object, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return b
}

// The whole life of what is kept: it comes in, in versions, is given back, and goes,
// with what has to hold after each step.
func TestWholeLifeOfWhatIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := s.requests()
	w := s.worker()
	cold := sampleBag("cold")
	cold.StorageOption = "Glacier-OH"
	btr := bagtest.Spec{Name: "btr", Profile: bagtest.BTR, Files: []bagtest.File{{Path: "data/data.json", Content: `{"version": 1}`}}}
	s.deposit(sampleBag("whole"), btr, cold)
	s.atRest(w)
	btr.Files = []bagtest.File{{Path: "data/data.json", Content: `{"version": 2, "more": true}`}}
	changed := sampleBag("whole")
	changed.Files = append(changed.Files, random("data/new.bin", 20_000, 7))
	other := cold
	other.StorageOption = "Standard" // the object stays where it is
	s.deposit(changed, btr, other)
	s.atRest(w)
	for sql, want := range map[string]int{
		`SELECT count(*) FROM work_items WHERE status = 'Success' AND outcome = 'Ingest complete'`:                                                          6,
		`SELECT count(*) FROM intellectual_objects WHERE state = 'A'`:                                                                                       3,
		`SELECT count(DISTINCT s.target) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE 'test.edu/cold/%'`: 1,
	} {
		if n := ask[int](t, s.db, sql); n != want {
			t.Fatalf("%s = %d, want %d", sql, n, want)
		}
	}

	s.farol("restore", "file", "test.edu/btr/data/data.json")
	s.farol("restore", "object", "test.edu/whole")
	s.farol("restore", "object", "test.edu/cold", "--tier", "Bulk")
	s.atRest(w)
	if got := string(s.content(s.in.RestoreBucket, "test.edu/btr/data/data.json")); got != `{"version": 2, "more": true}` {
		t.Errorf("file = %s", got)
	}
	s.restoredBag("test.edu/whole")
	s.restoredBag("test.edu/cold")
	if item := s.newest("Glacier Restore"); item.Status != "Success" || item.Stage != "Resolve" {
		t.Errorf("from Glacier: %+v", item)
	}

	s.aged()
	s.delete(first, second, "test.edu/whole/data/a.bin", "test.edu/cold")
	s.atRest(w)
	s.farol("restore", "object", "test.edu/whole")
	s.farol("restore", "object", "test.edu/btr")
	s.atRest(w)
	b := s.restoredBag("test.edu/whole")
	if slices.ContainsFunc(b.Files, func(f *bag.File) bool { return f.Path == "data/a.bin" }) {
		t.Error("a deleted file was given back")
	}
	s.restoredBag("test.edu/btr")
	for sql, want := range map[string]int{
		`SELECT count(*) FROM work_items WHERE status <> 'Success'`:                                                               0,
		`SELECT count(*) FROM generic_files WHERE state = 'D'`:                                                                    1 + sampleFiles,
		`SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.state = 'D'`:             0,
		`SELECT count(*) FROM premis_events WHERE event_type = 'deletion' AND outcome_detail LIKE '%@%'`:                          2 + sampleFiles,
		`SELECT count(*) FROM deletion_receipts WHERE absent_at IS NULL`:                                                          0,
		`SELECT count(*) FROM topic_messages WHERE topic IN ('restore_file', 'restore_object', 'restore_glacier', 'delete_item')`: 8,
	} {
		if n := ask[int](t, s.db, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	for _, o := range []*storage.Bucket{s.staging, s.receiving, s.targets["Glacier-OH"]} {
		for object, err := range o.List(t.Context(), "", "") {
			t.Errorf("left in %s: %s, %v", o.Name(), object.Key, err)
		}
	}
	if keys, err := s.redis.Keys(t.Context(), "*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("left in Redis: %v, %v", keys, err)
	}
}

// A worker that is killed in the midst of a restoration or a deletion is followed by
// one that ends it.
func TestKillDuringRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := s.requests()
	large := sampleBag("large")
	large.Files = append(large.Files, random("data/large.bin", 90<<20, 0))
	w := s.worker()
	s.deposit(large)
	s.atRest(w)
	w.kill()
	s.aged()
	proxy := s.s3Proxy()
	for _, tc := range []struct {
		what   string
		ask    func()
		midway string
	}{
		{"restoration", func() { s.farol("restore", "object", "test.edu/large") }, ""},
		{"deletion", func() { s.delete(first, second, "test.edu/large") }, `SELECT count(*) FROM intellectual_objects WHERE deleted_by_item IS NOT NULL`},
	} {
		before := proxy.Bytes()
		tc.ask()
		w := s.worker()
		w.eventually("the middle of the "+tc.what, func() bool {
			if tc.midway != "" {
				return ask[int](t, s.db, tc.midway) > 0
			}
			return proxy.Bytes()-before > 80<<20
		})
		w.kill()
		if n := ask[int](t, s.db, `SELECT count(*) FROM work_items WHERE status = 'Started'`); n != 1 {
			t.Logf("the %s was over before it was killed", tc.what)
		}
		w = s.worker()
		s.atRest(w)
		if tc.what == "restoration" {
			s.restoredBag("test.edu/large")
		}
		w.kill()
	}
	if n := ask[int](t, s.db, `SELECT count(*) FROM work_items WHERE status <> 'Success'`); n != 0 {
		t.Errorf("%d items did not succeed", n)
	}
	if n := ask[int](t, s.db, `SELECT count(*) FROM generic_files WHERE state = 'A'`); n != 0 {
		t.Errorf("%d files are left", n)
	}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		for object, err := range s.targets[name].List(t.Context(), "", "") {
			t.Errorf("left in %s: %s, %v", name, object.Key, err)
		}
	}
}
