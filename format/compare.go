package format

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A Difference is what one set of signatures says otherwise than another: with it,
// files need not be read whose format cannot have changed.
type Difference struct {
	Old, New string              // versions, as in [Result.Version]
	Added    []string            // identifiers of formats
	Removed  []string            // identifiers of formats
	Changed  []string            // formats whose signatures, priorities, extensions or names differ
	old      map[string]*known   // formats of the old set
	new      map[string]*known   // formats of the new set
	marks    map[string][]marked // signatures that differ, by the format that has them
	exts     map[string]bool     // extensions of formats that differ
	whole    bool                // something differs that is no format's
}

// marked is a signature by what all files that it matches begin with.
type marked []anchor

// Compare returns how the signatures of one file differ from those of another; nil
// stands for the built-in ones.
func Compare(old, next []byte) (*Difference, error) {
	was, err := load(old)
	if err != nil {
		return nil, err
	}
	is, err := load(next)
	if err != nil {
		return nil, err
	}
	d := &Difference{Old: version(was), New: version(is), marks: map[string][]marked{}, exts: map[string]bool{}}
	var wasRest, isRest string
	if d.old, wasRest, err = formatsOf(was); err != nil {
		return nil, err
	}
	if d.new, isRest, err = formatsOf(is); err != nil {
		return nil, err
	}
	d.whole = wasRest != isRest
	for _, id := range slices.Sorted(maps.Keys(d.old)) {
		if d.new[id] == nil {
			d.Removed = append(d.Removed, id)
			d.differs(id, d.old[id], &known{})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.new)) {
		switch f := d.old[id]; {
		case f == nil:
			d.Added = append(d.Added, id)
			d.differs(id, &known{}, d.new[id])
		case !f.same(d.new[id]):
			d.Changed = append(d.Changed, id)
			d.differs(id, f, d.new[id])
		}
	}
	return d, nil
}

// differs notes which files a format that differs may concern, in addition to its own. A format
// that is only called otherwise concerns no others. All else may: which of several matches
// Siegfried prefers depends on all of them, and on the extension.
func (d *Difference) differs(id string, was, is *known) {
	if was.works(is) {
		return
	}
	for _, mark := range was.signatures {
		d.marks[id] = append(d.marks[id], mark)
	}
	for text, mark := range is.signatures {
		if _, ok := was.signatures[text]; !ok {
			d.marks[id] = append(d.marks[id], mark)
		}
	}
	for _, ext := range slices.Concat(was.extensions, is.extensions) {
		d.exts[ext] = true
	}
}

// Affects tells why files may have another format by the new signatures, which were
// identified by the old ones: by their PUID, the method and the extension of their name.
// It is empty only if no such file can have.
func (d *Difference) Affects(puid, method, name string) string {
	f := d.old[puid]
	switch {
	case d.whole:
		return "all signatures"
	case puid != "" && (f == nil || !f.same(cmp.Or(d.new[puid], &known{}))):
		return puid
	}
	if ext := strings.TrimPrefix(strings.ToLower(path.Ext(name)), "."); d.exts[ext] || d.exts["*"] {
		return "extension " + ext
	}
	// Where no signature has matched, as far as the record says, any that differs may.
	weak := puid == "" || method != "signature" && method != "container" || len(f.signatures) == 0
	var which []string
	for id, marks := range d.marks {
		if weak || slices.ContainsFunc(marks, f.mayMatchToo) {
			which = append(which, id)
		}
	}
	slices.Sort(which)
	return some(which)
}

// some names the first formats of a list.
func some(ids []string) string {
	if len(ids) > 3 {
		return fmt.Sprintf("%s and %d others", strings.Join(ids[:3], ", "), len(ids)-3)
	}
	return strings.Join(ids, ", ")
}

// A known is what a set of signatures says of a format.
type known struct {
	about      string            // name, version and MIME types
	mime       bool              // it has a MIME type, and so is preferred to one that has none
	signatures map[string]marked // by their whole text
	extensions []string          // sorted; "*" for another pattern of names
	superiors  []string          // formats that exclude this one where both match, sorted
	inferiors  []string          // formats that this one excludes, sorted
}

func (p *known) same(o *known) bool { return p.about == o.about && p.works(o) }

// works tells whether a format matches what another one matches.
func (p *known) works(o *known) bool {
	return p.mime == o.mime && slices.Equal(p.extensions, o.extensions) && slices.Equal(p.superiors, o.superiors) && slices.Equal(p.inferiors, o.inferiors) &&
		slices.Equal(slices.Sorted(maps.Keys(p.signatures)), slices.Sorted(maps.Keys(o.signatures)))
}

// mayMatchToo tells whether some file may match both a signature and this format.
func (p *known) mayMatchToo(m marked) bool {
	for _, own := range p.signatures {
		if !apart(own, m) {
			return true
		}
	}
	return false
}

// An anchor is one of several strings, at a fixed place from the beginning of a file.
type anchor struct {
	at   int64
	text [][]byte
}

// apart tells whether no file can match both.
func apart(a, b marked) bool {
	return slices.ContainsFunc(a, func(x anchor) bool { return slices.ContainsFunc(b, x.excludes) })
}

func (x anchor) excludes(y anchor) bool {
	if x.at > y.at {
		x, y = y, x
	}
	for _, s := range x.text {
		rest := s[min(y.at-x.at, int64(len(s))):]
		for _, t := range y.text {
			if n := min(len(rest), len(t)); bytes.Equal(rest[:n], t[:n]) {
				return false
			}
		}
	}
	return len(x.text) > 0 && len(y.text) > 0
}
