package settings

import (
	"strings"
	"testing"
)

func TestOpenIDProviders(t *testing.T) {
	t.Parallel()
	base := map[string]string{"FAROL_DATABASE_URL": "postgres://127.0.0.1:1/farol", "FAROL_WEB_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}
	load := func(more map[string]string) (Server, error) {
		t.Helper()
		environ := map[string]string{}
		for _, m := range []map[string]string{base, more} {
			for k, v := range m {
				environ[k] = v
			}
		}
		return Load(environ, Server{API: &API{}})
	}
	c, err := load(map[string]string{
		"FAROL_OIDC_TEST_EDU_ISSUER": "https://login.test.edu/realms/a", "FAROL_OIDC_TEST_EDU_CLIENT_ID": "farol", "FAROL_OIDC_TEST_EDU_CLIENT_SECRET": "s",
		"FAROL_OIDC_TEST_EDU_DOMAINS": "Test.edu, mail.test.edu", "FAROL_OIDC_TEST_EDU_INSTITUTION": "test.edu",
		"FAROL_OIDC_A_ISSUER": "http://127.0.0.1:8080", "FAROL_OIDC_A_CLIENT_ID": "x", "FAROL_OIDC_A_DOMAINS": "archive.org", "FAROL_OIDC_A_TRUST_MFA": "on",
	})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Web.Providers()
	if len(p) != 2 || p[0].Name != "a" || p[0].TrustMFA != "on" || p[1].Name != "test-edu" || p[1].TrustMFA != "off" || p[1].Institution != "test.edu" ||
		strings.Join(p[1].DomainList(), " ") != "test.edu mail.test.edu" || string(p[1].Secret) != "s" {
		t.Errorf("%+v", p)
	}
	good := map[string]string{"FAROL_OIDC_A_ISSUER": "https://a.example", "FAROL_OIDC_A_CLIENT_ID": "x", "FAROL_OIDC_A_DOMAINS": "archive.org"}
	for name, value := range map[string]string{
		"FAROL_OIDC_A_ISSUER": "http://a.example", "FAROL_OIDC_A_CLIENT_ID": "", "FAROL_OIDC_A_DOMAINS": "*", "FAROL_OIDC_A_TRUST_MFA": "yes",
		"FAROL_OIDC_A_SECRET": "x", "FAROL_OIDC_ISSUER": "https://a.example",
	} {
		more := map[string]string{}
		for k, v := range good {
			more[k] = v
		}
		more[name] = value
		if _, err := load(more); err == nil || !strings.Contains(err.Error(), "\n  "+name+" ") {
			t.Errorf("%s=%q: %v", name, value, err)
		}
	}
}
