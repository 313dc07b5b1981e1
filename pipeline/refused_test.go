package pipeline_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/storeways"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// behind is the archive's dependencies with a store for Standard-VA that goes some ways, and else
// answers where instead does.
func behind(t *testing.T, a *pipelinetest.Archive, instead func(http.ResponseWriter, *http.Request) bool, ways ...storeways.Way) pipeline.Deps {
	t.Helper()
	forward := a.S3.Proxy(t)
	forward.ModifyResponse = func(r *http.Response) error {
		var all []error
		for _, w := range ways {
			if w.Response != nil {
				all = append(all, w.Response(r))
			}
		}
		return errors.Join(all...)
	}
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered := instead != nil && instead(w, r)
		for _, way := range ways {
			answered = answered || way.Request != nil && way.Request(w, r)
		}
		if !answered {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(gate.Close)
	return a.With(func(t *storage.Target) {
		if t.Bucket == a.Deps.Targets["Standard-VA"].Name() {
			t.Endpoint, t.CAFile = gate.URL, ""
		}
	})
}

// A request that a store takes from nobody is no failure of any bag: all wait, no attempt is spent,
// people get one alert however many items and workers meet it, and all goes on by itself.
func TestRequestThatAStoreRefusesHarmsNoBag(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	target := a.Deps.Targets["Standard-VA"]
	var refuses atomic.Bool
	refuses.Store(true)
	d := behind(t, a.Archive, func(w http.ResponseWriter, r *http.Request) bool {
		if !refuses.Load() || r.Method != http.MethodPut || !strings.HasPrefix(r.URL.Path, "/"+target.Name()+"/") {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>NobodyKnowsThis</Code><Message>not here</Message></Error>")
		return true
	})
	a.Worker(d)
	a.Worker(d)
	a.Bags(6)
	const alerts = `SELECT count(*) FROM alerts WHERE type = 'Service Held' AND subject LIKE 'Refuses a request: %'`
	testenv.Eventually(t, "items to wait for the store, and an alert", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(DISTINCT work_item_id) FROM work_item_attempts WHERE outcome = 'held' AND error_code = 'storage-refused'`) > 1 &&
			pipelinetest.Value[int](a, alerts) > 0
	})
	if text := pipelinetest.Value[string](a, `SELECT subject || ' ' || content FROM alerts WHERE subject LIKE 'Refuses%'`); !strings.Contains(text, target.Service()) || !strings.Contains(text, "NobodyKnowsThis") {
		t.Errorf("the alert says %q", text)
	}
	refuses.Store(false)
	a.Unharmed(6)
	if n := pipelinetest.Value[int](a, alerts); n != 1 {
		t.Errorf("people got %d alerts, want one", n)
	}
}

// Nor is what the database's own rules refuse.
func TestRecordThatTheDatabaseRefusesWaits(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Exec(`ALTER TABLE intellectual_objects ADD CONSTRAINT no_object_now CHECK (false) NOT VALID`)
	a.Worker(a.Deps)
	a.Bags(1)
	testenv.Eventually(t, "the record to be refused", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE stage = 'Record' AND outcome = 'held' AND error_code = 'database-refused'
			AND error LIKE '%no_object_now%'`) > 0
	})
	a.Exec(`ALTER TABLE intellectual_objects DROP CONSTRAINT no_object_now`)
	a.Unharmed(1)
}

// What a store keeps of no object is not compared, and no bag has to wait for it.
func TestStoreThatKeepsNoDescriptions(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	d := behind(t, a.Archive, nil, someWays(t, a.Archive, "no metadata", "content types of its own")...)
	a.Worker(d)
	a.Bags(3)
	a.Unharmed(3)
	for _, way := range []ability.Way{ability.Metadata, ability.MediaType} {
		if can, seen := d.Targets["Standard-VA"].Can(way); can || !seen {
			t.Errorf("%s: Can = %t, %t; the store does not", way, can, seen)
		}
	}
	if keys := a.Keys(a.Deps.Targets["Standard-VA"]); slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, "farol-check/") }) {
		t.Errorf("trials were left: %q", keys)
	}
}

// someWays are those of these names.
func someWays(t *testing.T, a *pipelinetest.Archive, names ...string) []storeways.Way {
	t.Helper()
	ways := slices.DeleteFunc(storeways.All(a.S3.AccessKeyID, a.S3.SecretAccessKey), func(w storeways.Way) bool { return !slices.Contains(names, w.Name) })
	if len(ways) != len(names) {
		t.Fatalf("some of %q are no ways", names)
	}
	return ways
}

// Copies that the store does not prove are read, and their record says so.
func TestCopiesThatNothingProvesAreRead(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Worker(behind(t, a.Archive, nil, someWays(t, a.Archive, "no checksums", "ETags of its own")...))
	a.Bags(3)
	a.Unharmed(3)
	const by = `SELECT string_agg(DISTINCT verified_by || ' of ' || target, ', ' ORDER BY verified_by || ' of ' || target) FROM storage_records`
	if got := pipelinetest.Value[string](a, by); !strings.Contains(got, "read of Standard-VA") {
		t.Errorf("the copies were verified by %s", got)
	}
}
