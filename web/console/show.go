package console

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/reply"
)

// policy is what a browser may load and run on a page. Scripts and styles are ours and not
// within pages, and a script makes elements of text by the policy farol only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types farol"

// screen is what the layout shows around a page.
type screen struct {
	Title  string
	Person people.Person
	Nav    []group
	Sheet  sheet
	Done   *done  // what was just done
	Acts   []act  // forms that are made of operations
	Alerts string // how many are unread; "": none
	Shell  string // the command that shows the same
	Search string
	Watch  string // what the page is kept up to date of, as the address of its stream
	Every  int    // after so many seconds the page is fetched again; 0: it is not
	Style  string
	Here   string // address of the page, to come back to
	Scheme string // light, dark, or "" for that of the system
	Now    int64  // of the server, in milliseconds since 1970
	Assets map[string]string

	Data  any
	visit *visit
}

// group is a heading in the list of pages.
type group struct {
	Name   string
	Sheets []link
}

// link leads to a page.
type link struct {
	Path, Title, Key string
	Current          bool
}

// nav is the list of pages that a person may see.
func (p *Pages) nav(c access.Caller, current string) (list []group) {
	here := ""
	for _, s := range p.sheets { // the page itself, or else the nearest that it lies below
		path := s.listed()
		if s.Nav != "" && len(path) > len(here) && (current == path || path != "/" && strings.HasPrefix(current, path+"/")) {
			here = path
		}
	}
	for _, s := range p.sheets {
		if s.Nav == "" || !s.may(c) {
			continue
		}
		i := slices.IndexFunc(list, func(g group) bool { return g.Name == s.Nav })
		if i < 0 {
			i, list = len(list), append(list, group{Name: s.Nav})
		}
		list[i].Sheets = append(list[i].Sheets, link{s.listed(), s.titleFor(c), s.Key, s.listed() == here})
	}
	return list
}

// listed is the address of a page in the list of pages.
func (s sheet) listed() string { return strings.TrimSuffix(s.Path, "{$}") }

// show answers with a page. It is made whole before, so that a page is never cut by an error.
func (p *Pages) show(v *visit, status int, file string, data any) {
	s := screen{
		Title: v.title, Person: v.Caller.Person, Sheet: v.sheet, Nav: p.nav(v.Caller, v.URL.Path), Data: data, visit: v,
		Search: v.URL.Query().Get("q"), Style: v.style, Here: v.URL.RequestURI(), Watch: v.watch.address(), Every: v.every,
		Shell: v.shell(), Assets: map[string]string{}, Scheme: v.Caller.Person.Scheme, Done: p.takeDone(v),
	}
	if status == http.StatusOK { // what there is not looks the same at all times
		s.Now, s.Acts = time.Now().UnixMilli(), p.acts(v)
	}
	if v.Caller.Full() && v.style != "wall" && status != http.StatusServiceUnavailable {
		s.Alerts = p.unread(v)
	}
	for name := range p.assets {
		s.Assets[name] = p.address(name)
	}
	var b bytes.Buffer
	t := p.templates[file]
	if err := t.ExecuteTemplate(&b, "layout", &s); err != nil {
		p.log.ErrorContext(v.Context(), "cannot make a page", "page", file, "err", err)
		http.Error(v.w, "Farol cannot show this page now. Try again in a moment.", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Security-Policy", strings.Replace(policy, "connect-src 'self'", strings.TrimSpace("connect-src 'self' "+v.connect), 1))
	v.w.Header().Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.send(v.w, v.Request, status, b.Bytes())
}

// leastPacked is how many bytes are worth compressing.
const leastPacked = 1 << 10

// send answers with a text, compressed if the browser takes that (RFC 9110, section 12.5.3).
func (p *Pages) send(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(text) >= leastPacked && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		text = p.packed(text)
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(text) //nolint:errcheck,gosec // a browser that is gone reads nothing; html/template has escaped what is HTML
	}
}

// packed is a text compressed. A page has no secret that an attacker could guess by its size:
// the secrets of a session are in no page, and an answer that has one is sent as it is.
func (p *Pages) packed(text []byte) []byte {
	var b bytes.Buffer
	z, kept := p.packers.Get().(*gzip.Writer)
	if !kept {
		z = gzip.NewWriter(nil)
	}
	defer p.packers.Put(z)
	z.Reset(&b)
	z.Write(text) //nolint:errcheck // to memory
	z.Close()     //nolint:errcheck // to memory
	return b.Bytes()
}

// shell is the command that shows the same as a page.
func (v *visit) shell() string {
	return strings.NewReplacer("{id}", v.PathValue("id"), "{email}", v.Caller.Person.Email).Replace(v.sheet.Shell)
}

// problem answers with what is wrong, and what to do about it.
func (p *Pages) problem(v *visit, err error) {
	var found *reply.Problem
	if !errors.As(err, &found) {
		p.log.WarnContext(v.Context(), "cannot show a page; the person is asked to try again", "page", v.URL.Path, "err", err)
		p.away(v)
		return
	}
	titles := map[string]string{
		ops.CodeNotFound: "There is no such record", ops.CodeNotAllowed: "Not for your role", ops.CodeTooBroad: "Too broad",
		ops.CodeTryLater: "Not now", ops.CodeRateLimited: "Too often", ops.CodeChanged: "It has changed since",
	}
	if v.title = titles[found.Code]; v.title == "" {
		v.title = "This did not work"
	}
	if found.RetryAfter != "" {
		v.w.Header().Set("Retry-After", found.RetryAfter)
	}
	p.show(v, found.Status, "problem.html", map[string]any{
		"Detail": sentence(found.Detail), "Next": adviceOn(found), "Code": found.Code, "Errors": found.Errors,
		"Again": found.Status >= http.StatusInternalServerError || found.RetryAfter != "",
	})
}

// away answers while the database cannot be asked.
func (p *Pages) away(v *visit) {
	v.title = "Farol cannot answer now"
	v.w.Header().Set("Retry-After", "5")
	p.show(v, http.StatusServiceUnavailable, "problem.html", map[string]any{
		"Code":   ops.CodeTryLater,
		"Again":  true,
		"Detail": "The database does not answer. Nothing is lost: items wait where they are, and workers go on when it is back. Try again in a moment.",
	})
}

// sentence is a detail of a problem as a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text
}

// unread is how many alerts a person has not read.
func (p *Pages) unread(v *visit) string {
	if v.alerts == nil {
		v.alerts = new(p.countUnread(v))
	}
	return *v.alerts
}

func (*Pages) countUnread(v *visit) string {
	found, reason := optional[listOf[struct{}]](v, "alerts", url.Values{"unread": {"true"}, "limit": {"9"}})
	switch {
	case reason != "" || len(found.Items) == 0:
		return ""
	case found.Next != nil:
		return "9+"
	}
	return strconv.Itoa(len(found.Items))
}
