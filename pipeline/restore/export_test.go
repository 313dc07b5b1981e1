package restore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
)

// records gives the archive an object of n files, and returns an export of a kind that is
// queued, with its item.
func (a *archive) queued(kind exports.Kind, n int) (export, item int64) {
	a.T.Helper()
	a.Exec(fmt.Sprintf(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		VALUES (%d, 'test.edu/records', 'A bag', 'records', 'p', 'e') ON CONFLICT DO NOTHING`, a.In.ID))
	a.Exec(fmt.Sprintf(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT o.institution_id, o.id, o.identifier || '/data/' || to_char(n, 'FM000000') || repeat('x', 900), gen_random_uuid(), 'text/plain', n, 'Standard', now()
		FROM intellectual_objects o CROSS JOIN generate_series(1, %d) n WHERE o.identifier = 'test.edu/records'`, n))
	records := exports.In(a.Deps.Registry, registry.Everything())
	of, err := records.Find(context.Background(), kind, "test.edu", "")
	if err == nil {
		export, err = records.Make(context.Background(), of)
	}
	if err == nil {
		err = records.Queue(context.Background(), export, of, int64(n))
	}
	if err != nil {
		a.T.Fatal(err)
	}
	return export, pipelinetest.Value[int64](a, fmt.Sprintf(`SELECT work_item_id FROM exports WHERE id = %d`, export))
}

// written is the export as it would be downloaded now.
func (a *archive) written(kind exports.Kind) string {
	a.T.Helper()
	var b strings.Builder
	records := exports.In(a.Deps.Registry, registry.Everything())
	of, err := records.Find(context.Background(), kind, "test.edu", "")
	if err == nil {
		err = records.Snapshot(context.Background(), "", func(ctx context.Context, s *exports.Snapshot) error {
			_, err := s.WriteAll(ctx, &b, of)
			return err
		})
	}
	if err != nil {
		a.T.Fatal(err)
	}
	return b.String()
}

// isWhole fails the test unless an export is in the restoration bucket and on record as it
// would be downloaded, and nothing of it is left in staging.
func (a *archive) isWhole(export, item int64, kind exports.Kind) {
	a.T.Helper()
	w := a.Item(item)
	if w.Status != "Success" || w.Stage != "Resolve" || w.Outcome != "Export complete" {
		a.T.Fatalf("%s at %s: %s", w.Status, w.Stage, w.Note)
	}
	want := a.written(kind)
	r, _, err := exports.In(a.Deps.Registry, registry.Only(a.In)).Show(context.Background(), export, exports.Kinds())
	if err != nil || r.Key == nil || r.SHA256 == nil || *r.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(want))) || *r.Bytes != int64(len(want)) {
		a.T.Fatalf("on record: %+v, %v", r, err)
	}
	if got := string(a.Content(a.RestoreBucket(), *r.Key)); got != want {
		a.T.Errorf("%d bytes in the bucket, want %d", len(got), len(want))
	}
	if !strings.HasPrefix(*r.Key, fmt.Sprintf("test.edu/exports/%d/test.edu-", export)) || !strings.Contains(w.Note, *r.SHA256) {
		a.T.Errorf("key %s, note %s", *r.Key, w.Note)
	}
	if left := a.Keys(a.Deps.Staging); len(left) != 0 {
		a.T.Errorf("left in staging: %v", left)
	}
}

// What a work item writes is what a download has, of each kind, also if there is nothing.
func TestExportIsWrittenIntoTheRestorationBucket(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, kind := range []exports.Kind{exports.Manifest, exports.Inventory, exports.Events, exports.PREMIS} {
		export, item := a.queued(kind, 0)
		a.Work()
		a.isWhole(export, item, kind)
	}
	export, item := a.queued(exports.Inventory, 20_000) // two pieces
	a.Work()
	a.isWhole(export, item, exports.Inventory)
}

// A worker that dies at any of its requests to staging or to the restoration bucket leaves
// what the next one goes on with: the pieces that are there are not written again.
func TestExportGoesOnAfterAnyDeath(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	staging, files := a.Deps.Staging, 20_000
	const apart = 4 // each death costs an export; over several runs all are tried
	for dies := 1 + rand.Int64N(apart); ; dies += apart {
		export, item := a.queued(exports.Inventory, files)
		files = 0 // they are there
		var n atomic.Int64
		cut := func(to *httputil.ReverseProxy) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == dies { // its claim is gone, as that of a dead worker
					if _, err := a.DB.Exec(context.WithoutCancel(r.Context()), `SELECT release(id) FROM work_items WHERE status = 'Started'`); err != nil {
						t.Error(err)
					}
					panic(http.ErrAbortHandler)
				}
				to.ServeHTTP(w, r)
			})
		}
		a.Deps.Staging = a.Behind(staging, cut)
		a.Work()
		a.Deps.Staging = staging
		if n.Load() < dies {
			if n.Load() < 6 {
				t.Errorf("only %d requests", n.Load())
			}
			return
		}
		a.isWhole(export, item, exports.Inventory)
	}
}
