package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage/wire"
)

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	at := wire.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "hunter2"}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "target", at, "secret", at.SecretAccessKey)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "target", at, "secret", at.SecretAccessKey)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %#v", at, at, at, at.SecretAccessKey, at.SecretAccessKey, at.SecretAccessKey)
	must.Do(t, json.NewEncoder(&out).Encode(at))
	_, err := newPool(t).Conn(wire.Target{SecretAccessKey: "hunter2"}, nil, nil)
	fmt.Fprint(&out, err)
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the secret is in %s", out.String())
	}
}

// Where AWS and Wasabi are, the region is named; anywhere else the place is the one that
// is configured.
func TestURLIsWhereTheObjectIs(t *testing.T) {
	t.Parallel()
	const uuid = "5d2f1c3e-0000-4000-8000-000000000000"
	for _, tt := range []struct{ endpoint, region, bucket, want string }{
		{"", "us-east-1", "aptrust.preservation.storage", "https://s3.us-east-1.amazonaws.com/aptrust.preservation.storage/" + uuid},
		{"", "us-west-2", "preservation-or", "https://s3.us-west-2.amazonaws.com/preservation-or/" + uuid},
		{"https://s3.amazonaws.com", "us-east-2", "glacier-oh", "https://s3.us-east-2.amazonaws.com/glacier-oh/" + uuid},
		{"https://s3.us-central-1.wasabisys.com", "us-central-1", "wasabi-tx", "https://s3.us-central-1.wasabisys.com/wasabi-tx/" + uuid},
		{"https://localhost:9899", "us-east-1", "preservation-va", "https://localhost:9899/preservation-va/" + uuid},
		{"http://127.0.0.1:9000/s3", "us-east-1", "va", "http://127.0.0.1:9000/s3/va/" + uuid},
		{"https://s3.wasabisys.com", "us-west-1", "wasabi-or", "https://s3.us-west-1.wasabisys.com/wasabi-or/" + uuid},
	} {
		c := must.Get(newPool(t).Conn(wire.Target{
			Bucket: tt.bucket, Endpoint: tt.endpoint, Region: tt.region, AccessKeyID: "id", SecretAccessKey: "x",
		}, nil, nil))(t)
		if got := c.URL(uuid); got != tt.want {
			t.Errorf("URL at %q = %s, want %s", tt.endpoint, got, tt.want)
		}
	}
}

func TestATargetThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	must.Do(t, os.WriteFile(empty, nil, 0o600))
	good := wire.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "x"}
	for name, change := range map[string]func(*wire.Target){
		"no bucket":        func(t *wire.Target) { t.Bucket = "" },
		"path as bucket":   func(t *wire.Target) { t.Bucket = "a/b" },
		"no key ID":        func(t *wire.Target) { t.AccessKeyID = "" },
		"no secret":        func(t *wire.Target) { t.SecretAccessKey = "" },
		"checksum mode":    func(t *wire.Target) { t.Checksum = "crc32" },
		"no scheme":        func(t *wire.Target) { t.Endpoint = "localhost:9000" },
		"other scheme":     func(t *wire.Target) { t.Endpoint = "ftp://localhost" },
		"no URL":           func(t *wire.Target) { t.Endpoint = "https://a b" },
		"password in it":   func(t *wire.Target) { t.Endpoint = "https://u:hunter2@localhost" },
		"no CA file":       func(t *wire.Target) { t.CAFile = "/nonexistent/ca.pem" },
		"no CA in CA file": func(t *wire.Target) { t.CAFile = empty },
	} {
		bad := good
		change(&bad)
		_, err := newPool(t).Conn(bad, nil, nil)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Conn = %v", name, err)
		}
	}
	if _, err := newPool(t).Conn(good, nil, nil); err != nil {
		t.Errorf("Conn = %v", err)
	}
}
