package ops

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/web/access"
)

// Row is an operation with what it takes and what it answers. Commands, forms of the console
// and the list in the documentation are made of rows.
type Row struct {
	Operation

	Fields []Field      // of its path, its query and its body, in their order
	Answer reflect.Type // of the body of its answer; nil: it has none
}

// Field is a value that an operation takes.
type Field struct {
	Name     string       // such as note; filter.status is a field within another one
	In       string       // path, query or body
	Doc      string       // what it is
	Type     reflect.Type // never a pointer
	Required bool
	Values   []string // the only ones; nil: all are taken
	Least    string   // of a number; "": it has no bound
	Most     string
	Longest  int    // of a text, in characters; 0: it has no bound
	Example  string // "": there is none
}

// Number reports whether a field is a whole number.
func (f Field) Number() bool { return f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Int64 }

// Truth reports whether a field is true or false.
func (f Field) Truth() bool { return f.Type.Kind() == reflect.Bool }

// Long reports whether a field is a text of several lines.
func (f Field) Long() bool { return f.Type.Kind() == reflect.Slice || f.Longest > 200 }

// Rows lists the operations that register adds to a table, and makes nothing else of them.
func Rows(register func(*API)) []Row {
	a := &API{lists: true}
	register(a)
	return a.rows
}

// Rows are the table.
func (a *API) Rows() []Row { return slices.Clone(a.rows) }

// Sample is a text with which an operation can be tried: the example of the field, or another
// value that it takes.
func (f Field) Sample() string {
	switch {
	case f.In == "path" && f.Number():
		return cmp.Or(f.Example, "7")
	case f.Number():
		return cmp.Or(f.Example, f.Least, "1")
	case f.Truth():
		return cmp.Or(f.Example, "true")
	case len(f.Values) > 0:
		return cmp.Or(f.Example, f.Values[0])
	}
	return cmp.Or(f.Example, f.Name)
}

// Admits reports whether a caller may try an operation on which more depends than on them.
func (o Operation) Admits(c access.Caller) bool {
	return o.refuses(c) == nil || o.Fresh && c.Holds(o.Needs)
}

// Changes reports whether an operation changes something.
func (o Operation) Changes() bool { return o.Method != http.MethodGet }

// Words are those of the command of an operation, without its arguments; nil: it has none.
func (o Operation) Words() []string {
	words := strings.Fields(o.Command)
	if i := slices.IndexFunc(words, func(w string) bool { return w == strings.ToUpper(w) }); i >= 0 {
		return words[:i]
	}
	return words
}

// Arguments are the fields that the command of an operation takes without a flag.
func (o Operation) Arguments() (names []string) {
	for _, w := range strings.Fields(o.Command)[len(o.Words()):] {
		names = append(names, strings.ToLower(w))
	}
	return names
}

// rowOf describes an operation by the types of its request and its answer.
func rowOf(o Operation, in, out reflect.Type) Row {
	r := Row{Operation: o, Fields: fieldsOf(in, "", "")}
	if body, found := out.FieldByName("Body"); found {
		r.Answer = body.Type
	}
	return r
}

// fieldsOf are the values of a struct as encoding/json and huma read it. in is the part of the
// request that it is; "": its fields say so.
func fieldsOf(t reflect.Type, prefix, in string) (list []Field) {
	for i := range t.NumField() {
		f := t.Field(i)
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		part, name := placeOf(f, in)
		structured := of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]()
		switch {
		case f.Anonymous && name == "" && structured:
			list = append(list, fieldsOf(of, prefix, in)...)
		case f.Name == "Body" && in == "" && structured:
			list = append(list, fieldsOf(of, "", "body")...)
		case name == "" || name == "-":
		case structured && part == "body":
			list = append(list, fieldsOf(of, prefix+name+".", part)...)
		default:
			list = append(list, fieldOf(f, of, prefix+name, part))
		}
	}
	return list
}

// placeOf is the part of the request that a field is in, and its name there; "": it has none.
func placeOf(f reflect.StructField, in string) (part, name string) {
	if in != "" {
		name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		return in, name
	}
	for _, tag := range []string{"path", "query", "json"} {
		if text := f.Tag.Get(tag); text != "" {
			part, name = tag, strings.Split(text, ",")[0]
		}
	}
	return part, name
}

func fieldOf(f reflect.StructField, of reflect.Type, name, in string) Field {
	optional := f.Type.Kind() == reflect.Pointer || strings.Contains(f.Tag.Get("json"), ",omit") || f.Tag.Get("required") == "false" || in == "query"
	out := Field{
		Name: name, In: in, Doc: f.Tag.Get("doc"), Type: of, Required: in == "path" || !optional,
		Least: f.Tag.Get("minimum"), Most: f.Tag.Get("maximum"), Example: f.Tag.Get("example"),
	}
	if values := f.Tag.Get("enum"); values != "" {
		out.Values = strings.Split(values, ",")
	}
	out.Longest, _ = strconv.Atoi(f.Tag.Get("maxLength"))
	return out
}
