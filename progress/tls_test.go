package progress_test

import (
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/progress"
)

// One URL has all of it: TLS in both directions, and a user whose password is replaced while we are connected.
func TestTLSAndUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, devstack.MakeCertificates(ca, cert, key))
	node := testenv.NewRedisTLS(t, ca, cert, key)
	set := func(password string) string {
		t.Helper()
		must(t, node.Client.Do(t.Context(), "ACL", "SETUSER", "farol", "reset", "on", ">"+password, "~farol:*", "+@all").Err())
		return "rediss://farol:" + password + "@" + node.TLS + "/0?" + url.Values{"ca_file": {ca}, "cert_file": {cert}, "key_file": {key}}.Encode()
	}
	var now atomic.Pointer[string]
	first := set("secret-one")
	now.Store(&first)
	s, err := progress.Connect(t.Context(), first, "farol", progress.Renewed(func() string { return *now.Load() }))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Done(t.Context(), claim(1), stage, map[int]string{1: "a"}))

	second := set("secret-two")
	must(t, node.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "farol").Err())
	if err := s.Done(t.Context(), claim(1), stage, map[int]string{2: "b"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("by the old password: %v", err)
	}
	now.Store(&second)
	must(t, s.Done(t.Context(), claim(1), stage, map[int]string{2: "b"}))
	equal(t, "results", map[int]string{1: "a", 2: "b"}, begin(t, s, 1))

	for what, wrong := range map[string]string{
		"an authority that is not known": strings.Replace(second, "ca_file="+url.QueryEscape(ca), "", 1),
		"no certificate of ours":         strings.NewReplacer("&cert_file="+url.QueryEscape(cert), "", "&key_file="+url.QueryEscape(key), "").Replace(second),
		"a certificate without its key":  strings.Replace(second, "&key_file="+url.QueryEscape(key), "", 1),
		"a file that is not there":       strings.Replace(second, url.QueryEscape(ca), "%2Fnowhere", 1),
		"a file that has no certificate": strings.Replace(second, "ca_file="+url.QueryEscape(ca), "ca_file="+url.QueryEscape(key), 1),
		"files of TLS for a URL without": strings.Replace(second, "rediss", "redis", 1),
		"a wrong password":               strings.Replace(second, "two", "three", 1),
	} {
		if _, err := progress.Connect(t.Context(), wrong, "farol"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
