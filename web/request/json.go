// Package request reads HTTP requests: their bodies within a budget of memory and
// time, and the JSON in them, in which every mistake is named.
package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Error is a mistake in a request, in words for its caller.
type Error struct{ Text string }

// Error is the text.
func (e Error) Error() string { return e.Text }

// Errorf returns an [Error].
func Errorf(format string, args ...any) error { return Error{fmt.Sprintf(format, args...)} }

// Fields is a JSON object whose keys are kept in their order. A duplicate key is an
// error: of two lists of messages one would be lost.
type Fields struct {
	Names  []string
	Values map[string]json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Fields) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Errorf("%s is not an object", Short(raw))
	}
	f.Values = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return Errorf("it is not valid JSON: %v", err)
		}
		name, _ := t.(string) // the decoder ensures it
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return Errorf("it is not valid JSON: %v", err)
		}
		if _, twice := f.Values[name]; twice {
			return Errorf("the key %s appears twice", strconv.Quote(name))
		}
		f.Names = append(f.Names, name)
		f.Values[name] = value
	}
	return nil
}

// Object reads a JSON object; null or nothing is an empty one. what names it in
// errors.
func Object(what string, raw json.RawMessage) (f Fields, err error) {
	if IsNull(raw) {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		if wrong, ok := err.(Error); ok { //nolint:errorlint // it is handed through as it is
			return f, Errorf("%s: %s", what, wrong.Text)
		}
		return f, Errorf("%s is not a JSON object: %v", what, err)
	}
	return f, nil
}

// Record reads a JSON object that may have these keys and no others. A mistyped key
// would otherwise be taken for a missing one.
func Record(what string, raw json.RawMessage, known ...string) (f Fields, err error) {
	if f, err = Object(what, raw); err != nil {
		return f, err
	}
	for _, name := range f.Names {
		if slices.Contains(known, name) {
			continue
		}
		for _, k := range known {
			if strings.EqualFold(k, name) {
				return f, Errorf("%s has an unknown key %s; did you mean %s?", what, Quote(name), strconv.Quote(k))
			}
		}
		return f, Errorf("%s has an unknown key %s; it may have %s", what, Quote(name), strings.Join(known, ", "))
	}
	return f, nil
}

// Quote quotes a name that was wrong, shortened.
func Quote(name string) string { return Short(json.RawMessage(strconv.Quote(name))) }

// Short returns a wrong value as it is shown to its caller.
func Short(raw json.RawMessage) string {
	if len(raw) > 60 {
		return strconv.QuoteToASCII(string(raw[:60])) + "…"
	}
	return string(raw)
}

// IsNull reports whether a value is missing or null.
func IsNull(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// Decode reads a JSON object into a struct, by the names in its tags. The fields of
// keys that are null or missing stay as they are.
func Decode(raw json.RawMessage, into any) error {
	at := reflect.ValueOf(into).Elem()
	var known []string
	places := map[string][]int{}
	for _, f := range reflect.VisibleFields(at.Type()) {
		if name := f.Tag.Get("json"); name != "" {
			known = append(known, name)
			places[name] = f.Index
		}
	}
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return Errorf("the request is null; it must be an object")
	}
	f, err := Record("the request", raw, known...)
	if err != nil {
		return err
	}
	for _, name := range f.Names {
		value := f.Values[name]
		if IsNull(value) {
			continue
		}
		field := at.FieldByIndex(places[name])
		if err := json.Unmarshal(value, field.Addr().Interface()); err != nil {
			return Errorf("%s is %s; it must be %s", name, Short(value), kindOf(field.Type()))
		}
	}
	return nil
}

// kindOf says what a JSON value must be to be of a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of strings"
	case reflect.Float64:
		return "a number"
	default:
		return "a whole number that fits into 64 bits"
	}
}
