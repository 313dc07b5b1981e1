package wire

import (
	"net/url"
	"testing"
)

// Without tracing, what is asked of each request costs no memory.
func TestRequestsAreNoSpansWithoutTracing(t *testing.T) {
	c := &Conn{Endpoint: &url.URL{Host: "s3.example.org"}}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		_, end := c.called(ctx, "GetObject")
		end(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
