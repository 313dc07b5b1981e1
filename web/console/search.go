package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/permission"
)

// What a search can be for.
var (
	isUUID   = regexp.MustCompile(`^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)
	isDigest = regexp.MustCompile(`^[0-9a-fA-F]{32,128}$`)
)

// found is what a search has found, by kind.
type found struct {
	Query   string
	Items   []record.WorkItem
	Objects []record.ListedObject
	Files   []record.ListedFile
	Missed  []string // kinds that could not be looked up, and why
}

// None reports whether nothing was found.
func (f found) None() bool {
	return len(f.Items)+len(f.Objects)+len(f.Files) == 0
}

// only is the page of what was found, if that is one record and the text is all of what it was
// looked up by; "": the results are shown.
func (f found) only() string {
	if len(f.Items)+len(f.Objects)+len(f.Files) != 1 || len(f.Missed) > 0 {
		return ""
	}
	for _, one := range f.Items {
		return linkID("items", one.ID)
	}
	for _, one := range f.Files {
		if !strings.Contains(f.Query, "/") || one.Identifier == f.Query {
			return linkID("files", one.ID)
		}
	}
	for _, one := range f.Objects {
		if strings.HasSuffix(one.Identifier, "/"+f.Query) || one.Identifier == f.Query {
			return linkID("objects", one.ID)
		}
	}
	return ""
}

func linkID(kind string, id int64) string { return "/" + kind + "/" + strconv.FormatInt(id, 10) }

// search looks a text up in the indexes that it could be in: four look-ups at most, with ten
// records each. The number of an item leads to the item, and what only one record has, to that.
func search(v *frame.Visit) {
	v.Title = "Search"
	text := strings.TrimSpace(v.URL.Query().Get("q"))
	if n, err := strconv.ParseInt(strings.TrimPrefix(text, "#"), 10, 64); err == nil && n > 0 && v.Holds(permission.ItemsRead) {
		http.Redirect(v.Writer, v.Request, linkID("items", n), http.StatusSeeOther)
		return
	}
	f := found{Query: text}
	if text != "" {
		lookUp(v, &f)
	}
	if to := f.only(); to != "" {
		http.Redirect(v.Writer, v.Request, to, http.StatusSeeOther)
		return
	}
	v.Frame.Show(v, http.StatusOK, "search.html", f)
}

func lookUp(v *frame.Visit, f *found) {
	by := func(name string) url.Values { return url.Values{name: {f.Query}, "limit": {"10"}} }
	switch {
	case isUUID.MatchString(f.Query):
		into(v, f, &f.Files, permission.FilesRead, "files", by("uuid"))
	case isDigest.MatchString(f.Query):
		into(v, f, &f.Files, permission.FilesRead, "files", by("digest"))
	case strings.Contains(f.Query, "/"):
		into(v, f, &f.Objects, permission.ObjectsRead, "objects", by("identifier_prefix"))
		into(v, f, &f.Files, permission.FilesRead, "files", by("identifier_prefix"))
		into(v, f, &f.Items, permission.ItemsRead, "items", by("object"))
	default:
		into(v, f, &f.Items, permission.ItemsRead, "items", by("name"))
		if !strings.HasSuffix(f.Query, ".tar") {
			q := by("name")
			q.Set("name", f.Query+".tar")
			into(v, f, &f.Items, permission.ItemsRead, "items", q)
		}
		if _, own := v.Caller.Scope.Institution(); own != "" {
			q := by("identifier_prefix")
			q.Set("identifier_prefix", own+"/"+f.Query)
			into(v, f, &f.Objects, permission.ObjectsRead, "objects", q)
		}
	}
}

// into adds what one look-up finds, if the person may look there.
func into[T any](v *frame.Visit, f *found, list *[]T, needs permission.Permission, path string, query url.Values) {
	if !v.Holds(needs) {
		return
	}
	part, reason := frame.Optional[frame.List[T]](v, path, query)
	if reason != "" {
		f.Missed = append(f.Missed, path+": "+reason)
		return
	}
	*list = append(*list, part.Items...)
}
