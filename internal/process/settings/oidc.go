package settings

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/storage"
)

// OIDC is an OpenID provider that signs people in. The names begin with FAROL_OIDC_<NAME>_.
type OIDC struct {
	Issuer      string         `env:"ISSUER" is:"an https URL" doc:"Issuer, as it names itself in /.well-known/openid-configuration below that URL. Register FAROL_WEB_URL/oidc/NAME/callback there as the redirect URI, with the name in lower case and hyphens for underscores"`
	ClientID    string         `env:"CLIENT_ID" is:"a client ID" doc:"Client that Farol is there"`
	Secret      storage.Secret `env:"CLIENT_SECRET" is:"a client secret" doc:"Secret of that client. Without it, the client is a public one"`
	Institution string         `env:"INSTITUTION" is:"the identifier of an institution" doc:"Institution whose people may sign in there. Without it, people of all institutions and the staff"`
	Domains     string         `env:"DOMAINS" is:"domains such as test.edu, separated by commas" doc:"Domains of verified e-mail addresses by which people are found at their first sign-in there"`
	TrustMFA    string         `env:"TRUST_MFA" envDefault:"off" is:"on or off" oneof:"on off" doc:"Acceptance of a second factor there (amr or acr) as one here"`
}

// Provider is an OpenID provider with its name.
type Provider struct {
	OIDC

	Name string // in lower case, such as test-edu
	file file
}

// CurrentSecret is that of a sign-in that is to be completed now.
func (p Provider) CurrentSecret() string { return p.file.now(p.Secret) }

// DomainList are the domains in lower case.
func (p Provider) DomainList() []string {
	return strings.FieldsFunc(strings.ToLower(p.Domains), func(r rune) bool { return r == ',' || r == ' ' })
}

// providerName matches the settings of an OpenID provider.
var providerName = regexp.MustCompile(`^FAROL_OIDC_([A-Z0-9]+(?:_[A-Z0-9]+)*)_(ISSUER|CLIENT_ID|CLIENT_SECRET|INSTITUTION|DOMAINS|TRUST_MFA)(_FILE)?$`)

// readProviders reads all OpenID providers that are named.
func (s *reader) readProviders() (list []Provider) {
	prefixes := map[string]bool{}
	for name, value := range s.environ {
		if m := providerName.FindStringSubmatch(name); m != nil && value != "" {
			prefixes[m[1]] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(prefixes)) {
		p, prefix := Provider{Name: strings.ToLower(strings.ReplaceAll(name, "_", "-"))}, "FAROL_OIDC_"+name+"_"
		s.readBlock(prefix, &p.OIDC)
		p.file = s.file(prefix + "CLIENT_SECRET")
		for _, f := range []struct{ value, name, field string }{{p.Issuer, "ISSUER", "Issuer"}, {p.ClientID, "CLIENT_ID", "ClientID"}, {p.Domains, "DOMAINS", "Domains"}} {
			if f.value == "" {
				s.wrong(prefix+f.name, "is not set, although other settings of this provider are; it must be "+allowed(&p.OIDC, f.field))
			}
		}
		if why := wrongIssuer(p.Issuer); why != "" {
			s.wrong(prefix+"ISSUER", "is "+strconv.Quote(p.Issuer)+", "+why+"; it must be "+allowed(&p.OIDC, "Issuer"))
		}
		for _, domain := range p.DomainList() {
			if strings.ContainsAny(domain, "@*/:") || !strings.Contains(domain, ".") {
				s.wrong(prefix+"DOMAINS", "has "+strconv.Quote(domain)+"; it must be "+allowed(&p.OIDC, "Domains"))
			}
		}
		list = append(list, p)
	}
	return list
}

// wrongIssuer says what is wrong with an issuer; "" if nothing is.
func wrongIssuer(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return ""
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "which is no address"
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	}
	return "which is not encrypted"
}
