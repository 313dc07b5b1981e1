package connect

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/process/settings"
)

// Whatever is logged, and whatever a command says of its settings, no password of a
// URL is in it.
func TestPasswordsOfURLsAreNotPrinted(t *testing.T) {
	t.Parallel()
	secret := strings.Join([]string{"s3cr", "et"}, "/")
	at := "https://key:" + secret + "@s3.example.org:7070"
	_, parse := url.Parse(at)
	if parse == nil || !strings.Contains(parse.Error(), secret) {
		t.Fatalf("the error has no secret in it: %v", parse)
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{
		slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutSecrets}), slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutSecrets}),
	} {
		slog.New(h).Warn("cannot connect", "err", errors.Join(errors.New("failed"), parse), "at", at, slog.Group("s3", "endpoint", at))
	}
	for _, setting := range []string{"FAROL_DATABASE_URL", "FAROL_REDIS_URL", "FAROL_S3_ENDPOINT", "FAROL_NSQD_HTTP_ADDR", "FAROL_CLAMD", "FAROL_LOG_LEVEL"} {
		environ := map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", setting: at}
		_, worker := settings.Load(environ, settings.Worker{})
		_, mirror := settings.Load(environ, settings.Mirror{})
		for _, err := range []error{worker, mirror} {
			if err != nil {
				out.WriteString(err.Error())
			}
		}
	}
	if strings.Contains(out.String(), secret) || !strings.Contains(out.String(), "://***@s3.example.org:7070") {
		t.Errorf("it says %s", out.String())
	}
}
