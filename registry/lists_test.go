package registry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// Each filter narrows the list, and pages neither repeat nor leave out an item.
func TestListOfItems(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	now := time.Now()
	a.upload(etag1, now, "one.tar")                                               // 1
	a.upload(etag1, now, "two.tar")                                               // 2
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = 2`)                // needs review
	a.upload(etag1, now, "three.tar")                                             // 3
	a.exec(`UPDATE work_items SET claim_token = 1, stage = 'Store' WHERE id = 3`) // by a worker
	a.in = a.institution("other.edu")
	a.upload(etag1, now, "one.tar") // 4
	a.exec(`UPDATE work_items SET status = 'Cancelled' WHERE id = 4`)
	a.exec(`UPDATE work_items SET error_code = 'invalid-bag' WHERE id = 2`)
	a.exec(`UPDATE work_items SET created_at = created_at - interval '1 day' WHERE id <= 2`)
	for name, tc := range map[string]struct {
		filter browse.ItemFilter
		page   browse.Page
		want   []int64
	}{
		"all, newest first": {browse.ItemFilter{}, browse.Page{}, []int64{4, 3, 2, 1}},
		"first page":        {browse.ItemFilter{}, browse.Page{Limit: 2}, []int64{4, 3}},
		"second page":       {browse.ItemFilter{}, browse.Page{Limit: 2, After: browse.Key{ID: 3}}, []int64{2, 1}},
		"status":            {browse.ItemFilter{ItemFilter: record.ItemFilter{Status: []registry.Status{"Pending"}}}, browse.Page{}, []int64{3, 1}},
		"stage":             {browse.ItemFilter{ItemFilter: record.ItemFilter{Stage: []registry.Stage{"Store"}}}, browse.Page{}, []int64{3}},
		"institution":       {browse.ItemFilter{ItemFilter: record.ItemFilter{Institution: "other.edu"}}, browse.Page{}, []int64{4}},
		"name":              {browse.ItemFilter{ItemFilter: record.ItemFilter{Name: "one.tar"}}, browse.Page{}, []int64{4, 1}},
		"action":            {browse.ItemFilter{ItemFilter: record.ItemFilter{Action: []registry.Action{"Ingest"}}}, browse.Page{}, []int64{4, 3, 2, 1}},
		"another action":    {browse.ItemFilter{ItemFilter: record.ItemFilter{Action: []registry.Action{"Delete"}}}, browse.Page{}, nil},
		"error code":        {browse.ItemFilter{ItemFilter: record.ItemFilter{ErrorCode: "invalid-bag"}}, browse.Page{}, []int64{2}},
		"object":            {browse.ItemFilter{ItemFilter: record.ItemFilter{Object: "test.edu/one"}}, browse.Page{}, []int64{1}},
		"since":             {browse.ItemFilter{ItemFilter: record.ItemFilter{CreatedAfter: now.Add(-time.Hour)}}, browse.Page{}, []int64{4, 3}},
		"for review":        {browse.ItemFilter{ItemFilter: record.ItemFilter{Review: true}}, browse.Page{}, []int64{2}},
		"both":              {browse.ItemFilter{ItemFilter: record.ItemFilter{Institution: "test.edu", Name: "one.tar"}}, browse.Page{}, []int64{1}},
		"none":              {browse.ItemFilter{ItemFilter: record.ItemFilter{Institution: "nobody.edu"}}, browse.Page{}, nil},
	} {
		if tc.page.Limit == 0 {
			tc.page.Limit = 9
		}
		list, _, err := browse.In(a.Registry, registry.Everything()).Items(context.Background(), tc.filter, tc.page)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for _, i := range list {
			ids = append(ids, i.ID)
		}
		if !slices.Equal(ids, tc.want) {
			t.Errorf("%s: %v, want %v", name, ids, tc.want)
		}
	}
}

// A reader of buckets goes from page to page and passes over those who have
// left.
func TestListOfInstitutions(t *testing.T) {
	t.Parallel()
	a := newArchive(t) // with test.edu, which is 1
	for _, identifier := range []string{"b.edu", "a.edu", "d.edu"} {
		a.institution(identifier)
	}
	a.exec(`UPDATE institutions SET state = 'D' WHERE identifier = 'b.edu'`)
	for _, tc := range []struct {
		after  int64
		n      int
		active bool
		want   string
	}{
		{0, 9, false, "[test.edu b.edu a.edu d.edu]"},
		{0, 9, true, "[test.edu a.edu d.edu]"},
		{0, 2, true, "[test.edu a.edu]"},
		{a.in.ID, 1, false, "[b.edu]"},
		{a.in.ID + 3, 9, false, "[]"},
	} {
		list := must.Get(a.Institutions(context.Background(), tc.after, tc.n, tc.active))(t)
		var got []string
		for _, in := range list {
			got = append(got, in.Identifier)
			if in.ReceivingBucket != "receiving."+in.Identifier || in.RestoreBucket != "restore."+in.Identifier {
				t.Errorf("%s has the buckets %s and %s", in.Identifier, in.ReceivingBucket, in.RestoreBucket)
			}
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("after %d, %d, active %v: %v, want %s", tc.after, tc.n, tc.active, got, tc.want)
		}
	}
}

// The ledger of an item is in the order of its claims, and none but its own.
func TestListOfAttempts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		VALUES (1, 9, 'Validate', 1, 'n', 1, 'w'), (1, 2, 'Receive', 1, 'n', 1, 'w'), (2, 5, 'Receive', 1, 'n', 1, 'w'), (1, 4, 'Receive', 2, 'n', 1, 'w')`)
	list := must.Get(a.Attempts(context.Background(), 1))(t)
	var tokens []int64
	for _, at := range list {
		tokens = append(tokens, at.ClaimToken)
	}
	if want := []int64{2, 4, 9}; !slices.Equal(tokens, want) {
		t.Errorf("attempts %v, want %v", tokens, want)
	}
}

// Two depositors may send the same tar under the same name.
func TestUploadsOfTwoInstitutionsAreTwo(t *testing.T) {
	t.Parallel()
	for _, ended := range []string{"", "Failed"} {
		t.Run("first is "+ended, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			now := time.Now()
			id := a.upload(etag1, now, "bag.tar")[0]
			if ended != "" {
				a.exec(`UPDATE work_items SET status = $1`, ended)
			}
			a.in = a.institution("other.edu")
			ids := a.upload(etag1, now, "bag.tar")
			if len(ids) != 1 {
				t.Fatalf("made %d items for the second institution, want one", len(ids))
			}
			if second := a.item(ids[0]); second.Institution != "other.edu" || second.ObjectIdentifier != "other.edu/bag" || second.WaitsFor != nil {
				t.Errorf("item %d of test.edu, and then %+v", id, second)
			}
		})
	}
}

// Of several items that an upload has had, the last one decides.
func TestUploadThatFailedAfterItWasCancelledIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	at := time.Now().Add(-time.Hour)
	a.upload(etag1, at, "bag.tar")
	a.exec(`UPDATE work_items SET status = 'Cancelled'`)
	at = at.Add(time.Minute)
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, a.upload(etag1, at, "bag.tar")[0])
	if ids := a.upload(etag1, at, "bag.tar"); len(ids) != 0 {
		t.Errorf("made items %v of an upload that has failed", ids)
	}
}

// What was uploaded first is worked on first, in whatever order it is listed.
func TestOldestUploadsComeFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	at := time.Now().Add(-time.Hour)
	ids := must.Get(a.CreateIngests(context.Background(), a.in, time.Now(), []registry.Upload{
		{Key: "b.tar", ETag: etag1, Size: 1, LastModified: at.Add(time.Minute)},
		{Key: "z.tar", ETag: etag1, Size: 2, LastModified: at},
		{Key: "a.tar", ETag: etag1, Size: 3, LastModified: at.Add(time.Minute)},
	}))(t)
	var got []string
	for _, id := range ids {
		item := a.item(id)
		got = append(got, fmt.Sprint(item.Name, " ", item.Size))
	}
	if want := []string{"z.tar 2", "a.tar 3", "b.tar 1"}; !slices.Equal(got, want) {
		t.Errorf("items of %v, want %v", got, want)
	}
}
