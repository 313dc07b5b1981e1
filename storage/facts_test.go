package storage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/storage"
)

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	at := storage.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "hunter2"}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "target", at, "secret", at.SecretAccessKey)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "target", at, "secret", at.SecretAccessKey)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %#v", at, at, at, at.SecretAccessKey, at.SecretAccessKey, at.SecretAccessKey)
	if err := json.NewEncoder(&out).Encode(at); err != nil {
		t.Fatal(err)
	}
	_, err := storage.NewClient(storage.Options{}).Bucket(storage.Target{SecretAccessKey: "hunter2"})
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
		b := open(t, storage.Target{
			Bucket: tt.bucket, Endpoint: tt.endpoint, Region: tt.region, AccessKeyID: "id", SecretAccessKey: "x",
		}, storage.Options{})
		if got := b.URL(uuid); got != tt.want {
			t.Errorf("URL at %q = %s, want %s", tt.endpoint, got, tt.want)
		}
	}
}

// A restoration chooses among buckets by their own facts.
func TestABucketTellsOfItsTarget(t *testing.T) {
	t.Parallel()
	type facts struct {
		name, target, provider, class string
		priority                      int
	}
	at := storage.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "x"}
	named := at
	named.Name, named.Provider, named.StorageClass, named.RestorePriority = "Glacier-VA", "AWS", "GLACIER", 6
	for _, tt := range []struct {
		at   storage.Target
		want facts
	}{
		{at, facts{"b", "b", "", "STANDARD", 0}},
		{named, facts{"b", "Glacier-VA", "AWS", "GLACIER", 6}},
	} {
		b := open(t, tt.at, storage.Options{})
		if got := (facts{b.Name(), b.TargetName(), b.Provider(), b.Class(), b.Priority()}); got != tt.want {
			t.Errorf("the bucket says %+v, want %+v", got, tt.want)
		}
	}
}

func TestATargetThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := storage.Target{Bucket: "b", AccessKeyID: "id", SecretAccessKey: "x"}
	for name, change := range map[string]func(*storage.Target){
		"no bucket":        func(t *storage.Target) { t.Bucket = "" },
		"path as bucket":   func(t *storage.Target) { t.Bucket = "a/b" },
		"no key ID":        func(t *storage.Target) { t.AccessKeyID = "" },
		"no secret":        func(t *storage.Target) { t.SecretAccessKey = "" },
		"checksum mode":    func(t *storage.Target) { t.Checksum = "crc32" },
		"no scheme":        func(t *storage.Target) { t.Endpoint = "localhost:9000" },
		"other scheme":     func(t *storage.Target) { t.Endpoint = "ftp://localhost" },
		"no URL":           func(t *storage.Target) { t.Endpoint = "https://a b" },
		"password in it":   func(t *storage.Target) { t.Endpoint = "https://u:hunter2@localhost" },
		"no CA file":       func(t *storage.Target) { t.CAFile = "/nonexistent/ca.pem" },
		"no CA in CA file": func(t *storage.Target) { t.CAFile = empty },
	} {
		bad := good
		change(&bad)
		_, err := storage.NewClient(storage.Options{}).Bucket(bad)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Bucket = %v", name, err)
		}
	}
	if _, err := storage.NewClient(storage.Options{}).Bucket(good); err != nil {
		t.Errorf("Bucket = %v", err)
	}
}

func TestPartsFitS3AtAnySize(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 48<<40).Draw(t, "size")
		part := storage.PartSize(size)
		switch {
		case size <= 256*mib && part != 0:
			t.Fatalf("PartSize(%d) = %d, want a single request", size, part)
		case size <= 256*mib:
		case part < 64*mib || part%mib != 0:
			t.Fatalf("PartSize(%d) = %d, want whole MiB, at least 64", size, part)
		case (size+part-1)/part > 10_000:
			t.Fatalf("PartSize(%d) = %d, which makes more than 10,000 parts", size, part)
		case part > 64*mib && (size+part-mib-1)/(part-mib) <= 10_000:
			t.Fatalf("PartSize(%d) = %d, where less would do", size, part)
		}
	})
}

func TestTargetsAreThoseOfTheField(t *testing.T) {
	t.Parallel()
	var names, options []string
	for i, spec := range storage.Targets() {
		if spec.RestorePriority != i+1 {
			t.Errorf("%s has restore priority %d at place %d", spec.Name, spec.RestorePriority, i+1)
		}
		suffix := strings.ToUpper(strings.ReplaceAll(spec.Name, "-", "_"))
		if spec.EnvVar != "BUCKET_"+suffix {
			t.Errorf("%s is configured by %s", spec.Name, spec.EnvVar)
		}
		class := ""
		switch {
		case strings.HasPrefix(spec.Name, "Glacier-Deep"):
			class = "DEEP_ARCHIVE"
		case strings.HasPrefix(spec.Name, "Glacier"), spec.Name == "Standard-OR":
			class = "GLACIER"
		}
		if spec.StorageClass != class {
			t.Errorf("%s has class %q, want %q", spec.Name, spec.StorageClass, class)
		}
		names = append(names, spec.Name)
		if !slices.Contains(options, spec.Option) {
			options = append(options, spec.Option)
		}
	}
	if len(names) != 11 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 11 {
		t.Errorf("the targets are %v, want eleven", names)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(storage.OptionNames())), slices.Sorted(slices.Values(options))); diff != "" {
		t.Errorf("options of targets (-listed +used):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Standard-VA", "Standard-OR"}, storage.TargetsOf("Standard")); diff != "" {
		t.Errorf("targets of Standard (-want +got):\n%s", diff)
	}
	if got := storage.TargetsOf("Glacier-Deep-OH"); !slices.Equal(got, []string{"Glacier-Deep-OH"}) {
		t.Errorf("targets of Glacier-Deep-OH = %v", got)
	}
	if got := storage.TargetsOf("Punch cards"); got != nil {
		t.Errorf("targets of an unknown option = %v", got)
	}
}
