package settings

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/storage"
)

// What a block declares is known to all commands, also to those that do not read it.
func TestEveryDeclaredSettingIsKnown(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	known, declared := knownNames(), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`env:\"(FAROL_[A-Z0-9_]+)").FindAllStringSubmatch(string(text), -1) {
			declared++
			if !known[m[1]] {
				t.Errorf("%s declares %s, which settingBlocks lacks", file, m[1])
			}
		}
	}
	if declared < 50 {
		t.Errorf("only %d settings were found", declared)
	}
}

// What others set next to ours is no mistake; with one letter changed, every name is
// refused, the old ones too, and the nearest is the one that was meant.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Fields(`
		FAROL_SERVE_SERVICE_HOST FAROL_SERVE_SERVICE_PORT FAROL_SERVE_SERVICE_PORT_HTTP FAROL_SERVE_PORT
		FAROL_SERVE_PORT_4180_TCP_ADDR FAROL_NSQADMIN_PORT FAROL_POSTGRES_PASSWORD FAROL_TOKEN FAROLX AWS_PROFILE
		FAROL_TARGET_WASABI_VA_SECRET_ACCESS_KEY_FILE FAROL_REDIS_URL_FILE INGEST_RECORDER_WORKERS_FILE BUCKET_STANDARD_VA
		AWS_WEB_IDENTITY_TOKEN_FILE AWS_ACCESS_KEY_IDS APT_CONFIG APT_LISTCHANGES_FRONTEND FILE_TIMEOUT PATH HOME
		BASE_WORKING_DIR INGEST_TEMP_DIR RESTORE_DIR LOG_DIR LOG_LEVEL APT_ENV APT_E2E APT_QUEUE_INTERVAL MAX_FILE_SIZE
		MAX_WORKER_ATTEMPTS NSQ_LOOKUPD NSQ_URL PRESERV_REGISTRY_URL PRESERV_REGISTRY_API_KEY PROFILES_DIR REDIS_URL
		REDIS_RETRIES STAGING_UPLOAD_RETRY_MS S3_AWS_HOST S3_LOCAL_SECRET VOLUME_SERVICE_URL`) { // the last are the predecessor's
		if _, err := Load(map[string]string{name: "x"}, struct{}{}); err != nil {
			t.Error(err)
		}
	}
	for wrong, meant := range map[string]string{
		"INGEST_RECORDER_WORKER": "INGEST_RECORDER_WORKERS", "INGEST_PREFETCH_WORKERS": "INGEST_PRE_FETCH_WORKERS", "ingest_cleanup_workers": "INGEST_CLEANUP_WORKERS",
		"INGEST_RECORDER_SLOTS": "INGEST_RECORDER_LEASE", "INGEST_STORE_BUFFERSIZE": "", "BAG_RESTORER_BUFFER": "BAG_RESTORER_BUFFER_SIZE", "APT_DELETION_WORKERS": "APT_DELETE_WORKERS",
		"farol_log_level": "FAROL_LOG_LEVEL", "FAROLE_LOG_LEVEL": "FAROL_LOG_LEVEL", "FAROL_LOG_LEVL_FILE": "FAROL_LOG_LEVEL_FILE", "FAROL_S3_CC_FILE": "FAROL_S3_CA_FILE",
		"MAX_FIXITY_ITEM_PER_RUN": "MAX_FIXITY_ITEMS_PER_RUN", "BUCKET_STANDARD_V": "BUCKET_STANDARD_VA",
	} {
		_, err := Load(map[string]string{wrong: "7"}, struct{}{})
		if err == nil || !strings.Contains(err.Error(), "\n  "+wrong+" is not a setting of Farol; did you mean "+meant) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(knownNames())), func(name string) bool {
		return strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "OTEL_") || platformName.MatchString(name)
	})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "name")
		at := rapid.IntRange(strings.Index(name, "_")+1, len(name)-1).Draw(t, "at")
		wrong := name[:at] + rapid.SampledFrom([]string{"", "Q", name[at:at+1] + "Q"}).Draw(t, "letter") + name[at+1:]
		if platformName.MatchString(wrong) {
			return
		}
		_, err := Load(map[string]string{wrong: "x"}, struct{}{})
		if err == nil || !strings.Contains(err.Error(), "\n  "+wrong+" is not a setting") {
			t.Errorf("%s: %v", wrong, err)
		}
		if near, letters := nearest(wrong, names, true); letters == 1 && near == name && !strings.HasSuffix(err.Error(), "did you mean "+name) {
			t.Errorf("%s: %v", wrong, err)
		}
	})
}

// Every setting of every block may come from a file, under its old name too, and a wrong value
// in it is said of the file.
func TestEverySettingMayBeInAFile(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "value")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	value := func(f Field) string {
		switch f.Value.Interface().(type) {
		case time.Duration:
			return "17h"
		case Size, int:
			return "123456789"
		}
		switch {
		case len(f.oneOf) > 0:
			return f.oneOf[len(f.oneOf)-1]
		case f.is == "host:port":
			return "h:1"
		case f.is == "an http(s) URL":
			return "http://h"
		case f.is == "the path of a file":
			return write("x")
		}
		return "text"
	}
	read := 0
	for _, block := range append(SettingBlocks(), &OIDC{}, &Target{}) {
		for _, f := range FieldsOf("P_", block) {
			for _, name := range []string{f.Name, f.old} {
				if name == "" {
					continue
				}
				v := value(f)
				text, inFile := reflect.New(reflect.TypeOf(block).Elem()), reflect.New(reflect.TypeOf(block).Elem())
				for to, environ := range map[reflect.Value]map[string]string{text: {name: v}, inFile: {name + fileSuffix: write(v + "\n")}} {
					s := reader{environ: environ}
					if s.readBlock("P_", to.Interface()); s.has(name, name+fileSuffix) {
						t.Error(s.err())
					}
				}
				got, want := reflect.Indirect(inFile).FieldByName(f.goName), reflect.Indirect(text).FieldByName(f.goName)
				if !got.Equal(want) || got.IsZero() {
					t.Errorf("%s%s: %v in place of %v", name, fileSuffix, got, want)
				}
				read++
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d settings were read", read)
	}
	c, err := Load(enough(map[string]string{
		"INGEST_RECORDER_WORKERS_FILE": write("7\n"), "BAG_RESTORER_TIMEOUT_FILE": write("90s"), "BUCKET_STANDARD_VA_FILE": write("from-a-file"),
		"FAROL_POOLS_FILE": write("# ours\none=*\ntwo=Store\n"),
	}), Worker{})
	if err != nil {
		t.Fatal(err)
	}
	if va, _ := c.Storage.TargetOf("Standard-VA"); c.StageSlots["Record"] != 7 || c.Timeouts["Restore Object"] != 90*time.Second || va.Bucket != "from-a-file" || len(c.Pools.List) != 2 {
		t.Errorf("%v %v %v %v", c.StageSlots, c.Timeouts, va.Bucket, c.Pools.List)
	}
	_, err = Load(enough(map[string]string{
		"INGEST_RECORDER_WORKERS_FILE": write("none"), "FAROL_GRACE_FILE": write("soon"), "FAROL_POLL": "3s", "FAROL_POLL_FILE": write("3s"), "FAROL_POOLS_FILE": write("x"),
	}), Worker{})
	for _, want := range []string{
		"INGEST_RECORDER_WORKERS_FILE is \"none\"; it must be a whole number", "FAROL_GRACE_FILE is \"soon\"; it must be a duration",
		"FAROL_POLL_FILE is set, and so is FAROL_POLL; set only one of them", "FAROL_POOLS_FILE is wrong: line 1",
	} {
		if err == nil || !strings.Contains(err.Error(), "\n  "+want) {
			t.Errorf("%s is not said: %v", want, err)
		}
	}
}

// Each secret may come from a file instead, and what the file has is never shown.
func TestEverySecretMayBeInAFile(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := Load(map[string]string{
		"FAROL_DATABASE_URL_FILE":                   write("postgres://u:geheim@db/farol\n"),
		"FAROL_REDIS_URL_FILE":                      write("redis://:geheim@redis:6379/0\r\n"),
		"AWS_ACCESS_KEY_ID_FILE":                    write("AKIA\n"),
		"AWS_SECRET_ACCESS_KEY_FILE":                write("geheim"),
		"FAROL_TARGET_WASABI_VA_ACCESS_KEY_ID_FILE": write("W"), "FAROL_TARGET_WASABI_VA_SECRET_ACCESS_KEY_FILE": write("w-geheim"),
	}, Worker{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Database.URL != "postgres://u:geheim@db/farol" || c.Redis.URL != "redis://:geheim@redis:6379/0" ||
		c.Storage.AccessKeyID != "AKIA" || c.Storage.SecretAccessKey != "geheim" {
		t.Errorf("%q %q %q", string(c.Database.URL), string(c.Redis.URL), string(c.Storage.SecretAccessKey))
	}
	if w, _ := c.Storage.TargetOf("Wasabi-VA"); w.AccessKeyID != "W" || w.SecretAccessKey != storage.Secret("w-geheim") {
		t.Errorf("Wasabi-VA has the key %s", w.AccessKeyID)
	}
	for want, path := range map[string]string{
		"does not exist": "/nowhere", "is not a file": t.TempDir(), "is empty": write("\n"), "has more than": write(strings.Repeat("x", mostInFile+1)),
	} {
		_, err := Load(enough(map[string]string{"FAROL_REDIS_URL": "", "FAROL_REDIS_URL_FILE": path}), Worker{})
		if err == nil || !strings.Contains(err.Error(), "1 setting is missing or wrong:\n  FAROL_REDIS_URL_FILE is \""+path+"\", which "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Who gives the secret where the path of its file belongs does not find it in a log.
func TestSecretInPlaceOfAPathIsNotPrinted(t *testing.T) {
	t.Parallel()
	const canary = "xq9Canary/7vz"
	for _, name := range []string{"FAROL_DATABASE_URL", "FAROL_REDIS_URL", "AWS_SECRET_ACCESS_KEY"} {
		_, err := Load(enough(map[string]string{name: "", name + fileSuffix: canary}), Worker{})
		if err == nil || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), name+fileSuffix+" is ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
