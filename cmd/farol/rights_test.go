package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/storage"
)

// A worker whose pools delete nothing needs no right to delete: it stores bags, and says what it may. The
// rest is done by another one. A key that may delete everywhere is warned of; one that may not, is not.
func TestWorkerWithoutTheRightToDelete(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := s.s3.Proxy(t)
	buckets := map[string]bool{}
	for _, target := range storage.Targets() {
		buckets[s.settings[settings.TargetPrefix(target.Name)+"BUCKET"]] = true
	}
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		deletes := r.Method == http.MethodDelete && !r.URL.Query().Has("uploadId") || r.Method == http.MethodPost && r.URL.Query().Has("delete")
		if deletes && buckets[bucket] {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>no right to delete</Message></Error>"))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(denies.Close)
	direct := s.settings["FAROL_S3_ENDPOINT"]
	look := func(endpoint, pools string) []preflight.Finding {
		t.Helper()
		s.settings["FAROL_S3_ENDPOINT"], s.settings["FAROL_POOLS"] = endpoint, pools
		of := s.surroundings()
		of.Write = preflight.WriteHot
		return of.Examine(t.Context())
	}
	const stores, cleans = "up=Receive..Record", "end=Cleanup"
	if f := found(t, look(direct, ""), "s3", "rights apart"); f.State != preflight.Warning || !strings.Contains(f.Found, "in all 11 targets") {
		t.Errorf("a key that may do all: %+v", f)
	}
	standard := fault.Bucket("Standard-VA")
	if f := found(t, look(denies.URL, cleans), standard, "rights"); f.State != preflight.Failed || len(f.Missing) != 1 || f.Missing[0] != "DELETE" {
		t.Errorf("Cleanup without the right to delete: %+v", f)
	}
	all := look(denies.URL, stores)
	f := found(t, all, standard, "rights")
	if f.State != preflight.OK || !strings.Contains(f.Found, "create multipart upload") || !strings.Contains(f.Found, "; not DELETE, which") {
		t.Errorf("stages up to Record without the right to delete: %+v", f)
	}
	for _, f := range all {
		if f.Check == "rights apart" {
			t.Errorf("a key that may not delete: %+v", f)
		}
	}

	s.deposit(sampleBag("sample"))
	w := s.worker()
	w.eventually("the bag to be recorded", func() bool { return s.item(1).Stage == "Cleanup" })
	stop(t, w)
	s.settings["FAROL_S3_ENDPOINT"], s.settings["FAROL_POOLS"] = direct, cleans
	w = s.worker()
	s.atRest(w)
	stop(t, w)
	s.intact(1)
}
