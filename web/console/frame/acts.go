package frame

import (
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/farol-preservation/farol/web/ops"
)

// act is a form that is made of an operation's row.
type act struct {
	ops.Row

	Record map[string]string // values of its path, which the page has
}

// formOf finds the operations that a template has a form for.
var formOf = regexp.MustCompile(`/do/([a-z]+\.[a-z_]+)`)

// unplaced are the operations that change something, and that no page has a form for. They get
// one on the page of the record that they are about.
func (p *Frame) unplaced() (list []ops.Row) {
	placed := map[string]bool{}
	for _, file := range pageFiles() {
		text, _ := files.ReadFile(file) // it is there
		for _, found := range formOf.FindAllSubmatch(text, -1) {
			placed[string(found[1])] = true
		}
	}
	for _, row := range p.Table.Rows() {
		if row.Command != "" && row.Changes() && !placed[row.ID] {
			list = append(list, row)
		}
	}
	return list
}

// acts are the forms of a page that are made of rows: those about its record which the person
// may send.
func (p *Frame) acts(v *Visit) (list []act) {
	for _, row := range p.forms {
		if p.pageOf(row) != v.Sheet.Path || !row.Admits(v.Caller) {
			continue
		}
		a := act{Row: row, Record: map[string]string{}}
		for _, f := range row.Fields {
			if f.In == "path" {
				a.Record[f.Name] = v.PathValue(f.Name)
			}
		}
		list = append(list, a)
	}
	return list
}

// pageOf is the page of the record that an operation is about: that with the longest part of its
// path.
func (p *Frame) pageOf(row ops.Row) string {
	for at := strings.TrimPrefix(row.Path, "/api/v1"); at != "/"; at = path.Dir(at) {
		for _, s := range p.sheets {
			if s.Path == at {
				return at
			}
		}
	}
	return ""
}

// Asked are the fields that a person fills in.
func (a act) Asked() (list []ops.Field) {
	for _, f := range a.Fields {
		if f.In == "body" || f.In == "query" && a.Method == http.MethodDelete {
			list = append(list, f)
		}
	}
	return list
}
