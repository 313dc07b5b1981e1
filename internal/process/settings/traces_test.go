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
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "jaeger", "OTEL_SDK_DISABLED": "7",
		"OTEL_EXPORTER_OTLP_HEADERS": "authorization: geheim", "OTEL_TRACES_SAMPLER": "some", "OTEL_TRACES_SAMPLER_ARG": "half",
	} {
		_, err := Load(map[string]string{name: value}, Traces{})
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
