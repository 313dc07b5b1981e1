package nsqcompat

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fields is a JSON object whose keys are kept in their order. A key that is there
// twice is an error: of two lists of messages one would be lost.
type fields struct {
	names  []string
	values map[string]json.RawMessage
}

func (f *fields) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad("%s is no object", short(raw))
	}
	f.values = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad("it is no JSON: %v", err)
		}
		name, _ := t.(string) // the decoder sees to it
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return bad("it is no JSON: %v", err)
		}
		if _, twice := f.values[name]; twice {
			return bad("the key %s is there twice", strconv.Quote(name))
		}
		f.names = append(f.names, name)
		f.values[name] = value
	}
	return nil
}

// object reads a JSON object; what is null or not there is empty.
func object(what string, raw json.RawMessage) (f fields, err error) {
	if isNull(raw) {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		if wrong, ok := err.(wrongRequest); ok { //nolint:errorlint // it is handed through as it is
			return f, bad("%s: %s", what, wrong.text)
		}
		return f, bad("%s is no JSON object: %v", what, err)
	}
	return f, nil
}

// record reads a JSON object that may have these keys and no others. A key that is
// mistyped would otherwise be taken for one that is not there.
func record(what string, raw json.RawMessage, known ...string) (f fields, err error) {
	if f, err = object(what, raw); err != nil {
		return f, err
	}
	for _, name := range f.names {
		if slices.Contains(known, name) {
			continue
		}
		for _, k := range known {
			if strings.EqualFold(k, name) {
				return f, bad("%s has an unknown key %s; did you mean %s?", what, quoted(name), strconv.Quote(k))
			}
		}
		return f, bad("%s has an unknown key %s; it may have %s", what, quoted(name), strings.Join(known, ", "))
	}
	return f, nil
}

func quoted(name string) string { return short(json.RawMessage(strconv.Quote(name))) }

// readInto reads a JSON object into a struct, by the names in its tags. What is null
// or not there stays as it is.
func readInto(raw json.RawMessage, into any) error {
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
		return bad("the request is null; it must be an object")
	}
	f, err := record("the request", raw, known...)
	if err != nil {
		return err
	}
	for _, name := range f.names {
		value := f.values[name]
		if isNull(value) {
			continue
		}
		field := at.FieldByIndex(places[name])
		if err := json.Unmarshal(value, field.Addr().Interface()); err != nil {
			return bad("%s is %s; it must be %s", name, short(value), kindOf(field.Type()))
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
		return "a whole number, and not larger than such numbers are"
	}
}
