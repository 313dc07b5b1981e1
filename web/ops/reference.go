package ops

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The reference is a page without scripts that has what the OpenAPI document has.
var (
	//go:embed reference.html
	referencePage string
)

// referenceRow is an operation on the page.
type referenceRow struct {
	*huma.Operation

	Needs string // who may, in a sentence
	Body  []referenceField
	Reply []referenceField
}

// referenceField is a part of a request or an answer.
type referenceField struct{ Name, Type, About string }

// reference serves the page. It is made once: the table does not change.
func (a *API) reference() {
	var page bytes.Buffer
	groups := map[string][]referenceRow{}
	for _, item := range a.huma.OpenAPI().Paths {
		for _, o := range operationsOf(item) {
			groups[o.Tags[0]] = append(groups[o.Tags[0]], a.row(o))
		}
	}
	for _, rows := range groups {
		slices.SortFunc(rows, func(x, y referenceRow) int { return strings.Compare(x.Path+x.Method, y.Path+y.Method) })
	}
	t := template.Must(template.New("reference").Parse(referencePage))
	if err := t.Execute(&page, groups); err != nil {
		a.log.Error("cannot make the reference page; the OpenAPI document has the same", "err", err)
	}
	a.mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page.Bytes()) //nolint:errcheck // a reader who is gone reads nothing
	})
}

func (a *API) row(o *huma.Operation) referenceRow {
	r := referenceRow{Operation: o, Needs: "Without signing in."}
	if d, ok := o.Metadata["operation"].(Operation); ok {
		r.Needs = d.who()
	}
	if o.RequestBody != nil {
		r.Body = a.fields(o.RequestBody.Content)
	}
	for status, answer := range o.Responses {
		if strings.HasPrefix(status, "2") {
			r.Reply = a.fields(answer.Content)
		}
	}
	return r
}

func (a *API) fields(content map[string]*huma.MediaType) (list []referenceField) {
	media := content["application/json"]
	if media == nil {
		return nil
	}
	schema := a.resolved(media.Schema)
	for name, p := range schema.Properties {
		f := referenceField{Name: name, Type: a.typeOf(p), About: p.Description}
		list = append(list, f)
	}
	slices.SortFunc(list, func(x, y referenceField) int { return strings.Compare(x.Name, y.Name) })
	return list
}

func (a *API) resolved(s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return a.huma.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return &huma.Schema{}
	}
	return s
}

func (a *API) typeOf(s *huma.Schema) string {
	named := func(s *huma.Schema) string {
		if s.Ref != "" {
			return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
		}
		return s.Type
	}
	if len(s.AnyOf) > 0 { // a record or null, as nullable makes it
		return named(s.AnyOf[0]) + " or null"
	}
	text := named(s)
	if s.Type == huma.TypeArray && s.Items != nil {
		text = "list of " + named(s.Items)
	}
	if s.Format != "" && s.Format != "int64" && s.Format != "int32" && s.Format != "double" {
		text += ", " + s.Format
	}
	if s.Nullable {
		text += " or null"
	}
	return text
}

// who is who may carry out an operation, in a sentence.
func (o Operation) who() string {
	var text string
	switch o.Access {
	case Anyone:
		return "Without signing in."
	case Half:
		text = "Signed in, also while a second factor is due"
	case SignedIn:
		text = "Signed in"
	case Holders:
		text = "With the permission " + string(o.Needs)
	case nobody, Here: // which is no operation of a server
		return "Nobody."
	}
	if o.Session {
		text += "; in a browser, not by a token"
	}
	if o.Fresh {
		text += "; with a proof of the last ten minutes"
	}
	return text + "."
}
