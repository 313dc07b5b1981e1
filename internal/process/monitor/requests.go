package monitor

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/farol-preservation/farol/web/pull"
)

// Requests counts the requests to the HTTP APIs of this process.
type Requests struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

// NewRequests registers counters of requests.
func NewRequests(r prometheus.Registerer) Requests {
	return Requests{
		requests: counter(r, "farol_http_requests_total", "Requests to the HTTP APIs, by route, method and status.", "path", "method", "code"),
		took: histogram(r, "farol_http_request_seconds",
			"Duration of requests to the HTTP APIs; those to /pull and /v1/claim include the time that they waited.", 0.001, 4, 9, "path"),
	}
}

// NewWaiting counts the calls that wait for messages in queues.
func NewWaiting(queues *pull.API) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "farol_pull_waiting", Help: "Requests that wait for messages in this process.",
	}, func() float64 { return float64(queues.Waiting()) })
}

// Observed counts requests by route, so that paths without a route make no figures of
// their own.
func (m Requests) Observed(mux *http.ServeMux) http.Handler {
	var counted sync.Map // http.Handler by route
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		of, ok := counted.Load(route)
		if !ok {
			labels := prometheus.Labels{"path": route}
			of, _ = counted.LoadOrStore(route, promhttp.InstrumentHandlerDuration(m.took.MustCurryWith(labels),
				promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(labels), mux)))
		}
		if h, ok := of.(http.Handler); ok { // nothing else is stored
			h.ServeHTTP(w, r)
		}
	})
}
