package storage_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/preflight/trial"
	"github.com/farol-preservation/farol/storage"
)

// names lists what was tried, with "!" before what failed.
func names(tried []trial.Tried) (list []string) {
	for _, r := range tried {
		name := r.Right
		if r.Err != nil {
			name = "!" + name
		}
		list = append(list, name)
	}
	return list
}

// leftIn is what a bucket still has: objects, versions, markers, uploads.
func leftIn(t *testing.T, b *storage.Bucket) (left []string) {
	t.Helper()
	for v, err := range b.Versions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, v.Key)
	}
	for u, err := range b.OpenUploads(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, "upload "+u.Key)
	}
	return left
}

// A trial of full rights reports them and leaves nothing behind, also where versions are
// kept.
func TestTrialLeavesNothing(t *testing.T) {
	t.Parallel()
	staging, at := create(t, target(t, "staging")), target(t, "kept")
	b := create(t, at)
	for _, versions := range []bool{false, true} {
		if versions {
			s := testenv.S3(t) // versions are set by anyone who has the key
			s.SetVersioning(t, at.Bucket, true)
		}
		tried := trial.Try(t.Context(), b, "farol-check/x", trial.Options{Object: true, Uploads: true, Erase: true, From: staging})
		want := []string{
			"LIST", "PUT", "HEAD", "GET", "COPY from staging", "DELETE",
			"create multipart upload", "list parts", "list multipart uploads", "abort multipart upload", "GET versioning", "LIST versions",
		}
		if diff := cmp.Diff(want, names(tried)); diff != "" {
			t.Errorf("versions %v (-want +got):\n%s\n%v", versions, diff, tried)
		}
		if left := append(leftIn(t, b), leftIn(t, staging)...); len(left) > 0 {
			t.Errorf("versions %v: left behind: %v", versions, left)
		}
	}
	// A trial without an object writes none, and leaves no marker.
	tried := trial.Try(t.Context(), b, "farol-check/y", trial.Options{Delete: true, Uploads: true})
	if got := strings.Join(names(tried), ", "); strings.Contains(got, "PUT") || strings.Contains(got, "DELETE") || strings.Contains(got, "!") {
		t.Errorf("tried %s", got)
	}
	if left := leftIn(t, b); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// Whether versions may be removed is found out, and leaves none either.
	g := newGate(t, at, nil)
	tried = trial.Try(t.Context(), open(t, g.through(at), storage.Options{}), "farol-check/z", trial.Options{Erase: true})
	if got := strings.Join(names(tried), ", "); !strings.HasSuffix(got, ", DELETE") {
		t.Errorf("tried %s", got)
	}
	if n := g.count(func(r *http.Request) bool { return r.Method == http.MethodDelete && !r.URL.Query().Has("versionId") }); n > 0 {
		t.Errorf("%d requests would leave a marker", n)
	}
}

// Each right that is missing is named, and no other.
func TestTrialNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	at := target(t, "closed")
	direct := create(t, at)
	is := func(method, query string) func(*http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method == method && (query == "" && r.URL.RawQuery == "" || query != "" && r.URL.Query().Has(query))
		}
	}
	for _, tc := range []struct {
		denied func(*http.Request) bool
		want   string
	}{
		{is("PUT", ""), "!PUT"},
		{is("HEAD", ""), "!HEAD"},
		{func(r *http.Request) bool { return r.Method == "GET" && r.URL.RawQuery == "" }, "!GET"},
		{is("GET", "list-type"), "!LIST"},
		{func(r *http.Request) bool { return r.Method == "POST" && r.URL.Query().Has("uploads") }, "!create multipart upload"},
		{is("GET", "uploadId"), "!list parts"},
		{is("GET", "uploads"), "!list multipart uploads"},
	} {
		g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
			if !tc.denied(r) {
				return false
			}
			answer(w, http.StatusForbidden, "AccessDenied")
			return true
		})
		var failed []string
		for _, name := range names(trial.Try(t.Context(), open(t, g.through(at), storage.Options{}), "farol-check/x", trial.Options{Object: true, Uploads: true})) {
			if strings.HasPrefix(name, "!") {
				failed = append(failed, name)
			}
		}
		if got := strings.Join(failed, " "); got != tc.want {
			t.Errorf("named %q, want %q", got, tc.want)
		}
		if left := leftIn(t, direct); len(left) > 0 {
			t.Errorf("%s: left behind: %v", tc.want, left)
		}
	}
}

// An object that may be written and not deleted is reported, since it stays.
func TestTrialTellsOfWhatItLeaves(t *testing.T) {
	t.Parallel()
	at := target(t, "sticky")
	create(t, at)
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			answer(w, http.StatusForbidden, "AccessDenied")
		}
		return r.Method == http.MethodDelete
	})
	got := names(trial.Try(t.Context(), open(t, g.through(at), storage.Options{}), "farol-check/x", trial.Options{Object: true}))
	if diff := cmp.Diff([]string{"LIST", "PUT", "HEAD", "GET", "!DELETE", "!remove the trial object"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
