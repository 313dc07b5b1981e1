package settings

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// Traces is where traces go, in the names of OpenTelemetry. Its SDK reads those of the sampler and of the
// resource itself: they are here to be known.
type Traces struct {
	Endpoint    string         `env:"OTEL_EXPORTER_OTLP_ENDPOINT" is:"an http(s) URL" doc:"Collector of OpenTelemetry, such as http://127.0.0.1:4318; traces go to /v1/traces below it. Without it, or the next one, there are no traces"`
	Exact       string         `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" is:"an http(s) URL" doc:"Whole URL that traces go to, in place of the one above"`
	Exporter    string         `env:"OTEL_TRACES_EXPORTER" is:"otlp or none" oneof:"otlp none" doc:"Exporter of traces. otlp without an endpoint sends them to http://localhost:4318; none sends none"`
	Disabled    string         `env:"OTEL_SDK_DISABLED" envDefault:"false" is:"true or false" oneof:"true false" doc:"Switch for all of OpenTelemetry: with true there are no traces"`
	Protocol    string         `env:"OTEL_EXPORTER_OTLP_PROTOCOL" envDefault:"http/protobuf" is:"http/protobuf" oneof:"http/protobuf" doc:"Protocol of the collector; there is no other"`
	Headers     storage.Secret `env:"OTEL_EXPORTER_OTLP_HEADERS" is:"key=value pairs, separated by commas" doc:"Headers of each request to the collector, such as those that authorize it"`
	Certificate string         `env:"OTEL_EXPORTER_OTLP_CERTIFICATE" is:"the path of a file" doc:"CA certificate of the collector in PEM format. Those of the system if empty"`
	Millis      int            `env:"OTEL_EXPORTER_OTLP_TIMEOUT" envDefault:"10000" min:"1" doc:"Longest time for a request to the collector, in milliseconds"`
	Sampler     string         `env:"OTEL_TRACES_SAMPLER" envDefault:"parentbased_always_on" is:"a sampler of OpenTelemetry" oneof:"always_on always_off traceidratio parentbased_always_on parentbased_always_off parentbased_traceidratio" doc:"Sampler of traces, that is of items: all processes choose the same ones"`
	SamplerArg  string         `env:"OTEL_TRACES_SAMPLER_ARG" is:"a number from 0 to 1" doc:"Share of the items that are traced, for the samplers with a ratio"`
	Service     string         `env:"OTEL_SERVICE_NAME" is:"a name" doc:"Name of the process in traces. By default farol- and the command, such as farol-work"`
	Resource    string         `env:"OTEL_RESOURCE_ATTRIBUTES" is:"key=value pairs, separated by commas" doc:"Attributes that all spans of the process have"`
}

func (c *Traces) check(s *reader) {
	for name, at := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.Endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.Exact} {
		if u, err := url.Parse(at); at != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			s.wrong(name, fmt.Sprintf("is %q; it must be an http(s) URL", at))
		}
	}
	if share, err := strconv.ParseFloat(c.SamplerArg, 64); c.SamplerArg != "" && (err != nil || share < 0 || share > 1) {
		s.wrong("OTEL_TRACES_SAMPLER_ARG", fmt.Sprintf("is %q; it must be %s", c.SamplerArg, allowed(c, "SamplerArg")))
	}
	if _, err := c.Header(); err != nil {
		s.wrong("OTEL_EXPORTER_OTLP_HEADERS", "is not valid; it must be key=value pairs, separated by commas")
	}
}

// On reports whether there are traces.
func (c *Traces) On() bool {
	return c.Disabled != "true" && c.Exporter != "none" && (c.Exporter == "otlp" || c.Endpoint+c.Exact != "")
}

// URL is where traces go.
func (c *Traces) URL() string {
	switch {
	case c.Exact != "":
		return c.Exact
	case c.Endpoint == "":
		return "http://localhost:4318/v1/traces"
	}
	return strings.TrimSuffix(c.Endpoint, "/") + "/v1/traces"
}

// Timeout is for one request.
func (c *Traces) Timeout() time.Duration { return time.Duration(c.Millis) * time.Millisecond }

// Header has the headers of a request. The error says nothing of them.
func (c *Traces) Header() (http.Header, error) {
	h := http.Header{}
	for pair := range strings.SplitSeq(string(c.Headers), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" && !ok {
			continue
		}
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil || !ok || name == "" || strings.ContainsAny(name+value, "\r\n") {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS has no key=value pairs")
		}
		h.Set(strings.TrimSpace(name), value)
	}
	return h, nil
}
