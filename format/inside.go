package format

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/richardlehane/siegfried"
)

// Siegfried has no way to list the signatures of a file, only to match them. So they
// are read from its matchers' fields; a version that has other fields is an error.

// formatsOf lists the formats of a set by their identifiers, and what is no format's:
// matchers that PRONOM does not use.
func formatsOf(sf *siegfried.Siegfried) (formats map[string]*known, rest string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: its formats cannot be compared: %v", ErrSignatures, r)
		}
	}()
	s := reflect.ValueOf(sf).Elem()
	ids := field(s, "ids")
	if ids.Len() != 1 || ids.Index(0).Elem().Type().String() != "*pronom.Identifier" {
		return nil, "", fmt.Errorf("%w: only sets of PRONOM's formats alone can be compared", ErrSignatures)
	}
	identifier := ids.Index(0).Elem().Elem()
	formats = map[string]*known{}
	infos := field(identifier, "infos")
	for _, id := range infos.MapKeys() {
		info := infos.MapIndex(id)
		formats[id.String()] = &known{about: text(info), mime: field(info, "mimeType").String() != "", signatures: map[string]marked{}}
	}
	of := func(id string) *known {
		if formats[id] == nil {
			formats[id] = &known{signatures: map[string]marked{}}
		}
		return formats[id]
	}
	base := field(identifier, "Base").Elem()
	names(field(s, "nm"), owners(base, "gids"), of)
	if bm := field(s, "bm"); !bm.IsNil() {
		owner := owners(base, "bids")
		for i, sig := range byteSignatures(bm.Elem().Elem()) {
			of(owner[i]).signatures[sig.text] = sig.mark
		}
		priorities(field(bm.Elem().Elem(), "priorities"), owner, of)
	}
	if cm := field(s, "cm"); !cm.IsNil() {
		containers(cm.Elem(), owners(base, "cids"), of)
	}
	for id, f := range formats {
		for _, superior := range f.superiors {
			of(superior).inferiors = append(of(superior).inferiors, id)
		}
	}
	for _, f := range formats {
		for _, list := range []*[]string{&f.extensions, &f.superiors, &f.inferiors} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
	}
	for _, matcher := range []string{"xm", "rm", "tm"} {
		rest += text(field(s, matcher))
	}
	return formats, rest + text(field(base, "multi")) + text(field(identifier, "priorities")), nil
}

func field(v reflect.Value, name string) reflect.Value {
	f := v.FieldByName(name)
	if !f.IsValid() {
		panic(errors.New("siegfried has no field " + name)) // which formatsOf recovers
	}
	return f
}

// owners are the formats of a matcher's signatures, by their indexes in it.
func owners(base reflect.Value, kind string) map[int]string {
	list := field(base, kind).Elem()
	ids, start := field(list, "ids"), int(field(list, "start").Int())
	of := map[int]string{}
	for i := range ids.Len() {
		of[start+i] = ids.Index(i).String()
	}
	return of
}

func names(nm reflect.Value, owner map[int]string, of func(string) *known) {
	if nm.IsNil() {
		return
	}
	m := nm.Elem().Elem()
	add := func(ext string, indexes reflect.Value) {
		for i := range indexes.Len() {
			f := of(owner[int(indexes.Index(i).Int())])
			f.extensions = append(f.extensions, ext)
		}
	}
	extensions := field(m, "extensions")
	for _, ext := range extensions.MapKeys() {
		add(ext.String(), extensions.MapIndex(ext))
	}
	globs := field(m, "globIdx")
	for i := range globs.Len() {
		add("*", globs.Index(i))
	}
}

// priorities notes which formats exclude which, where several match.
func priorities(set reflect.Value, owner map[int]string, of func(string) *known) {
	if set.IsNil() {
		return
	}
	lists, ends := field(set.Elem(), "lists"), field(set.Elem(), "idx")
	start := 0
	for l := range lists.Len() {
		for i := range lists.Index(l).Len() {
			superiors := lists.Index(l).Index(i)
			for j := range superiors.Len() {
				f := of(owner[start+i])
				f.superiors = append(f.superiors, owner[start+int(superiors.Index(j).Int())])
			}
		}
		start = int(ends.Index(l).Int())
	}
}

// A signature is one of a matcher: all that it asks for, as text.
type signature struct {
	parts []string
	text  string
	mark  marked
}

// byteSignatures puts together the signatures of a matcher, which has taken them apart:
// what it searches for first is in four sets, and what must then be around that in trees.
func byteSignatures(m reflect.Value) []signature {
	frames := field(m, "keyFrames")
	all := make([]signature, frames.Len())
	for i := range all {
		all[i].parts = append(all[i].parts, text(frames.Index(i)))
	}
	trees := field(m, "tests")
	for _, name := range []string{"bofFrames", "eofFrames", "bofSeq", "eofSeq"} {
		set := field(m, name).Elem()
		entries, first := field(set, "set"), field(set, "testTreeIndex")
		for e := range entries.Len() {
			choices, said := 1, name+text(entries.Index(e))
			if strings.HasSuffix(name, "Seq") {
				choices = field(entries.Index(e), "Choices").Len()
			}
			for k := range choices {
				tree := trees.Index(int(first.Index(e).Int()) + k).Elem()
				for id, around := range users(tree) {
					sig := &all[id[0]]
					sig.parts = append(sig.parts, fmt.Sprint(said, " ", k, " ", id[1], around))
					if name == "bofSeq" {
						sig.mark = append(sig.mark, fixed(frames.Index(id[0]).Index(id[1]), field(entries.Index(e), "Choices").Index(k))...)
					}
				}
			}
		}
	}
	for _, name := range []string{"unknownBOF", "unknownEOF"} {
		for i := range field(m, name).Len() {
			id := field(m, name).Index(i)
			sig := &all[id.Index(0).Int()]
			sig.parts = append(sig.parts, name+strconv.FormatInt(id.Index(1).Int(), 10))
		}
	}
	for i := range all {
		slices.Sort(all[i].parts)
		all[i].text = strings.Join(all[i].parts, "\n")
	}
	return all
}

// users are the parts of signatures that a tree is for, each a signature and its part,
// and what must be around what was found.
func users(tree reflect.Value) map[[2]int]string {
	of := map[[2]int]string{}
	add := func(id reflect.Value, around string) {
		of[[2]int{int(id.Index(0).Int()), int(id.Index(1).Int())}] += around
	}
	complete, incomplete := field(tree, "complete"), field(tree, "incomplete")
	for i := range complete.Len() {
		add(complete.Index(i), " complete")
	}
	for i := range incomplete.Len() {
		f := incomplete.Index(i)
		add(field(f, "kf"), fmt.Sprint(" left ", paths(field(tree, "left"), i, ""), " right ", paths(field(tree, "right"), i, "")))
	}
	return of
}

// paths are the ways through a tree of tests that a signature passes.
func paths(nodes reflect.Value, use int, before string) (list []string) {
	for i := range nodes.Len() {
		node := nodes.Index(i).Elem()
		here := before + " " + text(field(node, "Frame"))
		success := field(node, "success")
		for j := range success.Len() {
			if int(success.Index(j).Int()) == use {
				list = append(list, here)
			}
		}
		list = append(list, paths(field(node, "tests"), use, here)...)
	}
	slices.Sort(list)
	return list
}

// fixed is the anchor of a part whose place is fixed.
func fixed(frame, choice reflect.Value) marked {
	key := field(frame, "key")
	at := field(key, "pMin").Int()
	if field(frame, "typ").Uint() != 0 || at != field(key, "pMax").Int() { // 0: from the beginning
		return nil
	}
	a := anchor{at: at}
	for i := range choice.Len() {
		a.text = append(a.text, choice.Index(i).Bytes())
	}
	return marked{a}
}

// containers adds the signatures of ZIP and OLE2 files: which members they have, and
// what is in these.
func containers(matchers reflect.Value, owner map[int]string, of func(string) *known) {
	begins := map[int]string{0: "PK\x03\x04", 1: "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"}
	for i := range matchers.Len() {
		m := matchers.Index(i).Elem()
		if field(m, "startIndexes").Len() == 0 {
			continue // it has no signatures
		}
		start, parts := int(field(m, "startIndexes").Index(0).Int()), members(m)
		indexes := map[int]string{}
		for j := range parts {
			slices.Sort(parts[j])
			indexes[j] = owner[start+j]
			of(indexes[j]).signatures[fmt.Sprint("container ", i, parts[j])] = marked{{text: [][]byte{[]byte(begins[i])}}}
		}
		priorities(field(m, "priorities"), indexes, of)
	}
}

// members are the tests of a matcher's signatures, each for a member by its name, or a
// pattern of names.
func members(m reflect.Value) [][]string {
	parts := make([][]string, field(m, "parts").Len())
	add := func(name string, test reflect.Value) {
		note := func(list reflect.Value, says func(int) string) {
			for j := range list.Len() {
				at := int(list.Index(j).Int())
				parts[at] = append(parts[at], name+" "+says(j))
			}
		}
		note(field(test, "satisfied"), func(int) string { return "" })
		if bm := field(test, "bm"); !bm.IsNil() {
			contents := byteSignatures(bm.Elem().Elem())
			note(field(test, "unsatisfied"), func(j int) string { return contents[j].text })
		}
	}
	tests := field(m, "nameCTest")
	for _, name := range tests.MapKeys() {
		add(name.String(), tests.MapIndex(name).Elem())
	}
	globs := field(m, "globs")
	for i := range globs.Len() {
		add("pattern "+globs.Index(i).String(), field(m, "globCtests").Index(i).Elem())
	}
	return parts
}

// text writes a value out, whatever it is of, the same for the same content.
func text(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return v.Elem().Type().String() + text(v.Elem())
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	}
	return "{" + strings.Join(texts(v), " ") + "}"
}

// texts writes out what a value has several of.
func texts(v reflect.Value) (parts []string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !strings.HasPrefix(v.Type().Field(i).Type.String(), "*sync.") {
				parts = append(parts, text(v.Field(i)))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			parts = append(parts, text(v.Index(i)))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			parts = append(parts, text(k)+":"+text(v.MapIndex(k)))
		}
		slices.Sort(parts)
	default:
		panic(fmt.Errorf("siegfried has a field of the type %s", v.Type()))
	}
	return parts
}
