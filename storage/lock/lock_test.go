package lock_test

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/storage/lock"
)

// What keeps several is the latest time, and any legal hold.
func TestKeptAndKept(t *testing.T) {
	t.Parallel()
	early, late := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	var none *lock.Kept
	for _, tc := range []struct {
		a, b *lock.Kept
		want string
	}{
		{&lock.Kept{Until: early}, &lock.Kept{Until: late, Mode: "COMPLIANCE"}, "kept by the store until 2027-01-02 03:04:05 UTC"},
		{&lock.Kept{LegalHold: true}, &lock.Kept{Until: early}, "kept by the store until 2026-12-01 00:00:00 UTC and under a legal hold"},
		{&lock.Kept{}, none, "kept by the store, which does not say until when"},
	} {
		if ab, ba := tc.a.And(tc.b), tc.b.And(tc.a); ab.Error() != tc.want || *ab != *ba {
			t.Errorf("%+v and %+v = %q, %q, want %q", tc.a, tc.b, ab, ba, tc.want)
		}
	}
	if none.And(nil) != nil {
		t.Error("nothing and nothing keep something")
	}
}
