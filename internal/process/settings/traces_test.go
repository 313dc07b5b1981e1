package settings

import (
	"strings"
	"testing"
)

func TestTracesGoWhereTheSettingsSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ environ, url string }{ // "": there are none
		{"", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c.example.org:4318", "https://c.example.org:4318/v1/traces"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c.example.org/otel/", "https://c.example.org/otel/v1/traces"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c.example.org OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://d.example.org/in", "http://d.example.org/in"},
		{"OTEL_TRACES_EXPORTER=otlp", "http://localhost:4318/v1/traces"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.org OTEL_TRACES_EXPORTER=none", ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c.example.org OTEL_SDK_DISABLED=true", ""},
	} {
		environ := map[string]string{}
		for _, pair := range strings.Fields(c.environ) {
			name, value, _ := strings.Cut(pair, "=")
			environ[name] = value
		}
		got, err := Load(environ, Traces{})
		if err != nil || got.On() != (c.url != "") || got.On() && got.URL() != c.url {
			t.Errorf("%s: %v, %s, %v; want %q", c.environ, got.On(), got.URL(), err, c.url)
		}
	}
}

func TestWrongSettingsOfTracesAreRefused(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][2]string{
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_TRACES_EXPORTER", "jaeger"},
		{"OTEL_TRACES_SAMPLER", "some"},
		{"OTEL_TRACES_SAMPLER_ARG", "half"},
		{"OTEL_TRACES_SAMPLER_ARG", "1.5"},
		{"OTEL_RESOURCE_ATTRIBUTES", "a"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "geheim"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer geheim=="},
		{"OTEL_EXPORTER_OTLP_HEADERS", "key=geheim%zz"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "key=geheim%0aother: header"},
	} {
		environ := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", wrong[0]: wrong[1]}
		_, err := Load(environ, Traces{})
		if err == nil || !strings.Contains(err.Error(), wrong[0]+" is ") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s=%s: %v", wrong[0], wrong[1], err)
		}
		if wrong[0] == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" {
			continue // a URL is one, or not
		}
		environ["OTEL_SDK_DISABLED"] = "True"
		if _, err := Load(environ, Traces{}); err != nil {
			t.Errorf("%s=%s is refused without traces, although other programs may read it: %v", wrong[0], wrong[1], err)
		}
	}
}

func TestHeadersOfTracesAreRead(t *testing.T) {
	t.Parallel()
	c, err := Load(map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": " authorization = Bearer%20a=b ,x-tenant=t,", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,k8s.io/name=a%2Cb",
	}, Traces{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := c.Header(); err != nil || len(h) != 2 || h.Get("Authorization") != "Bearer a=b" || h.Get("X-Tenant") != "t" {
		t.Errorf("the headers are %v, %v", h, err)
	}
	if a, err := c.Attributes(); err != nil || len(a) != 2 || a[1] != [2]string{"k8s.io/name", "a,b"} {
		t.Errorf("the attributes are %v, %v", a, err)
	}
}
