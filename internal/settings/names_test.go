package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
// refused, and the nearest is the one that was meant.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	nothing := func(*Reader) struct{} { return struct{}{} }
	for _, name := range []string{
		"FAROL_SERVE_SERVICE_HOST", "FAROL_SERVE_SERVICE_PORT", "FAROL_SERVE_SERVICE_PORT_HTTP", "FAROL_SERVE_PORT",
		"FAROL_SERVE_PORT_4180_TCP_ADDR", "FAROL_NSQADMIN_PORT", "FAROL_POSTGRES_PASSWORD", "FAROL_TOKEN", "FAROLX", "AWS_PROFILE",
		"FAROL_TARGET_WASABI_VA_SECRET_ACCESS_KEY_FILE", "FAROL_REDIS_URL_FILE",
	} {
		if _, err := Load(map[string]string{name: "x"}, nothing); err != nil {
			t.Error(err)
		}
	}
	names := []string{"FAROL_DATABASE_URL", "FAROL_JANITOR_INTERVAL", "FAROL_TARGET_STANDARD_VA_BUCKET"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "name")
		at := rapid.IntRange(len("FAROL_"), len(name)-1).Draw(t, "at")
		wrong := name[:at] + rapid.SampledFrom([]string{"", "Q", name[at:at+1] + "Q"}).Draw(t, "letter") + name[at+1:]
		_, err := Load(map[string]string{wrong: "x"}, nothing)
		if err == nil || !strings.Contains(err.Error(), "\n  "+wrong+" is not a setting") || !strings.HasSuffix(err.Error(), "did you mean "+name) {
			t.Errorf("%s: %v", wrong, err)
		}
	})
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
	}, ReadWorker)
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
		"does not exist": "/nowhere", "is not a file": t.TempDir(), "is empty": write("\n"), "has more than": write(strings.Repeat("x", mostSecret+1)),
	} {
		_, err := Load(enough(map[string]string{"FAROL_REDIS_URL": "", "FAROL_REDIS_URL_FILE": path}), ReadWorker)
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
		_, err := Load(enough(map[string]string{name: "", name + fileSuffix: canary}), ReadWorker)
		if err == nil || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), name+fileSuffix+" is ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
