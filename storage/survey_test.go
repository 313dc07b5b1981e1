package storage_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// The top of a bucket is as short as there are names in it, however much is below.
func TestTopsNamesWhatIsAtTheTop(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "tops"))
	for _, key := range []string{"12/a", "12/b/c", "123/x", "a b+é/x", "plain", "7/inventory"} {
		put(t, b, key, []byte(key))
	}
	var got []string
	for o, err := range b.Tops(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o.Key)
	}
	slices.Sort(got)
	if want := []string{"12/", "123/", "7/", "a b+é/", "plain"}; !slices.Equal(got, want) {
		t.Errorf("Tops = %q, want %q", got, want)
	}
	at := target(t, "absent")
	for o, err := range open(t, at, storage.Options{}).Tops(t.Context()) {
		if !errors.Is(err, storage.ErrDenied) || o.Key != "" {
			t.Errorf("Tops of no bucket = %+v, %v", o, err)
		}
	}
}

// An upload that was begun is seen until it is aborted; aborting it twice is fine.
func TestOpenUploadsAreSeenAndAborted(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "uploads"))
	before := time.Now().Add(-time.Minute)
	for _, key := range []string{"a", "b/c"} {
		leave(t, b, key, noise(minPart+17))
	}
	list := func() (all []storage.OpenUpload) {
		t.Helper()
		for u, err := range b.OpenUploads(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		return all
	}
	all := list()
	if len(all) != 2 || all[0].ID == "" || all[0].Begun.Before(before) {
		t.Fatalf("OpenUploads = %+v", all)
	}
	for range 2 {
		if err := b.Abort(t.Context(), all[0]); err != nil {
			t.Error(err)
		}
	}
	if left := list(); len(left) != 1 || left[0] != all[1] {
		t.Errorf("left %+v, want %+v", left, all[1])
	}
}

// Only the object that was meant is deleted, also if it is replaced after our look
// at it, and on servers that do not know the condition.
func TestDeleteMatchingLeavesAnother(t *testing.T) {
	t.Parallel()
	at := target(t, "matching")
	b := create(t, at)
	old := put(t, b, "bag.tar", []byte("old"))
	newer := put(t, b, "bag.tar", []byte("newer"))
	if err := b.DeleteMatching(t.Context(), "bag.tar", old.ETag); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("DeleteMatching of an older one = %v, want ErrChanged", err)
	}
	head(t, b, "bag.tar")
	if err := b.DeleteMatching(t.Context(), "bag.tar", newer.ETag); err != nil {
		t.Error(err)
	}
	if err := b.DeleteMatching(t.Context(), "bag.tar", newer.ETag); err != nil {
		t.Errorf("DeleteMatching of one that is gone = %v", err)
	}

	meant := put(t, b, "bag.tar", []byte("meant"))
	replaced := false
	g := newGate(t, at, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && !replaced {
			replaced = true
			put(t, b, "bag.tar", []byte("another"))
		}
		return false
	})
	if err := open(t, g.through(at), storage.Options{}).DeleteMatching(t.Context(), "bag.tar", meant.ETag); !errors.Is(err, storage.ErrChanged) || !replaced {
		t.Errorf("DeleteMatching of one that is replaced in between = %v, want ErrChanged", err)
	}
	if o := head(t, b, "bag.tar"); o.Size != int64(len("another")) {
		t.Errorf("there is %+v", o)
	}

	last := head(t, b, "bag.tar")
	g = newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || r.Header.Get("If-Match") == "" {
			return false
		}
		answer(w, http.StatusNotImplemented, "NotImplemented")
		return true
	})
	if err := open(t, g.through(at), storage.Options{}).DeleteMatching(t.Context(), "bag.tar", last.ETag); err != nil {
		t.Error(err)
	}
	for o, err := range b.List(t.Context(), "", "") {
		t.Errorf("left %+v, %v", o, err)
	}
}
