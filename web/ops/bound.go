package ops

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Bound is a whole number in a query that may be left out, which is not the same as 0.
type Bound struct {
	N     int64
	Given bool
}

// OrNil is the number; nil: it was left out.
func (b Bound) OrNil() *int64 {
	if !b.Given {
		return nil
	}
	return &b.N
}

// Schema is of huma.SchemaProvider.
func (Bound) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[int64]())
}

// Receiver is of huma.ParamWrapper.
func (b *Bound) Receiver() reflect.Value { return reflect.ValueOf(&b.N).Elem() }

// OnParamSet is of huma.ParamReactor.
func (b *Bound) OnParamSet(given bool, _ any) { b.Given = given }
