package pipelinetest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/storage"
)

// Through sends what the stages say to S3 through a proxy; the test itself keeps
// its own way.
func (a *Archive) Through(proxy *testenv.Proxy) {
	a.T.Helper()
	direct := a.S3.Endpoint
	a.S3.Endpoint = "https://" + proxy.Addr()
	a.rewire()
	a.S3.Endpoint = direct
}

// rewire opens all buckets of the stages again.
func (a *Archive) rewire() {
	a.T.Helper()
	deps := a.Deps
	deps.Staging = a.Bucket(a.S3.Prefix + "staging")
	if deps.Kept != nil {
		deps.Kept = a.Bucket(deps.Kept.Name())
	}
	deps.Targets = map[string]*storage.Bucket{}
	for _, target := range storage.Targets() {
		deps.Targets[target.Name] = a.target(target)
	}
	others := map[string]*storage.Bucket{}
	for _, name := range []string{a.In.ReceivingBucket, a.In.RestoreBucket} {
		others[name] = a.Bucket(name)
	}
	deps.Receiving = func(name string) (*storage.Bucket, error) { return others[name], nil }
	a.Deps = deps
}

// Behind is a bucket whose server is reached by way of another.
func (a *Archive) Behind(b *storage.Bucket, way func(*httputil.ReverseProxy) http.Handler) *storage.Bucket {
	a.T.Helper()
	server, err := url.Parse(a.S3.Endpoint)
	if err != nil {
		a.T.Fatal(err)
	}
	pem, err := os.ReadFile(a.S3.CAFile)
	if err != nil {
		a.T.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	a.T.Cleanup(transport.CloseIdleConnections)
	gate := httptest.NewServer(way(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = server.Scheme, server.Host
			r.Out.Host = r.In.Host // it is signed
		},
	}))
	a.T.Cleanup(gate.Close)
	other, err := a.Client.Bucket(storage.Target{
		Name: b.Name(), Bucket: b.Name(), Endpoint: gate.URL, Region: a.S3.Region, PathStyle: true, Checksum: storage.ChecksumETag,
		AccessKeyID: a.S3.AccessKeyID, SecretAccessKey: storage.Secret(a.S3.SecretAccessKey),
	})
	if err != nil {
		a.T.Fatal(err)
	}
	return other
}
