package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// versioned is a new bucket that keeps versions.
func versioned(t *testing.T, name string) (storage.Target, *storage.Bucket) {
	t.Helper()
	at := target(t, name)
	b := create(t, at)
	testenv.S3(t).SetVersioning(t, at.Bucket, true)
	return at, b
}

func versions(t *testing.T, b *storage.Bucket, prefix string) []storage.Version {
	t.Helper()
	var all []storage.Version
	for v, err := range b.Versions(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func remove(t *testing.T, b *storage.Bucket, keys ...string) {
	t.Helper()
	must.Do(t, b.Delete(t.Context(), keys...))
}

// An object that was replaced or deleted is found by its ETag among the versions of its key, and can
// be read and copied, as a whole and in ranges.
func TestPinnedVersionIsReadAndCopied(t *testing.T) {
	t.Parallel()
	at, b := versioned(t, "versions")
	key, content := "12/a b+é", noise(5000)
	etag := put(t, b, key, content).ETag
	put(t, b, key+"more", noise(7))
	id := must.Get(b.Pinned(t.Context(), key, etag))(t)
	for _, name := range []string{"it is the newest", "it is replaced", "it is deleted"} {
		switch name {
		case "it is replaced":
			put(t, b, key, noise(6000))
		case "it is deleted":
			remove(t, b, key)
		}
		if again, err := b.Pinned(t.Context(), key, etag); err != nil || id == "" || again != id {
			t.Errorf("%s: version %q, and before %q, %v", name, again, id, err)
		}
		r := must.Get(b.Get(t.Context(), key, storage.Range{Offset: 1000, Length: 3000, IfMatch: etag, Version: id}))(t)
		if got := must.Get(io.ReadAll(r))(t); !bytes.Equal(got, content[1000:4000]) {
			t.Errorf("%s: other bytes are read", name)
		}
		must.Do(t, r.Close())
		src := storage.Source{Bucket: b, Key: key, IfMatch: etag, Version: id}
		must.Get(b.Copy(t.Context(), src, "whole", describe(content), storage.Parts{}))(t)
		src.Range, src.Offset = true, 1000
		must.Get(b.Copy(t.Context(), src, "range", describe(content[1000:4000]), storage.Parts{}))(t)
		if !bytes.Equal(get(t, b, "whole"), content) || !bytes.Equal(get(t, b, "range"), content[1000:4000]) {
			t.Errorf("%s: other bytes are copied", name)
		}
	}
	_, err := b.Get(t.Context(), key, storage.Range{Length: -1, IfMatch: "another", Version: id})
	if !errors.Is(err, storage.ErrChanged) {
		t.Errorf("of another ETag: %v", err)
	}
	closed := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("versions") {
			return false
		}
		answer(w, http.StatusForbidden, "AccessDenied")
		return true
	})
	for name, b := range map[string]*storage.Bucket{"no such version": b, "versions are not shown": open(t, closed.through(at), storage.Options{})} {
		remove(t, b, key)
		if _, err := b.Pinned(t.Context(), key, "another"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s of what is deleted: %v", name, err)
		}
		put(t, b, key, noise(10))
		if _, err := b.Pinned(t.Context(), key, "another"); !errors.Is(err, storage.ErrChanged) {
			t.Errorf("%s of what is replaced: %v", name, err)
		}
	}
}

// Without versions, there is nothing but what is under the key.
func TestNothingIsPinnedWithoutVersions(t *testing.T) {
	t.Parallel()
	b := create(t, target(t, "plain"))
	etag := put(t, b, "key", noise(10)).ETag
	if id, err := b.Pinned(t.Context(), "key", etag); err != nil || id != "" {
		t.Errorf("version %q, %v", id, err)
	}
	put(t, b, "key", noise(11))
	if _, err := b.Pinned(t.Context(), "key", etag); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("of what is replaced: %v", err)
	}
	remove(t, b, "key")
	if _, err := b.Pinned(t.Context(), "key", etag); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("of what is deleted: %v", err)
	}
}

// What was replaced and deleted is still there, and can be removed one by one.
func TestVersionsShowsWhatIsKept(t *testing.T) {
	t.Parallel()
	at, b := versioned(t, "versions")
	before := time.Now().Add(-time.Minute)
	for size := range 3 {
		put(t, b, "12/a b+é", noise(size))
	}
	put(t, b, "12/a b+é.more", noise(7))
	put(t, b, "123", noise(8))
	remove(t, b, "12/a b+é")

	all := versions(t, b, "12/")
	want := []storage.Version{
		{Key: "12/a b+é", Size: 2},
		{Key: "12/a b+é", Size: 1},
		{Key: "12/a b+é", Size: 0},
		{Key: "12/a b+é.more", Size: 7},
		{Key: "12/a b+é", DeleteMarker: true},
	}
	if diff := cmp.Diff(want, all, cmpopts.IgnoreFields(storage.Version{}, "ID", "ETag", "LastModified")); diff != "" {
		t.Fatalf("Versions (-want +got):\n%s", diff)
	}
	for _, v := range all {
		if v.ID == "" || (v.ETag == "") != v.DeleteMarker || v.LastModified.Before(before) {
			t.Errorf("%+v", v)
		}
	}
	etag := at
	etag.Checksum = storage.ChecksumETag // so that it deletes one by one
	must.Do(t, b.DeleteVersions(t.Context(), []storage.Version{all[2], all[4]}))
	if o := head(t, b, "12/a b+é"); o.Size != 2 {
		t.Errorf("without the delete marker there is %+v", o)
	}
	must.Do(t, open(t, etag, storage.Options{}).DeleteVersions(t.Context(), all[:1]))
	if o := head(t, b, "12/a b+é"); o.Size != 1 {
		t.Errorf("without the last version there is %+v", o)
	}
	left := versions(t, b, "12/")
	if len(left) > 0 && left[0].LastModified.After(all[1].LastModified) {
		left[0].LastModified = all[1].LastModified // the gateway dates a version again that becomes the last one again
	}
	if diff := cmp.Diff([]storage.Version{all[1], all[3]}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// S3 encodes where the next page begins as it does the keys; the gateway does not.
func TestVersionsWalksAllPages(t *testing.T) {
	t.Parallel()
	at := target(t, "versions")
	create(t, at)
	page := func(truncated bool, markers, entries string) string {
		return fmt.Sprintf("<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>%t</IsTruncated>%s%s</ListVersionsResult>",
			truncated, markers, entries)
	}
	entry := func(kind, key, id string) string {
		return fmt.Sprintf("<%s><Key>%s</Key><VersionId>%s</VersionId></%s>", kind, key, id, kind)
	}
	const marker = "<NextKeyMarker>a%0A%2B+</NextKeyMarker><NextVersionIdMarker>v+2</NextVersionIdMarker>"
	first := page(true, marker, entry("DeleteMarker", "a", "m")+entry("Version", "a", "v")+
		entry("Version", "a%0A%2B+", "v1")+entry("Version", "a%0A%2B+", "v+2"))
	second := page(false, "", entry("Version", "a%0A%2B+", "v3"))
	for name, tt := range map[string]struct {
		first string
		want  []string
		fails bool
	}{
		"all":           {first, []string{"a v", "a\n+  v1", "a\n+  v+2", "a m", "a\n+  v3"}, false},
		"no way to go":  {page(true, "", entry("Version", "a", "v")), nil, true},
		"no such key":   {page(false, "", entry("Version", "%zz", "v")), nil, true},
		"no such place": {page(true, "<NextKeyMarker>%zz</NextKeyMarker>", entry("Version", "a", "v")), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Type", "application/xml")
				q := r.URL.Query()
				switch key, id := q.Get("key-marker"), q.Get("version-id-marker"); {
				case key == "":
					fmt.Fprint(w, tt.first)
				case key == "a\n+ " && id == "v+2":
					fmt.Fprint(w, second)
				default:
					t.Errorf("the second page begins after %q %q", key, id)
				}
				return true
			})
			var got []string
			var last error
			for v, err := range open(t, g.through(at), storage.Options{}).Versions(t.Context(), "") {
				if last = err; err == nil {
					got = append(got, v.Key+" "+v.ID)
				}
				if len(got) > 100 {
					t.Fatal("it goes round in circles")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || (last != nil) != tt.fails {
				t.Errorf("Versions ends with %v (-want +got):\n%s", last, diff)
			}
		})
	}
}

// A file that is deleted for good must not be there in any form, and a neighbour
// must not go with it.
func TestEraseLeavesNothingOfItsKeysOnly(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, at storage.Target, b *storage.Bucket){
		"versions": func(t *testing.T, _ storage.Target, b *storage.Bucket) {
			t.Helper()
			put(t, b, "12/a", noise(2))
			put(t, b, "12/b", noise(2))
		},
		"a delete marker": func(t *testing.T, _ storage.Target, b *storage.Bucket) {
			t.Helper()
			remove(t, b, "12/a", "12/b")
		},
		"no versions any more": func(t *testing.T, at storage.Target, b *storage.Bucket) {
			t.Helper()
			put(t, b, "12/a", noise(2))
			testenv.S3(t).SetVersioning(t, at.Bucket, false)
			put(t, b, "12/b", noise(2))
			remove(t, b, "12/b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, b := versioned(t, "erase")
			for _, key := range []string{"12/a", "12/a.0123", "12/b", "12/aa"} {
				put(t, b, key, noise(1))
			}
			prepare(t, at, b)
			for _, key := range []string{"12/a", "12/b", "12/aa"} {
				if err := b.Absent(t.Context(), key); !errors.Is(err, storage.ErrStillThere) || !strings.Contains(err.Error(), key) {
					t.Errorf("Absent(%s) = %v, want ErrStillThere", key, err)
				}
			}
			for range 2 {
				must.Do(t, b.Erase(t.Context(), "12/a", "12/b", "never there"))
			}
			for _, key := range []string{"12/a", "12/b", "never there"} {
				if err := b.Absent(t.Context(), key); err != nil {
					t.Errorf("Absent(%s) = %v", key, err)
				}
			}
			var left []string
			for _, v := range versions(t, b, "") {
				left = append(left, v.Key)
			}
			if want := []string{"12/a.0123", "12/aa"}; !slices.Equal(left, want) {
				t.Errorf("left are %q, want %q", left, want)
			}
		})
	}
}

// An archive deletes files by the thousand, from buckets that mostly keep no
// versions.
func TestEraseIsCheapWhereThereAreNoVersions(t *testing.T) {
	t.Parallel()
	at := target(t, "erase")
	direct := create(t, at)
	for _, key := range []string{"a", "b", "c"} {
		put(t, direct, key, noise(1))
	}
	g := newGate(t, at, nil)
	b := open(t, g.through(at), storage.Options{})
	keys := []string{"a", "b"}
	for i := range 999 {
		keys = append(keys, fmt.Sprint("never there ", i))
	}
	must.Do(t, b.Erase(t.Context(), keys...))
	for _, key := range keys[:10] {
		if err := b.Absent(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if err := b.Absent(t.Context(), "c"); !errors.Is(err, storage.ErrStillThere) {
		t.Errorf("Absent of what is there = %v, want ErrStillThere", err)
	}
	asked := g.count(func(r *http.Request) bool { return r.URL.Query().Has("versioning") })
	batches := g.count(func(r *http.Request) bool { return r.Method == http.MethodPost || r.Method == http.MethodDelete })
	heads := g.count(func(r *http.Request) bool { return r.Method == http.MethodHead })
	all := g.count(func(*http.Request) bool { return true })
	if asked != 1 || batches != 2 || heads != 11 || all != 14 {
		t.Errorf("%d questions, %d deletions, %d HEADs of %d requests, want 1, 2, 11 of 14", asked, batches, heads, all)
	}
}

// That nothing answers is no proof that nothing is there.
func TestAbsenceIsProvedByTheBucketItself(t *testing.T) {
	t.Parallel()
	at := target(t, "absent")
	create(t, at)
	missing, forger := at, at
	missing.Bucket += "-missing"
	forger.SecretAccessKey = "guessed"
	isHead := func(r *http.Request) bool { return r.Method == http.MethodHead }
	isQuestion := func(r *http.Request) bool { return r.URL.Query().Has("versioning") }
	knowsNone := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		unknown := isQuestion(r) || r.URL.Query().Has("versions")
		if unknown {
			answer(w, http.StatusNotImplemented, "NotImplemented")
		}
		return unknown
	})
	begun := newGate(t, at, nil)
	begun.forward.ModifyResponse = func(r *http.Response) error {
		if isHead(r.Request) && r.StatusCode == http.StatusNotFound {
			r.Header.Set("X-Amz-Delete-Marker", "true")
		}
		return nil
	}
	broken := func(is func(*http.Request) bool) *gate {
		return newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
			if is(r) {
				answer(w, http.StatusInternalServerError, "InternalError")
			}
			return is(r)
		})
	}
	for name, tt := range map[string]struct {
		at   storage.Target
		want error // nil for any, unless ok
		ok   bool
	}{
		"there is no bucket":                  {missing, storage.ErrDenied, false},
		"no bucket, no versions":              {knowsNone.through(missing), storage.ErrDenied, false},
		"it is closed":                        {forger, storage.ErrDenied, false},
		"it does not say what is there":       {broken(isHead).through(at), nil, false},
		"it does not say what it keeps":       {broken(isQuestion).through(at), nil, false},
		"it has begun to keep versions since": {begun.through(at), storage.ErrStillThere, false},
		"it knows no versions":                {knowsNone.through(at), nil, true},
		"it keeps no versions":                {at, nil, true},
	} {
		err := open(t, tt.at, storage.Options{}).Absent(t.Context(), "key")
		if (err == nil) != tt.ok || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: Absent = %v, want %v", name, err, tt.want)
		}
	}
	if err := open(t, missing, storage.Options{}).Erase(t.Context(), "key"); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("Erase without a bucket = %v, want ErrDenied", err)
	}
	b := open(t, knowsNone.through(at), storage.Options{})
	put(t, b, "key", noise(3))
	all := versions(t, b, "k")
	if want := []storage.Version{{Key: "key", Size: 3, LastModified: head(t, b, "key").LastModified}}; !cmp.Equal(all, want, cmpopts.EquateApproxTime(time.Second)) {
		t.Errorf("Versions of a server that knows none = %+v, want %+v", all, want)
	}
	must.Do(t, b.DeleteVersions(t.Context(), all))
	if err := b.Absent(t.Context(), "key"); err != nil {
		t.Errorf("Absent of what was deleted = %v", err)
	}
}
