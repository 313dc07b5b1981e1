// Package frame is what all pages of the console share. In comes what a page shows, as data for
// its template; out goes the page with all around it: who looks, the list of pages, what was
// just done, the forms that are made of operations. It asks the operations of the REST API in
// the name of the person, carries out forms, and knows no page.
package frame

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/console/live"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

//go:embed pages/*.html assets/*
var files embed.FS

// Frame serves the pages of a server. It is safe for concurrent use.
type Frame struct {
	API   *api.API    // its settings
	Table *ops.API    // the operations that pages ask
	Web   *access.Web // who asks

	auth *auth.Auth
	log  *slog.Logger

	sheets  []Sheet
	routes  []Route
	forms   []ops.Row        // without a form in a template
	assets  map[string]asset // by name
	live    *live.Live
	packers sync.Pool // of gzip.Writer: one takes most of a MiB
	seen    seen      // of staff, for the time that the database is away
}

// Sheet is a page, and its line in the list of pages.
type Sheet struct {
	Path  string // as the mux has it, such as /items/{id}
	Title string
	Own   string // its title for people of an institution; "": Title
	File  string // its template
	Nav   string // in the list of pages: under this heading; "": it is not in the list
	Key   string // letter that leads to it, behind g; "": none
	Shell string // the command that shows the same; {id} is that of the path, and IDENTIFIER what the page is about

	Needs permission.Permission     // "": any person who has signed in
	Staff bool                      // only for who sees all institutions
	Load  func(*Visit) (any, error) // what the template shows
}

// Route is what answers other requests of people who have signed in than for a page.
type Route struct {
	Pattern string // as the mux has it
	Serve   func(*Visit)
}

// New makes the frame for the pages of a server. What they show is asked of a table of operations.
func New(a *api.API, t *ops.API, sheets []Sheet, routes []Route) *Frame {
	p := &Frame{
		API: a, Table: t, auth: a.Auth, Web: a.Web, log: a.Log, sheets: sheets, routes: routes, live: live.New(a, t),
		assets: map[string]asset{},
	}
	p.forms = p.unplaced()
	p.readAssets()
	pages() // one that is wrong panics here, and not when a person opens it
	return p
}

// pageFiles are those of the pages, with what they share.
func pageFiles() []string {
	list, _ := fs.Glob(files, "pages/*.html") // its error is one of the pattern
	return list
}

// pages are the templates by file, which hold nothing of a server.
var pages = sync.OnceValue(func() map[string]*template.Template { //nolint:gochecknoglobals // made once
	list := map[string]*template.Template{}
	for _, file := range pageFiles() {
		if name := path.Base(file); name != "layout.html" && name != "parts.html" {
			list[name] = template.Must(template.New(name).Funcs(functions()).ParseFS(files, "pages/layout.html", "pages/parts.html", file))
		}
	}
	return list
})

// Routes adds the pages to a mux.
func (p *Frame) Routes(mux *http.ServeMux) {
	for _, s := range p.sheets {
		mux.Handle("GET "+s.Path, p.page(s))
	}
	mux.HandleFunc("POST /do/{operation}", p.do)
	mux.HandleFunc("POST /proof/{operation}", p.prove)
	for _, r := range p.routes {
		mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, req *http.Request) {
			if v, ok := p.visit(w, req); ok {
				r.Serve(v)
			}
		})
	}
	mux.Handle("GET /events-stream", p.live)
	mux.HandleFunc("GET /assets/{name}", p.asset)
}

// Style is the address of the stylesheet of all pages.
func (p *Frame) Style() string { return p.address("console.css") }

func (p *Frame) address(name string) string { return "/assets/" + name + "?v=" + p.assets[name].hash }

// asset is a file that pages need.
type asset struct {
	kind string
	text []byte
	hash string // in its URL, so that browsers keep it until it changes
}

func (p *Frame) readAssets() {
	found, err := fs.Glob(files, "assets/*")
	if err != nil {
		return
	}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	for _, name := range found {
		text, err := files.ReadFile(name)
		if err != nil {
			continue
		}
		text = trimmed(path.Ext(name), text)
		sum := sha256.Sum256(text)
		p.assets[path.Base(name)] = asset{kinds[path.Ext(name)], text, hex.EncodeToString(sum[:6])}
	}
}

// trimmed leaves out of a style or a script what browsers do not need.
func trimmed(kind string, text []byte) []byte {
	switch kind {
	case ".css":
		text = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(text, nil)
		return regexp.MustCompile(`\s*([{};]|\n)\s*`).ReplaceAll(text, []byte("$1"))
	case ".js":
		return regexp.MustCompile(`(?m)^\s+|^\s*//.*\n`).ReplaceAll(text, nil)
	}
	return text
}

func (p *Frame) asset(w http.ResponseWriter, r *http.Request) {
	a, found := p.assets[r.PathValue("name")]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Del("Vary")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if r.URL.Query().Get("v") != a.hash { // of another version of the program, or asked for by hand
		w.Header().Set("Cache-Control", "no-cache")
	}
	p.Send(w, r, http.StatusOK, a.text)
}

// Missing answers a browser that asks for a page that there is not.
func (p *Frame) Missing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := p.visit(w, r)
		if !ok {
			return
		}
		p.Problem(v, ops.NotFound())
	})
}

// visit identifies who asks for a page. Others than people who have signed in are led to do
// so, and come back.
func (p *Frame) visit(w http.ResponseWriter, r *http.Request) (*Visit, bool) {
	if r.Header.Get("Authorization") != "" {
		reply.Refuse(w, *ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "pages are for browsers; programs use the REST API: GET /api is its reference"))
		return nil, false
	}
	c, err := p.Web.Caller(r)
	v := &Visit{Request: r, Caller: c, Frame: p, Writer: w}
	switch {
	case err != nil:
		p.log.WarnContext(r.Context(), "cannot find out who asks for a page; the person is asked to try again", "err", err)
		if !p.lastNow(v) {
			p.away(v)
		}
		return nil, false
	case !c.Browser():
		to := "/sign-in"
		if r.Method == http.MethodGet && r.URL.Path != "/" && strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.SetCookie(w, p.Web.NextCookie(r.URL.RequestURI()))
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil, false
	case !c.Full():
		http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
		return nil, false
	}
	if err := p.Table.Limit(w, c); err != nil {
		p.Problem(v, err)
		return nil, false
	}
	return v, true
}

// May reports whether a page is for a caller.
func (s Sheet) May(c access.Caller) bool {
	return (s.Needs == "" || c.Holds(s.Needs)) && (!s.Staff || c.Scope.All())
}

// titleFor is the title of a page for a caller.
func (s Sheet) titleFor(c access.Caller) string {
	if s.Own != "" && !c.Scope.All() {
		return s.Own
	}
	return s.Title
}

// page shows a sheet.
func (p *Frame) page(s Sheet) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := p.visit(w, r)
		if !ok {
			return
		}
		v.Sheet, v.Title = s, s.titleFor(v.Caller)
		if !s.May(v.Caller) {
			p.Problem(v, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "this page is for other roles than yours"))
			return
		}
		data, err := s.Load(v)
		if err != nil {
			p.Problem(v, err)
			return
		}
		p.Show(v, http.StatusOK, cmp.Or(v.File, s.File), data)
	})
}
