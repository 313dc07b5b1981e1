package preserved_test

import (
	"slices"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// Histories that once went wrong go well: the shortest of each fault.
func TestFaultsOfBeforeStayAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tc := range []struct{ fault, history string }{
		{"a deletion that found copies missing was cancelled, and the object stayed out of preservation", "deposit 0 0; run; lose 0 0 1; ask 0 0; approve 0; run; cancel 0"},
		{"a deletion that was held by its storage was cancelled, and the object stayed marked", "deposit 0 0; run; ask 0 0; approve 0; deny 0; cancel 0"},
		{"a deletion of a file that was held was cancelled, and the file stayed marked", "deposit 0 0; run; ask 0 1; approve 0; deny 1; cancel 0"},
		{"a deletion was cancelled while its worker looked for the copies", "deposit 0 0; run; ask 0 0; approve 0; cancel-at 2 0"},
		{"a deletion was cancelled while its worker removed the copies", "deposit 0 0; run; ask 0 0; approve 0; cancel-at 9 0; run; repair"},
		{"a deletion proved that a copy is missing, and left no record of that", "deposit 0 0; run; lose 0 0 0; ask 0 0; approve 0; run; accept; run"},
		{"both copies were missing, and the file was called good", "deposit 0 0; run; lose 0 0 0; lose 0 0 1; ask 0 1; approve 0; run; cancel 0"},
		{"a byte of a restoration was flipped while it waited in staging", "deposit 0 0; run; restore 0 0; flip 0; run"},
		{"a byte of a file's restoration was flipped while it waited in staging", "deposit 0 0; run; restore 0 1; flip 0; run"},
		{"an item that was recorded was stored again by another worker, which gave the copies other addresses", "deposit 0 0; run 8 0; restage 0 6; run 0 1"},
		{"an item stored a file again for a bad copy, and no event named the second copy", "deposit 0 0; run 8 0; spoil 0 0 0; check 0; run 0 0"},
	} {
		if wrong := w.live(historyOf(t, tc.history)); len(wrong) > 0 {
			t.Errorf("%s: -preserved.history '%s'\n%s", tc.fault, tc.history, texts(wrong))
		}
	}
}

// The oracle notices each thing that it is there for.
func TestOracleNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const (
		file = `(SELECT id FROM generic_files WHERE identifier LIKE $1 || '-a/data/x')`
		one  = `(SELECT s.id FROM storage_records s WHERE s.generic_file_id = ` + file + ` AND s.target = 'Standard-OR')`
	)
	for _, tc := range []struct{ kind, history, sql string }{
		{"copy-lost", "deposit 0 0; run", `UPDATE storage_records SET key = key || '0' WHERE id = ` + one},
		{"copies-recorded", "deposit 0 0; run", `DELETE FROM storage_records WHERE id = ` + one},
		{"mark-left", "deposit 0 0; run; ask 0 0; approve 0; cancel 0", `UPDATE intellectual_objects SET deleted_by_item = (SELECT max(id) FROM work_items) WHERE identifier LIKE $1 || '-a'`},
		{"digest-of-nothing", "deposit 0 0; run", `UPDATE file_digests SET sha256 = sha256(sha256) WHERE generic_file_id = ` + file},
		{"no-receipt", "deposit 0 0; run; ask 0 0; approve 0; run", `DELETE FROM deletion_receipts WHERE generic_file_id = ` + file},
		{"events", "deposit 0 0; run", `DELETE FROM event_records WHERE generic_file_id = ` + file},
		{"events", "deposit 0 0; run", `UPDATE event_records SET texts = texts || texts[1] WHERE generic_file_id = ` + file},
		{"events", "deposit 0 0; run; ask 0 0; approve 0; run", `UPDATE event_records SET generic_file_id = ` + file + ` WHERE id = (
			SELECT max(r.id) FROM event_records r JOIN generic_files f ON f.id = r.generic_file_id WHERE f.identifier LIKE $1 || '-a/data/y')`},
	} {
		l := w.life()
		l.steps(historyOf(t, tc.history))
		if len(l.verdict) > 0 {
			t.Errorf("before %s:\n%s", tc.sql, texts(l.verdict))
		}
		prefix := l.object(0)[:len(l.object(0))-len("-a")]
		testenv.Scene(t, w.DB, tc.sql, prefix)
		l.step = tc.sql
		l.observe(0)
		l.events()
		if !slices.ContainsFunc(l.verdict, func(v violation) bool { return v.kind == tc.kind }) {
			t.Errorf("%s was not noticed after %s:\n%s", tc.kind, tc.sql, texts(l.verdict))
		}
		l.leave()
	}
}

// A history that is wrong is made as short as it can be, and is read as it was written.
func TestHistoriesAreShortened(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		h := randomHistory(seed)
		if again := historyOf(t, h.String()); again.String() != h.String() {
			t.Errorf("%s is read as %s", h, again)
		}
	}
	h := historyOf(t, "deposit 0 0; run; lose 0 1 1; check 0; ask 1 1; approve 0; run 3 1; cancel 0; repair")
	short := shortest(h, func(h history) bool {
		lost := slices.IndexFunc(h, func(s step) bool { return s.verb == "lose" })
		return lost >= 0 && slices.ContainsFunc(h[lost:], func(s step) bool { return s.verb == "cancel" })
	})
	if short.String() != "lose 0 1 1; cancel 0" {
		t.Errorf("the shortest history is %s", short)
	}
}
