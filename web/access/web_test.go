package access_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"

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
