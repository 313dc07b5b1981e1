package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/storage"
)

// enough is the least that a worker can run with.
func enough(more map[string]string) map[string]string {
	environ := map[string]string{
		"FAROL_DATABASE_URL": "postgres://farol:geheim@db:5432/farol", "FAROL_REDIS_URL": "redis://:geheim@redis:6379/0",
		"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "geheim",
	}
	maps.Copy(environ, more)
	return environ
}

func parsed(t *testing.T, more map[string]string) Worker {
	t.Helper()
	c, err := Load(enough(more), Worker{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWorkerHasDefaults(t *testing.T) {
	t.Parallel()
	c := parsed(t, nil)
	want := Work{Poll: 2 * time.Second, Archive: 30 * 24 * time.Hour, Grace: 20 * time.Second, Files: 8, Verify: "head"}
	if diff := cmp.Diff(want, c.Work); diff != "" {
		t.Error(diff)
	}
	if (c.Identify != Identify{Workers: 2, Memory: 256 << 20}) || c.Virus.Scanner != nil {
		t.Errorf("%+v, %v", c.Identify, c.Virus.Scanner)
	}
	if c.Storage.Staging != "staging" || c.HTTP.Addr != "" || c.Log.Level != "info" || len(c.StageSlots)+len(c.MaxAttempts)+len(c.Timeouts)+len(c.Leases)+len(c.Idle) != 0 {
		t.Errorf("%+v", c)
	}
}

// A deployment of the predecessor keeps its environment.
func TestOldNamesAreAccepted(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		"INGEST_PRE_FETCH_WORKERS": "4", "INGEST_PRE_FETCH_BUFFER_SIZE": "20", "INGEST_PRE_FETCH_MAX_ATTEMPTS": "6",
		"REINGEST_MANAGER_WORKERS": "2", "INGEST_RECORDER_MAX_ATTEMPTS": "5", "STAGING_UPLOADER_MAX_ATTEMPTS": "9",
		"STAGING_BUCKET": "aptrust.test.staging", "BUCKET_STANDARD_VA": "aptrust.preservation.storage",
	})
	if diff := cmp.Diff(map[string]int{"Receive": 4, "Reingest Check": 2}, c.StageSlots); diff != "" {
		t.Error(diff)
	}
	if c.ClaimCeiling["Receive"] != 20 {
		t.Errorf("ClaimCeiling = %v", c.ClaimCeiling)
	}
	if diff := cmp.Diff(map[string]int{"Receive": 6, "Record": 5, "Copy To Staging": 9}, c.MaxAttempts); diff != "" {
		t.Error(diff)
	}
	if c.Storage.Staging != "aptrust.test.staging" || c.Storage.Targets[0].Bucket != "aptrust.preservation.storage" {
		t.Errorf("staging %q, Standard-VA %q", c.Storage.Staging, c.Storage.Targets[0].Bucket)
	}
	reader, err := Load(enough(map[string]string{"INGEST_BUCKET_READER_INTERVAL": "3m"}), BucketReader{})
	if err != nil || reader.Read.Interval != 3*time.Minute {
		t.Errorf("interval %v, %v", reader.Read.Interval, err)
	}
}

// A token that can be guessed is refused, and not shown.
func TestSettingsOfEventsAreChecked(t *testing.T) {
	t.Parallel()
	good := map[string]string{"FAROL_READ_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/1/farol", "FAROL_READ_TOKEN": "0123456789abcdef"}
	c, err := Load(enough(good), BucketReader{})
	if err != nil || string(c.Read.Token) != good["FAROL_READ_TOKEN"] || c.Read.QueueURL != good["FAROL_READ_QUEUE_URL"] {
		t.Errorf("%+v, %v", c.Read, err)
	}
	_, err = Load(enough(map[string]string{"FAROL_READ_QUEUE_URL": "farol", "FAROL_READ_TOKEN": "geheim"}), BucketReader{})
	for _, want := range []string{`FAROL_READ_QUEUE_URL is "farol"; it must be an http(s) URL`, "FAROL_READ_TOKEN has 6 characters; it must be a token of at least 16 characters"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q is not said, or the token is: %v", want, err)
		}
	}
}

func TestNewNamesGoBeforeOldOnes(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		"STAGING_BUCKET": "old-staging", "FAROL_STAGING_BUCKET": "new-staging",
		"BUCKET_STANDARD_VA": "old", "FAROL_TARGET_STANDARD_VA_BUCKET": "new",
		"STAGING_UPLOADER_WORKERS": "1", "INGEST_STAGING_UPLOADER_WORKERS": "2",
	})
	if c.Storage.Staging != "new-staging" || c.Storage.Targets[0].Bucket != "new" || c.StageSlots["Copy To Staging"] != 2 {
		t.Errorf("%+v", c)
	}
}

func TestTargetsLiveAtTheirProvidersOrOnTheSharedService(t *testing.T) {
	t.Parallel()
	target := func(c Worker, name string) storage.Target {
		for _, target := range c.Storage.Targets {
			if target.Name == name {
				return target
			}
		}
		t.Fatalf("no target %s", name)
		return storage.Target{}
	}
	cloud := parsed(t, map[string]string{
		"AWS_REGION":                           "eu-west-1",
		"FAROL_TARGET_WASABI_OR_ACCESS_KEY_ID": "WASA", "FAROL_TARGET_WASABI_OR_SECRET_ACCESS_KEY": "auch geheim",
		"FAROL_TARGET_WASABI_OR_CHECKSUM": "etag",
	})
	local := parsed(t, map[string]string{
		"AWS_REGION": "eu-west-1", "FAROL_S3_ENDPOINT": "https://127.0.0.1:7070",
		"FAROL_TARGET_GLACIER_OH_ENDPOINT": "https://tape.example.org", "FAROL_TARGET_GLACIER_OH_REGION": "cellar",
		"FAROL_TARGET_GLACIER_OH_STORAGE_CLASS": "COLD", "FAROL_TARGET_GLACIER_OH_BUCKET": "tapes",
	})
	for _, c := range []struct {
		of   Worker
		want storage.Target
	}{
		{cloud, storage.Target{
			Name: "Standard-OR", Bucket: "preservation-or", Region: "us-west-2", Provider: "AWS", StorageClass: "GLACIER",
			AccessKeyID: "AKIA", SecretAccessKey: "geheim", Checksum: storage.ChecksumAuto, RestorePriority: 5,
		}},
		{cloud, storage.Target{
			Name: "Wasabi-OR", Bucket: "wasabi-or", Endpoint: "https://s3.us-west-1.wasabisys.com", Region: "us-west-1", Provider: "Wasabi-OR",
			AccessKeyID: "WASA", SecretAccessKey: "auch geheim", Checksum: storage.ChecksumETag, RestorePriority: 3,
		}},
		{local, storage.Target{
			Name: "Wasabi-OR", Bucket: "wasabi-or", Endpoint: "https://127.0.0.1:7070", Region: "eu-west-1", Provider: "Wasabi-OR",
			AccessKeyID: "AKIA", SecretAccessKey: "geheim", Checksum: storage.ChecksumAuto, PathStyle: true, RestorePriority: 3,
		}},
		{local, storage.Target{
			Name: "Glacier-OH", Bucket: "tapes", Endpoint: "https://tape.example.org", Region: "cellar", Provider: "AWS", StorageClass: "COLD",
			AccessKeyID: "AKIA", SecretAccessKey: "geheim", Checksum: storage.ChecksumAuto, PathStyle: true, RestorePriority: 7,
		}},
	} {
		if diff := cmp.Diff(c.want, target(c.of, c.want.Name)); diff != "" {
			t.Errorf("%s: %s", c.want.Name, diff)
		}
	}
	if got := cloud.Storage.Target("staging"); got.Endpoint != "" || got.Region != "eu-west-1" || got.PathStyle {
		t.Errorf("a bucket on AWS is at %q in %q", got.Endpoint, got.Region)
	}
	if len(cloud.Storage.Targets) != 11 {
		t.Errorf("%d targets", len(cloud.Storage.Targets))
	}
}

// Each row is one wrong setting; together they must all be reported.
func TestAllWrongSettingsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	wrong := []struct{ name, value, said string }{
		{"FAROL_DATABASE_URL", "", "is not set"},
		{"FAROL_REDIS_URL", "http://redis", "cannot be read"},
		{"AWS_ACCESS_KEY_ID", "", "is not set; the other half of the key is"},
		{"FAROL_S3_ENDPOINT", "s3.example.org", `is "s3.example.org"; it must be an http(s) URL`},
		{"FAROL_S3_CA_FILE", "/nowhere/ca.pem", "it must be the path of a file"},
		{"STAGING_BUCKET", "prod", `must contain "staging"`},
		{"BUCKET_WASABI_TX", "preservation-va", "like that of Standard-VA"},
		{"FAROL_TARGET_WASABI_OR_BUCKET", "a/b", "it must be a bucket name"},
		{"FAROL_TARGET_WASABI_VA_ENDPOINT", "ftp://x", "it must be an http(s) URL"},
		{"FAROL_TARGET_GLACIER_VA_CHECKSUM", "crc32", "it must be auto, sha256 or etag"},
		{"FAROL_TARGET_STANDARD_VA_INVENTORY", "inventories", "it must be a bucket and a folder such as "},
		{"FAROL_TARGET_STANDARD_OR_INVENTORY", "s3:///daily/x", "it must be a bucket and a folder such as "},
		{"FAROL_TARGET_GLACIER_OH_INVENTORY", "glacier-oh/daily", "like that of Glacier-OH; it must be in a bucket of its own"},
		{"FAROL_HEARTBEAT", "ten", "it must be a duration"},
		{"FAROL_POLL", "0s", "it must be longer"},
		{"FAROL_GRACE", "-1s", "it must be longer"},
		{"FAROL_FILES", "0", "it must be a whole number from 1 on"},
		{"FAROL_IDENTIFY_WORKERS", "two", "it must be a whole number from 1 on"},
		{"FAROL_IDENTIFY_MEMORY", "1000", "it must be a number of bytes such as 1048576, 64MiB or 1GiB, of at least 64MiB"},
		{"FAROL_CLAMD", "clamd:3310", "it must be tcp://host:port or unix:///path"},
		{"FAROL_CLAMD_MAX_SIZE", "0", "is 0; it must be a number of bytes such as 1048576, 64MiB or 1GiB, of at least 1"},
		{"FAROL_LOG_LEVEL", "loud", "it must be debug, info, warn or error"},
		{"FAROL_LOG_FORMAT", "xml", "it must be text or json"},
		{"FAROL_HTTP_ADDR", "9090", "it must be host:port"},
		{"INGEST_VALIDATOR_WORKERS", "-1", "it must be a whole number from 1 on"},
		{"INGEST_CLEANUP_BUFFER_SIZE", "many", "it must be a whole number from 1 on"},
		{"INGEST_RECORDER_MAX_ATTEMPTS", "0", "it must be a whole number from 1 on"},
	}
	environ := enough(nil)
	for _, w := range wrong {
		environ[w.name] = w.value
	}
	_, err := Load(environ, Worker{})
	if err == nil {
		t.Fatal("it was accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(wrong)+1 {
		t.Errorf("%d lines for %d mistakes:\n%v", len(lines)-1, len(wrong), err)
	}
	for _, w := range wrong {
		said := false
		for _, line := range lines {
			said = said || strings.HasPrefix(line, "  "+w.name+" ") && strings.Contains(line, w.said)
		}
		if !said {
			t.Errorf("nothing says that %s %s", w.name, w.said)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

// Targets may share the bucket of their inventories, which is reached as they are.
func TestInventoriesAreOfTheirTargets(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		"FAROL_TARGET_STANDARD_VA_INVENTORY": "s3://inventories/daily/preservation-va/farol/", "FAROL_TARGET_GLACIER_OH_INVENTORY": "inventories/x",
		"FAROL_TARGET_GLACIER_OH_ACCESS_KEY_ID": "other", "FAROL_TARGET_GLACIER_OH_SECRET_ACCESS_KEY": "geheim",
	}).Storage.Inventories
	for target, want := range map[string]string{
		"Standard-VA": "inventories daily/preservation-va/farol/ FAROL_TARGET_STANDARD_VA_INVENTORY us-east-1 AKIA",
		"Glacier-OH":  "inventories x/ FAROL_TARGET_GLACIER_OH_INVENTORY us-east-2 other",
	} {
		i := c[target]
		if got := strings.Join([]string{i.Bucket, i.Folder, i.Setting, i.Region, i.AccessKeyID}, " "); got != want || len(c) != 2 {
			t.Errorf("%s: %q, want %q; %d inventories", target, got, want, len(c))
		}
	}
}

// One late heartbeat must not cost a live worker its items.
func TestLeaseIsAtLeastThreeHeartbeats(t *testing.T) {
	t.Parallel()
	_, err := Load(enough(map[string]string{"FAROL_LEASE": "29s", "FAROL_HEARTBEAT": "10s"}), Worker{})
	if err == nil || !strings.Contains(err.Error(), "FAROL_LEASE and FAROL_HEARTBEAT do not fit") {
		t.Errorf("err = %v", err)
	}
	parsed(t, map[string]string{"FAROL_LEASE": "3s", "FAROL_HEARTBEAT": "1s", "FAROL_GRACE": "0s"})
}

func TestBytesMayBeMoreThanFitInto32Bits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"8589934592", "8GiB", "8 GiB"} {
		if c := parsed(t, map[string]string{"FAROL_IDENTIFY_MEMORY": text}); c.Identify.Memory != 8<<30 {
			t.Errorf("%s: %d bytes", text, c.Identify.Memory)
		}
	}
	_, err := Load(enough(map[string]string{"FAROL_IDENTIFY_MEMORY": "1,5GiB"}), Worker{})
	if err == nil || !strings.Contains(err.Error(), `FAROL_IDENTIFY_MEMORY is "1,5GiB"; it must be a number of bytes such as`) {
		t.Errorf("err = %v", err)
	}
}

// A size is written as it is read.
func TestSizesAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for size, text := range map[Size]string{0: "0", 1: "1", 1023: "1023", 1024: "1KiB", 1025: "1025", 64 << 20: "64MiB", 10 << 30: "10GiB", 3 << 40: "3TiB"} {
		var read Size
		if err := read.UnmarshalText([]byte(text)); err != nil || read != size || size.String() != text {
			t.Errorf("%d is written as %s and read as %d, %v", int64(size), size, int64(read), err)
		}
	}
}

func TestHalfAKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, missing string }{{"SECRET_ACCESS_KEY", "ACCESS_KEY_ID"}, {"ACCESS_KEY_ID", "SECRET_ACCESS_KEY"}} {
		const prefix = "FAROL_TARGET_WASABI_VA_"
		_, err := Load(enough(map[string]string{prefix + c.set: "geheim"}), Worker{})
		if err == nil || !strings.Contains(err.Error(), prefix+c.missing+" is not set") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("only %s: %v", c.set, err)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{"FAROL_TARGET_WASABI_VA_ACCESS_KEY_ID": "w", "FAROL_TARGET_WASABI_VA_SECRET_ACCESS_KEY": "geheim"})
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	_, wrong := Load(enough(map[string]string{
		"FAROL_DATABASE_URL": "postgres://u:geheim@host:port/x", "FAROL_REDIS_URL": "redis://:geheim@h:x/y",
	}), Worker{})
	for _, shown := range []string{string(text), fmt.Sprintf("%v %+v %#v", c, c, c), wrong.Error()} {
		if strings.Contains(shown, "geheim") {
			t.Errorf("a secret is in %s", shown)
		}
	}
}

// Behind a pooler, a command that needs a session must be given the way past it; one that does
// not goes through it.
func TestSessionsGoPastThePooler(t *testing.T) {
	t.Parallel()
	const past = "postgres://farol:geheim@primary,standby:5432/farol"
	pooler := map[string]string{"FAROL_DATABASE_POOLER": "transaction"}
	both := map[string]string{"FAROL_DATABASE_POOLER": "transaction", "FAROL_DATABASE_DIRECT_URL": past}
	if c := parsed(t, both).Database; c.URL != "postgres://farol:geheim@db:5432/farol" || c.Pooler != "transaction" || c.Direct != past {
		t.Errorf("a worker's database: %+v", c)
	}
	parsed(t, pooler) // which finds work by polling
	for _, environ := range []map[string]string{both, {"FAROL_DATABASE_DIRECT_URL": past}} {
		if c, err := Load(enough(environ), Session{}); err != nil || c.URL != past || c.Pooler != "" {
			t.Errorf("the database of who needs a session: %+v, %v", c, err)
		}
	}
	for _, wrong := range []map[string]string{
		pooler,
		{"FAROL_DATABASE_DIRECT_URL": "postgres://farol:geheim@db:port/farol"},
	} {
		_, err := Load(enough(wrong), Session{})
		if err == nil || !strings.Contains(err.Error(), "FAROL_DATABASE_DIRECT_URL") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if _, err := Load(enough(map[string]string{"FAROL_DATABASE_POOLER": "session"}), Worker{}); err == nil {
		t.Error("a pooler in session mode is none to us, and was accepted")
	}
}

// Plain HTTP is named once for each service that is not on this machine.
func TestEndpointsWithoutEncryptionAreNamedOnce(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		"FAROL_S3_ENDPOINT": "HTTP://minio.internal:9000", "FAROL_TARGET_WASABI_OR_ENDPOINT": "http://10.0.0.7:8333",
		"FAROL_TARGET_WASABI_VA_ENDPOINT": "https://minio.internal:9001", "FAROL_TARGET_WASABI_TX_ENDPOINT": "http://[2001:db8::1]:9000",
	})
	if got := Unencrypted(append(c.Storage.Targets, c.Storage.Target("staging"))...); !cmp.Equal(got, []string{"HTTP://minio.internal:9000", "http://10.0.0.7:8333", "http://[2001:db8::1]:9000"}) {
		t.Errorf("without encryption: %q", got)
	}
	for _, here := range []string{"http://127.0.0.1:9000", "http://127.9.9.9", "http://localhost:9000", "http://[::1]:9000", "https://minio.internal", ""} {
		if got := Unencrypted(storage.Target{Endpoint: here}); got != nil {
			t.Errorf("without encryption: %q", got)
		}
	}
}
