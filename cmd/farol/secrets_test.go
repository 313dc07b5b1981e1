package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// secretNames are the settings that hold secrets.
func secretNames() (names []string) {
	var fields []settings.Field
	for _, block := range settings.SettingBlocks() {
		fields = append(fields, settings.FieldsOf("", block)...)
	}
	fields = append(fields, settings.FieldsOf(settings.TargetPrefix("Wasabi-VA"), &settings.Target{})...)
	fields = append(fields, settings.FieldsOf("FAROL_OIDC_TEST_", &settings.OIDC{})...)
	for _, f := range fields {
		if _, secret := f.Value.Interface().(storage.Secret); secret {
			names = append(names, f.Name)
		}
	}
	return names
}

// No command prints a secret of its settings, whether that can be read or not, and
// whatever fails because of it.
func TestNoCommandPrintsASecret(t *testing.T) {
	t.Parallel()
	const canary = "xq9Canary7vz"
	names := secretNames()
	if len(names) < 5 {
		t.Fatalf("only %q are secrets", names)
	}
	farol := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(farol))
	enough := map[string]string{
		"FAROL_DATABASE_URL": "postgres://127.0.0.1:1/farol", "FAROL_REDIS_URL": "redis://127.0.0.1:1/0", "FAROL_S3_ENDPOINT": "http://127.0.0.1:1",
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "TMPDIR": t.TempDir(),
	}
	var runs errgroup.Group // most of the time they wait for servers that are not there
	runs.SetLimit(16)
	for _, name := range names {
		for _, form := range []string{
			"%s", "postgres://u:%s@127.0.0.1:1/farol", "redis://:%s@127.0.0.1:1/0", "postgres://u:%s/@127.0.0.1:x/farol",
			"host=127.0.0.1 port=1 user=u password=%s", "postgres://127.0.0.1:1/farol?password=%s", "postgres://u:%%zz%s@h/d",
		} {
			settings := maps.Clone(enough)
			settings[name] = fmt.Sprintf(form, canary)
			for _, args := range [][]string{{"check"}, {"item", "show", "1", "--json"}, {"work"}} {
				runs.Go(func() error {
					said, err := printedBy(t.Context(), farol, settings, args)
					if err == nil || said == "" || strings.Contains(said, canary) {
						t.Errorf("%s=%s: %v ended with %v and said %q", name, form, args, err, said)
					}
					return nil
				})
			}
		}
	}
	_ = runs.Wait() // none returns an error
}

// printedBy is what a command prints with these settings and no others.
func printedBy(ctx context.Context, farol string, settings map[string]string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testenv.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, farol, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + settings["TMPDIR"]}
	for name, value := range settings {
		c.Env = append(c.Env, name+"="+value)
	}
	said, err := c.CombinedOutput()
	return string(said), err
}
