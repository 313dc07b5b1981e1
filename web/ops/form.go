package ops

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/farol-preservation/farol/web/reply"
)

// Names of the fields of a form that are no part of an operation's body.
const (
	FormIfMatch = "if-match"
	FormKey     = "key"
)

// Operation returns a row of the table.
func (a *API) Operation(id string) (Operation, bool) {
	i := slices.IndexFunc(a.rows, func(r Row) bool { return r.ID == id })
	if i < 0 {
		return Operation{}, false
	}
	return a.rows[i].Operation, true
}

// FromForm makes of a form the request to an operation that changes something. The fields are
// those of its path and of its body, as the document has them: "filter.status" is a field
// within another one, and a list may be given in lines. A value that is no number where one is
// needed is a [*reply.Problem] that names the field. What an empty field means depends on
// the operation: nothing is sent, or, where a record is changed, an empty text.
func (a *API) FromForm(id string, form url.Values) (Question, error) {
	o, found := a.Operation(id)
	if !found || o.Method == http.MethodGet {
		return Question{}, NotFound()
	}
	q := Question{Method: o.Method, IfMatch: form.Get(FormIfMatch)}
	if o.takesKey() {
		q.Key = form.Get(FormKey)
	}
	var parts []string
	for part := range strings.SplitSeq(o.Path, "/") {
		if strings.HasPrefix(part, "{") {
			name := strings.Trim(part, "{}")
			if part = url.PathEscape(form.Get(name)); part == "" || part == "." || part == ".." {
				return Question{}, wrongField(name, "it is missing")
			}
		}
		parts = append(parts, part)
	}
	q.Path = strings.Join(parts, "/")
	schema := a.bodyOf(o)
	if schema == nil {
		return q, nil
	}
	body, err := a.object(schema, form, "", o.Method == http.MethodPatch)
	if err != nil {
		return Question{}, err
	}
	q.Body, err = json.Marshal(body)
	if err != nil {
		return Question{}, fmt.Errorf("encode a form: %w", err)
	}
	return q, nil
}

func wrongField(name, why string) *reply.Problem {
	p := Problem(http.StatusBadRequest, CodeBadRequest, name+": "+why)
	p.Errors = []reply.Wrong{{Pointer: "/" + strings.ReplaceAll(name, ".", "/"), Detail: why}}
	return p
}

// bodyOf is the schema of the body that an operation takes; nil: none.
func (a *API) bodyOf(o Operation) *huma.Schema {
	item := a.huma.OpenAPI().Paths[o.Path]
	if item == nil {
		return nil
	}
	h := map[string]*huma.Operation{http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[o.Method]
	if h == nil || h.RequestBody == nil || h.RequestBody.Content["application/json"] == nil {
		return nil
	}
	return a.resolved(h.RequestBody.Content["application/json"].Schema)
}

// object is what a form has of an object.
func (a *API) object(s *huma.Schema, form url.Values, prefix string, empty bool) (map[string]any, error) {
	out := map[string]any{}
	for name, of := range s.Properties {
		field := prefix + name
		if of = a.resolved(of); len(of.AnyOf) > 0 { // a record or null
			of = a.resolved(of.AnyOf[0])
		}
		if of.Type == huma.TypeObject && len(of.Properties) > 0 {
			within, err := a.object(of, form, field+".", empty)
			if err != nil {
				return nil, err
			}
			if len(within) > 0 || slices.Contains(s.Required, name) {
				out[name] = within
			}
			continue
		}
		values, given := form[field]
		if !given {
			continue
		}
		v, err := a.value(of, field, values, empty)
		if err != nil {
			return nil, err
		}
		if v != nil || of.Nullable && slices.Contains(s.Required, name) {
			out[name] = v
		}
	}
	return out, nil
}

// value is a field as its schema has it; nil: it is left out.
func (a *API) value(s *huma.Schema, field string, values []string, empty bool) (any, error) {
	if s.Type == huma.TypeArray {
		return a.values(s, field, values, empty)
	}
	text := strings.TrimSpace(values[len(values)-1]) // a box that is ticked follows the hidden field that says no
	mayBeEmpty := s.Type == huma.TypeString && s.Format == "" && len(s.Enum) == 0 && empty
	if text == "" && !mayBeEmpty {
		return nil, nil //nolint:nilnil // it is left out
	}
	switch s.Type {
	case huma.TypeInteger, huma.TypeNumber:
		return numeric(s, field, text)
	case huma.TypeBoolean:
		return text == "true" || text == "on", nil
	}
	if at, err := time.Parse("2006-01-02T15:04", text); err == nil && s.Format == "date-time" { // browsers send a time without its zone
		return at.UTC(), nil
	}
	return text, nil
}

func numeric(s *huma.Schema, field, text string) (any, error) {
	if s.Type == huma.TypeInteger {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, wrongField(field, fmt.Sprintf("%q is no whole number", text))
		}
		return n, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) { // which JSON has not
		return nil, wrongField(field, fmt.Sprintf("%q is no number", text))
	}
	return n, nil
}

// values are the lines of the values of a field.
func (a *API) values(s *huma.Schema, field string, values []string, empty bool) (any, error) {
	list := []any{}
	for _, text := range values {
		for line := range strings.Lines(text) {
			v, err := a.value(a.resolved(s.Items), field, []string{line}, false)
			if err != nil {
				return nil, err
			}
			if v != nil {
				list = append(list, v)
			}
		}
	}
	if len(list) == 0 && !empty {
		return nil, nil //nolint:nilnil // it is left out
	}
	return list, nil
}
