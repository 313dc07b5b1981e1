package storage_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/identity"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/credentials"
)

func platform(t *testing.T, lasts time.Duration) *identity.Platform {
	t.Helper()
	p := identity.New(lasts)
	t.Cleanup(p.Close)
	return p
}

// behind is a target that takes keys of a platform only.
func behind(t *testing.T, p *identity.Platform) storage.Target {
	t.Helper()
	at := target(t, "preservation")
	own := aws.Credentials{AccessKeyID: at.AccessKeyID, SecretAccessKey: string(at.SecretAccessKey)}
	create(t, at)
	at = newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool { return p.Answers(w, r, own) }).through(at)
	at.AccessKeyID, at.SecretAccessKey = "", ""
	return at
}

// ofTest keeps the chain from what this machine has.
func ofTest(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	} {
		t.Setenv(name, "")
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
}

// Each way in which platforms hand out keys leads to a store, with more than one key after the other,
// and no request is refused.
func TestKeysOfPlatforms(t *testing.T) {
	for name, way := range map[string]struct {
		issues string
		set    func(t *testing.T, p *identity.Platform, at *storage.Target)
	}{
		"instance": {"instance", func(t *testing.T, p *identity.Platform, _ *storage.Target) {
			t.Helper()
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", p.URL)
		}},
		"container": {"container", func(t *testing.T, p *identity.Platform, _ *storage.Target) {
			t.Helper()
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
		}},
		"web identity": {"web", func(t *testing.T, p *identity.Platform, _ *storage.Target) {
			t.Helper()
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", fileWith(t, identity.WebToken))
			t.Setenv("AWS_ROLE_ARN", identity.Role)
			t.Setenv("AWS_ENDPOINT_URL_STS", p.URL)
		}},
		"profile": {"instance", func(t *testing.T, p *identity.Platform, at *storage.Target) {
			t.Helper()
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", p.URL)
			t.Setenv("AWS_ENDPOINT_URL_STS", p.URL)
			t.Setenv("AWS_CONFIG_FILE", fileWith(t, "[profile other]\nrole_arn = "+identity.Role+"\nexternal_id = "+identity.ExternalID+"\ncredential_source = Ec2InstanceMetadata\nregion = us-east-1\n"))
			at.Profile = "other"
		}},
		"role": {"role", func(t *testing.T, p *identity.Platform, at *storage.Target) {
			t.Helper()
			t.Setenv("AWS_ENDPOINT_URL_STS", p.URL)
			key := p.Key()
			at.AccessKeyID, at.SecretAccessKey = key.AccessKeyID, storage.Secret(key.SecretAccessKey)
			at.RoleARN, at.ExternalID = identity.Role, identity.ExternalID
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ofTest(t)
			p := platform(t, 1500*time.Millisecond)
			at := behind(t, p)
			way.set(t, p, &at)
			b := open(t, at, storage.Options{})
			content := noise(1000)
			for p.Issued(way.issues) < 4 {
				put(t, b, "key", content)
				head(t, b, "key")
				must.Get(b.KeepsVersions(t.Context()))(t)
			}
			if p.Used() < 3 {
				t.Errorf("requests were signed by %d keys, want some", p.Used())
			}
		})
	}
}

func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A key that a store no longer takes is had again at once, by requests of both kinds.
func TestKeyThatEndsEarly(t *testing.T) {
	ofTest(t)
	p := platform(t, time.Hour)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
	b := open(t, behind(t, p), storage.Options{})
	content := noise(1000)
	put(t, b, "key", content)
	for i, ask := range []func(){
		func() { put(t, b, "key", content) },
		func() { head(t, b, "key") },
		func() { must.Get(b.KeepsVersions(t.Context()))(t) },
	} {
		retry.Pause(t.Context(), 1100*time.Millisecond) // a key that is younger is not asked for again
		p.End("container")
		ask()
		if n := p.Issued("container"); n != i+2 {
			t.Errorf("after %d keys had ended, %d were asked for", i+1, n)
		}
	}
}

// A key in files may be replaced.
func TestKeyInFilesIsReadAgain(t *testing.T) {
	t.Parallel()
	p := platform(t, time.Hour)
	at := behind(t, p)
	first, second := p.Key(), p.Key()
	id, secret := fileWith(t, first.AccessKeyID+"\n"), fileWith(t, first.SecretAccessKey+"\n")
	at.KeyFiles = credentials.Files{AccessKeyID: id, SecretAccessKey: secret}
	b := open(t, at, storage.Options{})
	put(t, b, "key", noise(10))
	must.Do(t, os.WriteFile(id, []byte(second.AccessKeyID), 0o600))
	must.Do(t, os.WriteFile(secret, []byte(second.SecretAccessKey), 0o600))
	p.End("own")
	third := p.Key()
	must.Do(t, os.WriteFile(id, []byte(third.AccessKeyID), 0o600))
	must.Do(t, os.WriteFile(secret, []byte(third.SecretAccessKey), 0o600))
	retry.Pause(t.Context(), 1100*time.Millisecond) // a key that is younger is not asked for again
	put(t, b, "key", noise(10))
}

// Without credentials the bucket's service is at fault, and it is good again with them.
func TestPlatformThatHandsOutNone(t *testing.T) {
	ofTest(t)
	p := platform(t, time.Hour)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", p.URL+"/container")
	b := open(t, behind(t, p), storage.Options{})
	p.Refuse(true)
	for _, ask := range []func() error{
		func() error { _, err := b.Head(t.Context(), "key"); return err },
		func() error { _, err := b.KeepsVersions(t.Context()); return err },
	} {
		f := fault.In(ask())
		if f == nil || f.Code() != "storage-unavailable" || f.Service != fault.Bucket("preservation") {
			t.Errorf("without credentials: %+v", f)
		}
	}
	p.Refuse(false)
	retry.Pause(t.Context(), 1100*time.Millisecond) // a key that is younger is not asked for again
	if _, err := b.Head(t.Context(), "key"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("with credentials: %v", err)
	}
}
