package settings

import (
	"encoding/base64"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/storage"
)

// Web is the server for people: the REST API, and signing in.
type Web struct {
	Addr    string         `env:"FAROL_WEB_ADDR" envDefault:"127.0.0.1:4181" is:"host:port" doc:"Address of the REST API and of the pages. On any address but a loopback one it needs TLS, here or at a proxy"`
	Key     storage.Secret `env:"FAROL_WEB_KEY" is:"32 random bytes in base64, or two such keys separated by a comma" doc:"Key that seals second factors in the database. The first of two keys seals, both open"`
	Cert    string         `env:"FAROL_WEB_TLS_CERT" is:"the path of a PEM file" doc:"Certificate of the server, with its chain"`
	CertKey string         `env:"FAROL_WEB_TLS_KEY" is:"the path of a PEM file" doc:"Private key of that certificate"`
	Costs   string         `env:"FAROL_WEB_MEMBER_COSTS" envDefault:"off" is:"on or off" oneof:"on off" doc:"Access of institutional admins to the report of costs. Staff and auditors have it in any case"`
	Proxies string         `env:"FAROL_WEB_PROXIES" is:"addresses or networks such as 10.0.0.0/8, separated by commas" doc:"Proxies whose X-Forwarded-For is believed, and which end TLS"`

	S3Endpoint string `env:"FAROL_WEB_S3_ENDPOINT" is:"an http(s) URL" doc:"S3 service of the receiving buckets under the name by which browsers reach it. Without it, FAROL_S3_ENDPOINT"`
	NSQAdmin   string `env:"FAROL_NSQADMIN_URL" is:"an http(s) URL" doc:"URL of nsqadmin as browsers reach it, to which the page of the mirror links"`

	PlanAlone int `env:"FAROL_PLAN_SECOND" envDefault:"1000" min:"0" doc:"Number of items that a plan over the REST API may change without a second person's approval"`

	site      Site
	keyFile   file
	proxies   []netip.Prefix
	providers []Provider
}

// CurrentKey is the key that counts now: it may have been replaced by two, whose second it is.
func (c *Web) CurrentKey() string { return c.keyFile.now(c.Key) }

// Site is where people find the server.
type Site struct {
	WebURL string `env:"FAROL_WEB_URL" is:"an https URL such as https://farol.example.org" doc:"Public URL of the server for people, which links lead to. Without it, mail has no links"`
}

// Base is the URL that links begin with, without a slash at its end.
func (c *Web) Base() string {
	switch {
	case c.site.WebURL != "":
		return strings.TrimRight(c.site.WebURL, "/")
	case c.Cert != "":
		return "https://" + c.Addr
	}
	return "http://" + c.Addr
}

// Origin is what a browser calls the pages of the server, such as https://farol.example.org; ""
// if FAROL_WEB_URL is not set.
func (c Site) Origin() string {
	u, err := url.Parse(c.WebURL)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Host is the name under which people reach the server, without a port; "" if no URL says.
func (c *Web) Host() string {
	u, err := url.Parse(c.site.WebURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Secure reports whether browsers come by TLS.
func (c *Web) Secure() bool { return c.Cert != "" || strings.HasPrefix(c.site.WebURL, "https://") }

// Trusted are the proxies that are believed.
func (c *Web) Trusted() []netip.Prefix { return c.proxies }

// Providers are the OpenID providers that sign people in.
func (c *Web) Providers() []Provider { return c.providers }

// check says what belongs together.
func (c *Web) check(s *reader) {
	s.read(&c.site)
	c.keyFile = s.file("FAROL_WEB_KEY")
	if (c.Cert == "") != (c.CertKey == "") {
		s.wrong("FAROL_WEB_TLS_KEY", "and FAROL_WEB_TLS_CERT belong together; set both, or neither")
	}
	s.readProxies(c)
	host, _, err := net.SplitHostPort(c.Addr)
	switch {
	case err != nil: // said of the field
	case !loopback(host) && c.Cert == "" && len(c.proxies) == 0:
		s.wrong("FAROL_WEB_ADDR", "is "+strconv.Quote(c.Addr)+", which other machines reach, and passwords would come unencrypted: "+
			"set FAROL_WEB_TLS_CERT and FAROL_WEB_TLS_KEY, or put a proxy in front that ends TLS, and name it in FAROL_WEB_PROXIES")
	case len(c.proxies) > 0 && c.site.WebURL == "":
		s.wrong("FAROL_WEB_URL", "is not set, although FAROL_WEB_PROXIES is; it must be "+allowed(&c.site, "WebURL"))
	}
	if c.Key != "" {
		s.checkKey(c)
	}
}

func (s *reader) readProxies(c *Web) {
	for part := range strings.SplitSeq(c.Proxies, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if ip, addrErr := netip.ParseAddr(part); err != nil && addrErr == nil {
			p, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			s.wrong("FAROL_WEB_PROXIES", "has "+strconv.Quote(part)+"; it must be "+allowed(c, "Proxies"))
		}
		c.proxies = append(c.proxies, p)
	}
}

func (s *reader) checkKey(c *Web) {
	for part := range strings.SplitSeq(string(c.Key), ",") {
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(part)); err != nil || len(b) != 32 {
			s.wrong("FAROL_WEB_KEY", "is not set, or is no key; it must be "+allowed(c, "Key")+". `openssl rand -base64 32` makes one; keep it, for second factors are lost without it")
			return
		}
	}
}

func (c *Site) check(s *reader) {
	if c.WebURL == "" {
		return
	}
	if why := wrongWebURL(c.WebURL); why != "" {
		s.wrong("FAROL_WEB_URL", "is "+strconv.Quote(c.WebURL)+", "+why+"; it must be "+allowed(c, "WebURL"))
	}
}
