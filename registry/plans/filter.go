package plans

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// Filter says which items a plan is about. Empty fields do not narrow.
type Filter struct {
	IDs           []int64           `json:"ids,omitempty" maxItems:"100000" doc:"Any of these items"`
	Status        []registry.Status `json:"status,omitempty" maxItems:"6" enum:"Pending,Started,Success,Failed,Cancelled,Suspended" doc:"Any of these"`
	Stage         []registry.Stage  `json:"stage,omitempty" maxItems:"30" doc:"Any of these"`
	Action        []registry.Action `json:"action,omitempty" maxItems:"5" doc:"Any of these"`
	Institution   string            `json:"institution,omitempty" maxLength:"255" doc:"Identifier of the institution"`
	ErrorCode     string            `json:"error_code,omitempty" maxLength:"100"`
	NoErrorCode   bool              `json:"no_error_code,omitempty" doc:"Only items without an error code"`
	Name          string            `json:"name,omitempty" maxLength:"1000" doc:"Key in the receiving bucket"`
	NamePrefix    string            `json:"name_prefix,omitempty" maxLength:"1000" doc:"With which the name begins"`
	Object        string            `json:"object,omitempty" maxLength:"1000" doc:"Identifier of the object"`
	Worker        string            `json:"worker,omitempty" maxLength:"255" doc:"Only items that this worker runs"`
	StorageOption string            `json:"storage_option,omitempty" maxLength:"100"`
	Review        bool              `json:"review,omitempty" doc:"Only items that wait for a person"`
	SizeMin       int64             `json:"size_min,omitempty" minimum:"0" doc:"Bytes"`
	SizeMax       *int64            `json:"size_max,omitempty" minimum:"0" doc:"Bytes"`
	UpdatedAfter  time.Time         `json:"updated_after,omitzero" doc:"Then or later"`
	UpdatedBefore time.Time         `json:"updated_before,omitzero" doc:"Before then"`
	CreatedAfter  time.Time         `json:"created_after,omitzero" doc:"Then or later"`
	CreatedBefore time.Time         `json:"created_before,omitzero" doc:"Before then"`
}

// piece is a part of a condition: a constant for format() of PostgreSQL, which quotes the
// values.
type piece struct {
	Piece  string   `json:"piece"`
	Values []string `json:"values"`
}

// pieces are the parts of a filter's condition. No text of the caller's is SQL.
type pieces []piece

func (p *pieces) add(text string, values ...string) {
	*p = append(*p, piece{text, append([]string{}, values...)})
}

// equal adds a part for a text that is set.
func (p *pieces) equal(text, value string) {
	if value != "" {
		p.add(text, value)
	}
}

// since adds a part for a time that is set.
func (p *pieces) since(text string, t time.Time) {
	if !t.IsZero() {
		p.add(text, t.UTC().Format(time.RFC3339Nano))
	}
}

// oneOf adds a part for a list that is not empty.
func oneOf[T ~string](p *pieces, column string, list []T) {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	switch len(list) {
	case 0:
	case 1:
		p.add(column+` = %L`, texts...)
	default:
		p.add(column+` IN (`+strings.TrimSuffix(strings.Repeat(`%L, `, len(list)), `, `)+`)`, texts...)
	}
}

// pieces returns the parts of the condition, in an order that does not change.
func (f Filter) pieces() pieces {
	var p pieces
	if len(f.IDs) > 0 {
		ids := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = strconv.FormatInt(id, 10)
		}
		p.add(`id = ANY (%L)`, `{`+strings.Join(ids, `,`)+`}`)
	}
	oneOf(&p, `status`, f.Status)
	oneOf(&p, `stage`, f.Stage)
	oneOf(&p, `action`, f.Action)
	p.equal(`institution_id = (SELECT id FROM institutions WHERE identifier = %L)`, f.Institution)
	p.equal(`error_code = %L`, f.ErrorCode)
	if f.NoErrorCode {
		p.add(`error_code = ''`)
	}
	p.equal(`name = %L`, f.Name)
	p.equal(`starts_with(name, %L)`, f.NamePrefix)
	p.equal(`object_identifier = %L`, f.Object)
	p.equal(`worker = %L`, f.Worker)
	p.equal(`storage_option = %L`, f.StorageOption)
	if f.Review {
		p.add(`needs_admin_review`)
	}
	if f.SizeMin > 0 {
		p.add(`size >= %L`, strconv.FormatInt(f.SizeMin, 10))
	}
	if f.SizeMax != nil {
		p.add(`size <= %L`, strconv.FormatInt(*f.SizeMax, 10))
	}
	p.since(`updated_at >= %L`, f.UpdatedAfter)
	p.since(`updated_at < %L`, f.UpdatedBefore)
	p.since(`created_at >= %L`, f.CreatedAfter)
	p.since(`created_at < %L`, f.CreatedBefore)
	return p
}

// Empty reports whether the filter narrows nothing.
func (f Filter) Empty() bool { return len(f.pieces()) == 0 }

// asJSON are the parts as makeSQL takes them.
func (p pieces) asJSON() (string, error) {
	if p == nil {
		p = pieces{}
	}
	text, err := json.Marshal(p)
	return string(text), err
}
