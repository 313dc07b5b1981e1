package storage_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/storage"
)

// A text tells of a URL what leads to the server, and not how to get in.
func TestRedactedTextHasNoCredentials(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`dial postgres://farol:s3cret@db:5432/farol: refused`:         `dial postgres://***@db:5432/farol: refused`,
		`redis://:s3cret@redis:6379/0`:                                `redis://***@redis:6379/0`,
		`parse "https://key:s3/cr@et@s3:7070": bad`:                   `parse "https://***@s3:7070": bad`,
		`smtps://me:s3cret@mail, then nsq://u:p@h:1`:                  `smtps://***@mail, then nsq://***@h:1`,
		`postgres://h/farol?password=s3cret&sslmode=disable`:          `postgres://h/farol?password=***&sslmode=disable`,
		`https://s3:7070/restore/me@test.edu/bag.tar`:                 `https://s3:7070/restore/me@test.edu/bag.tar`,
		`https://s3/b/k?X-Amz-Credential=AKIA&X-Amz-Signature=0a&p=1`: `https://s3/b/k?X-Amz-Credential=***&X-Amz-Signature=***&p=1`,
		`"host=db password=s3cret user=farol": no URL`:                `"host=db password=*** user=farol": no URL`,
		`user=farol password = 'it\'s s3cret' host=db`:                `user=farol password = *** host=db`,
		`admin@archive.org asked`:                                     `admin@archive.org asked`,
	} {
		if got := storage.Redact(text); got != want {
			t.Errorf("Redact(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestNoPasswordGetsThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := "q" + rapid.StringMatching(`[A-Za-z!$%&()*+,./:;=?@^_~-]{6,20}`).Draw(t, "password") + "q"
		url := rapid.SampledFrom([]string{"postgres", "redis", "https", "smtp"}).Draw(t, "scheme") + "://" +
			rapid.SampledFrom([]string{"", "user"}).Draw(t, "user") + ":" + password + "@host:1/path"
		if got := storage.Redact("cannot read " + url + ": no"); strings.Contains(got, password) {
			t.Fatalf("%s is in %s", password, got)
		}
	})
}
