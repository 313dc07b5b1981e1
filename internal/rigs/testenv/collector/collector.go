// Package collector stands in for the collector of OpenTelemetry that processes under test send traces to.
package collector

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	received "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// A Span is one that a collector received. IDs are in hexadecimal.
type Span struct {
	Trace, ID, Parent, Name string
	Links                   []string // IDs of spans of the same trace
	Failed                  bool
	About                   map[string]string // attributes that are texts
	Service                 string            // name of the process
}

// A Collector stands in for one of OpenTelemetry that takes OTLP over HTTP.
type Collector struct {
	URL string

	mu     sync.Mutex
	spans  []Span
	header http.Header
}

// New starts a collector for a test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request received.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("the collector got %s %s, %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(r.Header, &request)
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(h http.Header, request *received.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = h
	for _, of := range request.GetResourceSpans() {
		service := texts(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Failed: s.GetStatus().GetCode() == 2, About: texts(s.GetAttributes()), Service: service,
				}
				for _, l := range s.GetLinks() {
					one.Links = append(one.Links, hex.EncodeToString(l.GetSpanId()))
				}
				c.spans = append(c.spans, one)
			}
		}
	}
}

func texts(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// Spans are those that came so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Header is that of the last request.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}
