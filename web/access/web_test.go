package access_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
)

// What X-Forwarded-For says counts only as far as proxies that are believed have sent it.
func TestAddressOfWhoAsks(t *testing.T) {
	t.Parallel()
	w := &access.Web{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for name, tc := range map[string]struct{ from, header, want string }{
		"without a proxy":              {"192.0.2.1:5", "", "192.0.2.1"},
		"a header that nobody vouches": {"192.0.2.1:5", "198.51.100.7", "192.0.2.1"},
		"a proxy":                      {"10.0.0.1:5", "198.51.100.7", "198.51.100.7"},
		"a forged hop before":          {"10.0.0.1:5", "203.0.113.9, 198.51.100.7", "198.51.100.7"},
		"two proxies":                  {"10.0.0.1:5", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"},
		"no address":                   {"10.0.0.1:5", "unknown", "10.0.0.1"},
		"IPv6":                         {"[2001:db8::1]:5", "", "2001:db8::1"},
		"IPv4 in IPv6":                 {"[::ffff:10.0.0.1]:5", "198.51.100.7", "198.51.100.7"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tc.from
		if tc.header != "" {
			r.Header.Set("X-Forwarded-For", tc.header)
		}
		if got := w.IP(r).String(); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Cookies over TLS have the prefix that keeps other hosts of the domain from planting one.
func TestCookiesBelongToTheHost(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{true, false} {
		w := &access.Web{Secure: secure}
		for _, c := range []*http.Cookie{w.Cookie("x"), w.NoCookie(), w.DeviceCookie("x"), w.ProviderCookie("x", time.Minute)} {
			if strings.HasPrefix(c.Name, "__Host-") != secure || c.Secure != secure || c.Path != "/" || c.Domain != "" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
				t.Errorf("over TLS %v: %s", secure, c)
			}
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: "farol-device", Value: "planted"})
		r.AddCookie(w.DeviceCookie("own"))
		if got := w.Device(r); secure && got != "own" {
			t.Errorf("the device is %q", got)
		}
	}
}

// Who knows the password of a person but has no second factor uses up nothing of the person's.
func TestHalfSessionIsNotThePerson(t *testing.T) {
	t.Parallel()
	c := access.Caller{Person: people.Person{ID: 7}, Session: record.Session{ID: 1, Level: people.LevelPassword}, IP: netip.MustParseAddr("192.0.2.1")}
	if got := c.ID(); got != "192.0.2.1/32" {
		t.Errorf("with a password only: %s", got)
	}
	c.Session.Level = people.LevelFull
	if got := c.ID(); got != "user 7" {
		t.Errorf("signed in: %s", got)
	}
}
