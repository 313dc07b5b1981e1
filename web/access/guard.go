package access

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Guard refuses what no program sends that means to use an API, before any handler. A page
// in a browser can send requests to any address that the browser reaches, loopback too; but
// it names its origin, cannot choose the host, and cannot send JSON to another origin
// without asking first.
type Guard struct {
	Hosts   []string // names, without ports, under which the server is reached; loopback always is
	AnyHost bool     // no name is known: the server listens on other than loopback, and has no URL
}

// Refused reports why a request is refused; nil: it is not.
func (g Guard) Refused(r *http.Request) *Error {
	host := nameOf(r.Host)
	if !g.AnyHost && !isLoopback(r.Host) && !slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return &Error{http.StatusForbidden, "this server is not reached under the name " + quoted(host) + "; set FAROL_WEB_URL to the URL that people use"}
	}
	if from := r.Header.Get("Origin"); from != "" && !sameOrigin(from, r) {
		return &Error{http.StatusForbidden, "a page of another origin may not use this server"}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return &Error{http.StatusForbidden, "a page of another site may not use this server"}
	}
	if changes(r.Method) && r.Header.Get("Sec-Fetch-Site") != "" && r.Header.Get("Sec-Fetch-Site") != "same-origin" && r.Header.Get("Sec-Fetch-Site") != "none" {
		return &Error{http.StatusForbidden, "a page of another origin may not change anything here"}
	}
	return nil
}

// JSONOnly refuses a body that is not said to be JSON.
func JSONOnly(r *http.Request) *Error {
	if !changes(r.Method) || r.ContentLength == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return &Error{http.StatusUnsupportedMediaType, "the body must be JSON, with the header Content-Type: application/json"}
	}
	return nil
}

func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// sameOrigin reports whether an Origin is that under which the request came. The scheme is
// not compared: a proxy may have ended TLS.
func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func nameOf(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}

func quoted(name string) string {
	if len(name) > 100 {
		name = name[:100]
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name) + `"`
}

// forwarded are the addresses in X-Forwarded-For, in their order.
func forwarded(r *http.Request) (list []string) {
	for _, line := range r.Header.Values("X-Forwarded-For") {
		for hop := range strings.SplitSeq(line, ",") {
			list = append(list, strings.TrimSpace(hop))
		}
	}
	if len(list) > 20 {
		list = list[len(list)-20:]
	}
	return list
}
