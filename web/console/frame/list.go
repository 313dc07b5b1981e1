package frame

import (
	"net/url"
	"slices"
)

// RecordList is a page of a list with its filters.
type RecordList[T any] struct {
	Filter   url.Values // as it is in the address
	Narrowed bool
	Rows     []T
	More     string
	Broad    string // why the list is refused
	All      bool   // the person sees all institutions
	About    string // the one record that the list belongs to; "": none
	Back     string // its page
	Own      string // identifier of the person's institution
}

// Records loads a page of a list with the filters of the address.
func Records[T any](v *Visit, path string, fields []string, more url.Values) (l RecordList[T], err error) {
	l.Filter, l.All = v.Query(fields...), v.Caller.Scope.All()
	_, l.Own = v.Caller.Scope.Institution()
	l.Narrowed = len(l.Filter) > 0
	q := v.Query(append(slices.Clone(fields), "after")...)
	for name, values := range more {
		if q.Get(name) == "" {
			q[name] = values
		}
	}
	q.Set("limit", "40")
	found, err := Get[List[T]](v, path, q)
	if reason, broad := TooBroad(err); broad {
		l.Broad = reason
		return l, nil
	}
	l.Rows, l.More = found.Items, v.More(found.Next)
	return l, err
}

// Tab leads to a part of a list.
type Tab struct {
	Name, Path string
	Current    bool
}

// Choice is a value that can be chosen.
type Choice struct {
	Value, Name string
	Chosen      bool
}

// Choices are values that are their own names.
func Choices(chosen string, values ...string) (list []Choice) {
	for _, value := range values {
		list = append(list, Choice{value, value, value == chosen})
	}
	return list
}
