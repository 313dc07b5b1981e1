package plans

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
)

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

// piecesOf returns the parts of the condition, in an order that does not change.
func piecesOf(f record.PlanFilter) pieces {
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

// Empty reports whether a filter narrows nothing.
func Empty(f record.PlanFilter) bool { return len(piecesOf(f)) == 0 }

// asJSON are the parts as makeSQL takes them.
func (p pieces) asJSON() (string, error) {
	if p == nil {
		p = pieces{}
	}
	text, err := json.Marshal(p)
	return string(text), err
}
