// Package console has the pages on which people look after items, objects and the archive.
//
// A page asks the operations of the REST API for what it shows, within the process, and its
// forms are sent to them. So a page has no rules of its own, and shows nobody more than the
// API does. The pages need no script; with it they are kept up to date.
//
// The package has more than 3,000 lines: a page is a file and a template, and all of them share
// the frame in console.go, visit.go, show.go, do.go and live.go.
package console

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

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

//go:embed pages/*.html assets/*
var files embed.FS

// Pages are the console of a server. They are safe for concurrent use.
type Pages struct {
	api      *api.API
	table    *ops.API
	registry *registry.Registry
	auth     *auth.Auth
	web      *access.Web
	log      *slog.Logger

	sheets    []sheet
	forms     []ops.Row                     // without a form in a template
	templates map[string]*template.Template // by file
	assets    map[string]asset              // by name
	live      *live
	packers   sync.Pool // of gzip.Writer: one takes most of a MiB
	seen      seen      // of staff, for the time that the database is away
}

// sheet is a page, and its line in the list of pages.
type sheet struct {
	Path  string // as the mux has it, such as /items/{id}
	Title string
	Own   string // its title for people of an institution; "": Title
	File  string // its template
	Nav   string // in the list of pages: under this heading; "": it is not in the list
	Key   string // letter that leads to it, behind g; "": none
	Shell string // the command that shows the same; {id} is that of the path, and IDENTIFIER what the page is about

	Needs permission.Permission             // "": any person who has signed in
	Staff bool                              // only for who sees all institutions
	Load  func(*Pages, *visit) (any, error) // what the template shows
}

// New makes the pages of a server. What they show is asked of a table of operations.
func New(a *api.API, t *ops.API) *Pages {
	p := &Pages{
		api: a, table: t, registry: a.Registry, auth: a.Auth, web: a.Web, log: a.Log,
		templates: map[string]*template.Template{}, assets: map[string]asset{},
	}
	p.sheets, p.forms = sheets(), p.unplaced()
	p.live = newLive(a, p.log)
	p.readAssets()
	for _, name := range p.templateNames() {
		p.templates[name] = template.Must(template.New(name).Funcs(p.functions()).ParseFS(files, "pages/layout.html", "pages/parts.html", "pages/"+name))
	}
	return p
}

// templateNames are the files with a page each.
func (p *Pages) templateNames() (list []string) {
	found, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil
	}
	for _, name := range found {
		if name = path.Base(name); name != "layout.html" && name != "parts.html" {
			list = append(list, name)
		}
	}
	return list
}

// Routes adds the pages to a mux.
func (p *Pages) Routes(mux *http.ServeMux) {
	for _, s := range p.sheets {
		mux.Handle("GET "+s.Path, p.page(s))
	}
	mux.HandleFunc("POST /do/{operation}", p.do)
	mux.HandleFunc("POST /proof/{operation}", p.prove)
	mux.HandleFunc("POST /deletions/check", p.checkDeletion)
	mux.HandleFunc("GET /search", p.search)
	mux.HandleFunc("GET /csv/reports/{report}", p.reportCSV)
	mux.HandleFunc("GET /items.csv", p.itemsCSV)
	mux.HandleFunc("GET /items/{id}/explanation.txt", p.explanation)
	mux.HandleFunc("GET /events-stream", p.stream)
	mux.HandleFunc("GET /assets/{name}", p.asset)
}

// Style is the address of the stylesheet of all pages.
func (p *Pages) Style() string { return p.address("console.css") }

func (p *Pages) address(name string) string { return "/assets/" + name + "?v=" + p.assets[name].hash }

// asset is a file that pages need.
type asset struct {
	kind string
	text []byte
	hash string // in its URL, so that browsers keep it until it changes
}

func (p *Pages) readAssets() {
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

func (p *Pages) asset(w http.ResponseWriter, r *http.Request) {
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
	p.send(w, r, http.StatusOK, a.text)
}

// Missing answers a browser that asks for a page that there is not.
func (p *Pages) Missing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := p.visit(w, r)
		if !ok {
			return
		}
		p.problem(v, ops.NotFound())
	})
}

// visit identifies who asks for a page. Others than people who have signed in are led to do
// so, and come back.
func (p *Pages) visit(w http.ResponseWriter, r *http.Request) (*visit, bool) {
	if r.Header.Get("Authorization") != "" {
		reply.Refuse(w, *ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "pages are for browsers; programs use the REST API: GET /api is its reference"))
		return nil, false
	}
	c, err := p.web.Caller(r)
	v := &visit{Request: r, Caller: c, pages: p, w: w}
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
			http.SetCookie(w, p.web.NextCookie(r.URL.RequestURI()))
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil, false
	case !c.Full():
		http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
		return nil, false
	}
	if err := p.table.Limit(w, c); err != nil {
		p.problem(v, err)
		return nil, false
	}
	return v, true
}

// may reports whether a page is for a caller.
func (s sheet) may(c access.Caller) bool {
	return (s.Needs == "" || c.Holds(s.Needs)) && (!s.Staff || c.Scope.All())
}

// titleFor is the title of a page for a caller.
func (s sheet) titleFor(c access.Caller) string {
	if s.Own != "" && !c.Scope.All() {
		return s.Own
	}
	return s.Title
}

// page shows a sheet.
func (p *Pages) page(s sheet) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := p.visit(w, r)
		if !ok {
			return
		}
		v.sheet, v.title = s, s.titleFor(v.Caller)
		if !s.may(v.Caller) {
			p.problem(v, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "this page is for other roles than yours"))
			return
		}
		data, err := s.Load(p, v)
		if err != nil {
			p.problem(v, err)
			return
		}
		p.show(v, http.StatusOK, cmp.Or(v.file, s.File), data)
	})
}

// Commands are the command lines that pages show as "the same in the shell", with {id} and
// IDENTIFIER where a page has those of its record, and {email} where it has that of the person.
func Commands() (list []string) {
	for _, s := range sheets() {
		if s.Shell != "" {
			list = append(list, s.Shell)
		}
	}
	return list
}
