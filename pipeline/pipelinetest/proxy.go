package pipelinetest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"

	"github.com/farol-preservation/farol/internal/testenv/injure"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/storage"
)

// Through sends the stages' requests to S3 through a proxy. The test's own go directly.
func (a *Archive) Through(proxy *injure.Proxy) {
	a.T.Helper()
	a.Deps = a.With(func(t *storage.Target) { t.Endpoint = "https://" + proxy.Addr() })
}

// With is the test's dependencies with all buckets opened again, each with a change.
func (a *Archive) With(change func(t *storage.Target)) pipeline.Deps {
	a.T.Helper()
	open := func(t storage.Target) *storage.Bucket {
		t = a.onServer(t)
		change(&t)
		return a.open(t)
	}
	d := a.Deps
	d.Staging = open(named(a.Deps.Staging.Name()))
	if d.Kept != nil {
		d.Kept = open(named(d.Kept.Name()))
	}
	d.Targets = map[string]*storage.Bucket{}
	for _, spec := range storage.Targets() {
		d.Targets[spec.Name] = open(a.target(spec))
	}
	others := map[string]*storage.Bucket{}
	for _, name := range []string{a.In.ReceivingBucket, a.In.RestoreBucket} {
		others[name] = open(named(name))
	}
	d.Receiving = func(name string) (*storage.Bucket, error) { return others[name], nil }
	return d
}

// Behind is a bucket whose server is reached by way of another.
func (a *Archive) Behind(b *storage.Bucket, way func(*httputil.ReverseProxy) http.Handler) *storage.Bucket {
	a.T.Helper()
	gate := httptest.NewServer(way(a.S3.Proxy(a.T)))
	a.T.Cleanup(gate.Close)
	t := a.onServer(named(b.Name()))
	t.Endpoint, t.CAFile, t.Checksum = gate.URL, "", storage.ChecksumETag
	return a.open(t)
}
