package ops

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// takesKey reports whether an operation takes an Idempotency-Key: it changes something, and
// its answer has no secret and no cookie.
func (o Operation) takesKey() bool {
	return o.Method != http.MethodGet && !o.Secret && o.Access != Anyone && o.Access != Half
}

// refusals are the statuses of problems that an operation may be answered with, without
// those that depend on what its request has.
func (o Operation) refusals() []int {
	list := []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable,
	}
	if strings.Contains(o.Path, "{") || strings.HasSuffix(o.Path, "/by-identifier") || o.Method != http.MethodGet && o.Access == Holders {
		list = append(list, http.StatusNotFound)
	}
	if o.Method != http.MethodGet {
		list = append(list, http.StatusConflict, http.StatusUnsupportedMediaType)
	}
	if o.takesKey() {
		list = append(list, http.StatusUnprocessableEntity)
	}
	return append(list, o.Answers...)
}

// document makes what huma has written of an operation what is answered: a value that is
// wrong is 400, and nothing is 500.
func (a *API) document(o Operation) {
	for _, h := range operationsOf(a.huma.OpenAPI().Paths[o.Path]) {
		if h.OperationID != o.ID {
			continue
		}
		if answer := h.Responses[strconv.Itoa(http.StatusOK)]; o.Table {
			answer.Content[csvType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
		problem := h.Responses[strconv.Itoa(http.StatusBadRequest)]
		add := func(status int) {
			h.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: problem.Content}
		}
		if !slices.Contains(o.refusals(), http.StatusUnprocessableEntity) {
			delete(h.Responses, strconv.Itoa(http.StatusUnprocessableEntity))
		}
		delete(h.Responses, strconv.Itoa(http.StatusInternalServerError))
		if h.RequestBody != nil || o.takesKey() {
			add(http.StatusRequestEntityTooLarge)
		}
		if h.RequestBody != nil {
			add(http.StatusRequestTimeout)
		}
		if slices.ContainsFunc(h.Parameters, func(p *huma.Param) bool { return p.Name == "If-Match" }) {
			add(http.StatusPreconditionFailed)
		}
		if o.tagged() {
			h.Responses[strconv.Itoa(http.StatusNotModified)] = &huma.Response{Description: "The answer is the one whose ETag If-None-Match names; it has no body"}
		}
	}
}

func operationsOf(item *huma.PathItem) (list []*huma.Operation) {
	for _, o := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
		if o != nil {
			list = append(list, o)
		}
	}
	return list
}

// nullable has the document say of each pointer to a record that it may be null, as huma
// says it of pointers to everything else.
func (a *API) nullable() {
	schemas := a.huma.OpenAPI().Components.Schemas
	for name, schema := range schemas.Map() {
		t := schemas.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := schema.Properties[key]
			if p == nil || p.Ref == "" || f.Type.Kind() != reflect.Pointer || strings.Contains(options, "omit") {
				continue
			}
			schema.Properties[key] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}, Description: p.Description}
		}
	}
}
