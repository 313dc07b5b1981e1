package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/farol-preservation/farol/storage"
)

// Traces is where traces go, in the names of OpenTelemetry.
type Traces struct {
	Endpoint    string         `env:"OTEL_EXPORTER_OTLP_ENDPOINT" is:"an http(s) URL" doc:"Collector of OpenTelemetry, such as http://127.0.0.1:4318; traces go to /v1/traces below it. Without it, or the next one, there are no traces"`
	Exact       string         `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" is:"an http(s) URL" doc:"Whole URL that traces go to, in place of the one above"`
	Exporter    string         `env:"OTEL_TRACES_EXPORTER" is:"otlp or none" doc:"Exporter of traces. otlp without an endpoint sends them to http://localhost:4318; none sends none"`
	Disabled    string         `env:"OTEL_SDK_DISABLED" envDefault:"false" is:"true or false" doc:"Switch for all of OpenTelemetry: with true there are no traces"`
	Protocol    string         `env:"OTEL_EXPORTER_OTLP_PROTOCOL" envDefault:"http/protobuf" is:"http/protobuf" doc:"Protocol of the collector; there is no other"`
	Headers     storage.Secret `env:"OTEL_EXPORTER_OTLP_HEADERS" is:"key=value pairs, separated by commas" doc:"Headers of each request to the collector, such as those that authorize it"`
	Certificate string         `env:"OTEL_EXPORTER_OTLP_CERTIFICATE" is:"the path of a file" doc:"CA certificate of the collector in PEM format. Those of the system if empty"`
	Millis      int            `env:"OTEL_EXPORTER_OTLP_TIMEOUT" envDefault:"10000" min:"1" doc:"Longest time for a request to the collector, in milliseconds"`
	Sampler     string         `env:"OTEL_TRACES_SAMPLER" envDefault:"parentbased_always_on" is:"always_on, always_off or traceidratio, also with parentbased_ before it" doc:"Sampler of traces, that is of items: all processes choose the same ones"`
	SamplerArg  string         `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1" is:"a number from 0 to 1" doc:"Share of the items that are traced, for traceidratio"`
	Service     string         `env:"OTEL_SERVICE_NAME" is:"a name" doc:"Name of the process in traces. By default farol- and the command, such as farol-work"`
	Resource    string         `env:"OTEL_RESOURCE_ATTRIBUTES" is:"key=value pairs, separated by commas" doc:"Attributes that all spans of the process have"`

	headersFile file
}

// check asks for nothing while traces are off: other programs read the same names.
func (c *Traces) check(s *reader) {
	c.headersFile = s.file("OTEL_EXPORTER_OTLP_HEADERS")
	if !c.On() {
		return
	}
	share, err := c.Share()
	_, badHeaders := c.Header()
	_, badResource := c.Attributes()
	right := map[string]bool{
		"Exporter": c.Exporter == "" || c.Exporter == "otlp", "Protocol": c.Protocol == "http/protobuf",
		"Sampler":    slices.Contains([]string{"always_on", "always_off", "traceidratio"}, strings.TrimPrefix(c.Sampler, "parentbased_")),
		"SamplerArg": err == nil && share >= 0 && share <= 1, "Headers": badHeaders == nil, "Resource": badResource == nil,
	}
	for _, f := range FieldsOf("", c) {
		if ok, known := right[f.goName]; known && !ok {
			s.wrong(f.Name, fmt.Sprintf("is %q; it must be %s", f.Value, f.allowed())) // a secret prints as asterisks
		}
	}
}

// On reports whether there are traces.
func (c *Traces) On() bool {
	return !strings.EqualFold(c.Disabled, "true") && c.Exporter != "none" && c.Exporter+c.Endpoint+c.Exact != ""
}

// URL is where traces go.
func (c *Traces) URL() string {
	return cmp.Or(c.Exact, strings.TrimSuffix(cmp.Or(c.Endpoint, "http://localhost:4318"), "/")+"/v1/traces")
}

// Timeout is for one request.
func (c *Traces) Timeout() time.Duration { return time.Duration(c.Millis) * time.Millisecond }

// Share is how many of all items are traced by a sampler with a ratio.
func (c *Traces) Share() (float64, error) { return strconv.ParseFloat(c.SamplerArg, 64) }

// Attributes are those of the process.
func (c *Traces) Attributes() ([][2]string, error) { return pairs(c.Resource) }

// Header has the headers of a request that is to be made now. The error says nothing of them.
func (c *Traces) Header() (http.Header, error) {
	const token = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	list, err := pairs(c.headersFile.now(c.Headers))
	h := http.Header{}
	for _, pair := range list {
		if strings.Trim(strings.ToLower(pair[0]), token) != "" || strings.ContainsFunc(pair[1], unicode.IsControl) {
			err = errPairs // or net/http would name what may be the secret
		}
		h.Set(pair[0], pair[1])
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	return h, nil
}

var errPairs = errors.New("these are not key=value pairs, separated by commas")

// pairs reads what OpenTelemetry writes as key=value,key=value, with values that are escaped as in URLs.
func pairs(text string) (list [][2]string, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, escaped, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, unescaped := url.PathUnescape(strings.TrimSpace(escaped))
		if !ok || key == "" || unescaped != nil {
			return nil, errPairs
		}
		list = append(list, [2]string{key, value})
	}
	return list, nil
}
