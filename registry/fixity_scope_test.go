package registry_test

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// An institution counts its own copies and the bad ones among them, and has no others
// checked. The name of one begins with that of the other.
func TestFixityWithinAScope(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 2))
	a.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at)
		SELECT id, generic_file_id, target, 'AWS', url, 'missing', 'sha256', 'x', now(), now() FROM storage_records WHERE target = 'Standard-VA' ORDER BY id LIMIT 1`)
	other := a.institution("test.ed")
	r := fixity.In(a.Registry)
	for _, tc := range []struct {
		scope       registry.Scope
		copies, bad int64
	}{{registry.Only(a.in), 2, 1}, {registry.Only(other), 0, 0}} {
		o, err := r.OwnStatus(t.Context(), tc.scope, 3650)
		if err != nil || !o.Counted || o.Bad != tc.bad {
			t.Errorf("%+v: %+v, %v", tc.scope, o, err)
		}
		for _, target := range o.Targets {
			if target.Target == "Standard-VA" && (*target.Copies != tc.copies || target.Bad != tc.bad || *target.Overdue != 0) {
				t.Errorf("%+v: %+v", tc.scope, target)
			}
		}
		list, err := r.BadCopiesIn(t.Context(), tc.scope, fixity.BadFilter{Limit: 10})
		if err != nil || int64(len(list)) != tc.bad {
			t.Errorf("%+v: bad %+v, %v", tc.scope, list, err)
		}
	}
	for _, scope := range []registry.Scope{{}, registry.Everything()} {
		if _, err := r.OwnStatus(t.Context(), scope, 90); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%+v: %v", scope, err)
		}
	}
	if list, err := r.BadCopiesIn(t.Context(), registry.Scope{}, fixity.BadFilter{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("no scope: bad %+v, %v", list, err)
	}
	identifier := a.in.Identifier + "/bag"
	for _, scope := range []registry.Scope{{}, registry.Only(other)} {
		if _, err := r.RequestIn(t.Context(), scope, identifier, "", false); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%+v: %v", scope, err)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM fixity_checks`); n != 0 {
		t.Errorf("%d checks are requested", n)
	}
	for _, scope := range []registry.Scope{registry.Only(a.in), registry.Everything()} {
		if _, err := r.RequestIn(t.Context(), scope, identifier, "", false); err != nil {
			t.Errorf("%+v: %v", scope, err)
		}
	}
}
