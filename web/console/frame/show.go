package frame

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
	"github.com/farol-preservation/farol/web/console/words"
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
	Sheet  Sheet
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
	visit *Visit
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
func (p *Frame) nav(c access.Caller, current string) (list []group) {
	here := ""
	for _, s := range p.sheets { // the page itself, or else the nearest that it lies below
		path := s.listed()
		if s.Nav != "" && len(path) > len(here) && (current == path || path != "/" && strings.HasPrefix(current, path+"/")) {
			here = path
		}
	}
	for _, s := range p.sheets {
		if s.Nav == "" || !s.May(c) {
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
func (s Sheet) listed() string { return strings.TrimSuffix(s.Path, "{$}") }

// Show answers with a page. It is made whole before, so that a page is never cut by an error.
func (p *Frame) Show(v *Visit, status int, file string, data any) {
	s := screen{
		Title: v.Title, Person: v.Caller.Person, Sheet: v.Sheet, Nav: p.nav(v.Caller, v.URL.Path), Data: data, visit: v,
		Search: v.URL.Query().Get("q"), Style: v.Style, Here: v.URL.RequestURI(), Watch: v.Watch.Address(), Every: v.Every,
		Shell: v.shell(), Assets: map[string]string{}, Scheme: v.Caller.Person.Scheme, Done: p.takeDone(v),
	}
	if status == http.StatusOK { // what there is not looks the same at all times
		s.Now, s.Acts = time.Now().UnixMilli(), p.acts(v)
	}
	if v.Caller.Full() && v.Style != "wall" && status != http.StatusServiceUnavailable {
		s.Alerts = v.Unread()
	}
	for name := range p.assets {
		s.Assets[name] = p.address(name)
	}
	var b bytes.Buffer
	if err := pages()[file].ExecuteTemplate(&b, "layout", &s); err != nil {
		p.log.ErrorContext(v.Context(), "cannot make a page", "page", file, "err", err)
		http.Error(v.Writer, "Farol cannot show this page now. Try again in a moment.", http.StatusInternalServerError)
		return
	}
	v.Writer.Header().Set("Content-Security-Policy", strings.Replace(policy, "connect-src 'self'", strings.TrimSpace("connect-src 'self' "+v.Connect), 1))
	v.Writer.Header().Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
	v.Writer.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.Send(v.Writer, v.Request, status, b.Bytes())
}

// leastPacked is how many bytes are worth compressing.
const leastPacked = 1 << 10

// Send answers with a text, compressed if the browser takes that (RFC 9110, section 12.5.3).
func (p *Frame) Send(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(text) >= leastPacked && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		text = p.packed(text)
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(text) //nolint:errcheck // a browser that is gone reads nothing; html/template has escaped what is HTML
	}
}

// packed is a text compressed. A page has no secret that an attacker could guess by its size:
// the secrets of a session are in no page, and an answer that has one is sent as it is.
func (p *Frame) packed(text []byte) []byte {
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
func (v *Visit) shell() string {
	return strings.NewReplacer("{id}", v.PathValue("id"), "{email}", v.Caller.Person.Email).Replace(v.Sheet.Shell)
}

// Problem answers with what is wrong, and what to do about it.
func (p *Frame) Problem(v *Visit, err error) {
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
	if v.Title = titles[found.Code]; v.Title == "" {
		v.Title = "This did not work"
	}
	if found.RetryAfter != "" {
		v.Writer.Header().Set("Retry-After", found.RetryAfter)
	}
	p.Show(v, found.Status, "problem.html", map[string]any{
		"Detail": words.Sentence(found.Detail), "Next": words.AdviceOn(found), "Code": found.Code, "Errors": found.Errors,
		"Again": found.Status >= http.StatusInternalServerError || found.RetryAfter != "",
	})
}

// away answers while the database cannot be asked.
func (p *Frame) away(v *Visit) {
	v.Title = "Farol cannot answer now"
	v.Writer.Header().Set("Retry-After", "5")
	p.Show(v, http.StatusServiceUnavailable, "problem.html", map[string]any{
		"Code":   ops.CodeTryLater,
		"Again":  true,
		"Detail": "The database does not answer. Nothing is lost: items wait where they are, and workers go on when it is back. Try again in a moment.",
	})
}

// Unread is how many alerts a person has not read.
func (v *Visit) Unread() string {
	if v.alerts == nil {
		v.alerts = new(v.countUnread())
	}
	return *v.alerts
}

func (v *Visit) countUnread() string {
	found, reason := Optional[List[struct{}]](v, "alerts", url.Values{"unread": {"true"}, "limit": {"9"}})
	switch {
	case reason != "" || len(found.Items) == 0:
		return ""
	case found.Next != nil:
		return "9+"
	}
	return strconv.Itoa(len(found.Items))
}
