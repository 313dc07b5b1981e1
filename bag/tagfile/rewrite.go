package tagfile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

// RewriteBagInfo gives the tags in the content of a bag-info.txt new values. It
// only changes tags that are there; what they said before goes to the end of the
// file, as "Original-<Tag>: <old value>", unless such a line is there already.
// Where a tag occurs more than once, the first is changed and the others go to
// the end. A tag that has its value everywhere stays as it is, and so does,
// byte for byte, all else. The File of a change does not matter.
//
// The content is in the encoding, blank for UTF-8, and so is the result. The
// error says that it is not, that a value cannot be written in it, or that the
// file is too large to be read back.
func RewriteBagInfo(content []byte, encoding string, changes []Tag) ([]byte, error) {
	enc, err := encodingFor(encoding)
	if err != nil {
		return nil, fmt.Errorf("bag-info.txt: %w", err)
	}
	if len(content) > MaxSize {
		return nil, fmt.Errorf("bag-info.txt has %d bytes; a tag file may have %d", len(content), MaxSize)
	}
	e := infoEditor{enc: enc.of(content)}
	mark, rest := e.enc.cutMark(content)
	if err := e.parse(rest); err != nil {
		return nil, fmt.Errorf("bag-info.txt: %w", err)
	}
	for _, c := range changes {
		if err := e.change(c.Name, c.Value); err != nil {
			return nil, fmt.Errorf("bag-info.txt: %w", err)
		}
	}
	if len(e.fates) == 0 {
		return content, nil
	}
	if len(e.tags)+len(e.history) > maxTags {
		return nil, fmt.Errorf("bag-info.txt would have more than %d tags", maxTags)
	}
	edited, err := e.write()
	if err != nil {
		return nil, fmt.Errorf("bag-info.txt: %w", err)
	}
	if len(mark)+len(edited) > MaxSize {
		return nil, fmt.Errorf("bag-info.txt would have %d bytes; a tag file may have %d", len(mark)+len(edited), MaxSize)
	}
	return slices.Concat(mark, edited), nil
}

// An infoEditor rewrites one bag-info.txt.
type infoEditor struct {
	enc     Encoding
	file    *textFile
	tags    []Tag
	newline string // that of the first line

	fates   map[int]fate // of the tags that do not stay as they are
	said    map[Tag]bool // tags that are there or go to the end, their names in lower case
	history []Tag        // goes to the end

	out  []byte
	text []byte // what out says
}

const noTag = -1

// A fate is what becomes of a tag: it gets another value, or goes.
type fate struct {
	drop  bool
	value string
}

// parse opens the file and reads its tags.
func (e *infoEditor) parse(content []byte) (err error) {
	if e.file, err = e.enc.open(content); err != nil {
		return err
	}
	e.fates = map[int]fate{}
	e.tags, err = e.walk(func(l textLine, _ int, _ bool) error {
		e.newline = cmp.Or(e.newline, string(l.end))
		return nil
	})
	e.newline = cmp.Or(e.newline, "\n")
	e.said = map[Tag]bool{}
	for _, t := range e.tags {
		e.said[inLowerCase(t.Name, t.Value)] = true
	}
	return err
}

// walk has the parser of tag files say which tag each line is part of, or noTag,
// and whether it is the first line of it. It returns the tags.
func (e *infoEditor) walk(visit func(l textLine, owner int, first bool) error) ([]Tag, error) {
	var unused finding.List // the validation of the bag has reported them
	p := tagParser{file: BagInfo, problems: &unused, warnings: &unused}
	number := 0
	for l := range e.file.lines() {
		number++
		before := len(p.tags)
		p.parseLine(number, l.text)
		if p.full {
			return nil, fmt.Errorf("it has more than %d tags", maxTags)
		}
		owner := len(p.tags) - 1
		if len(bytes.TrimSpace(l.text)) == 0 {
			owner = noTag // it may stay wherever it is
		}
		if err := visit(l, owner, len(p.tags) > before); err != nil {
			return nil, err
		}
	}
	p.finishTag()
	return p.tags, nil
}

// change decides on all tags of the name.
func (e *infoEditor) change(name, value string) error {
	_, parsed, ok := cutLabel(name + ": " + value)
	if !ok || parsed != value || strings.TrimSpace(name) != name || strings.ContainsFunc(name+value, naming.IsControl) {
		return fmt.Errorf("the tag '%s' cannot have the value '%s' in a tag file", finding.Show(name), finding.Show(value))
	}
	var same []int
	for i, t := range e.tags {
		if strings.EqualFold(t.Name, name) {
			same = append(same, i)
		}
	}
	if !slices.ContainsFunc(same, func(i int) bool { return e.tags[i].Value != value }) {
		return nil
	}
	for n, i := range same {
		t := e.tags[i]
		if n > 0 || t.Value != value {
			e.fates[i] = fate{drop: n > 0, value: value}
		}
		if t.Value != "" && t.Value != value {
			e.remember(Tag{Name: "Original-" + t.Name, Value: t.Value})
		}
	}
	return nil
}

func (e *infoEditor) remember(old Tag) {
	if key := inLowerCase(old.Name, old.Value); !e.said[key] {
		e.said[key] = true
		e.history = append(e.history, old)
	}
}

func inLowerCase(name, value string) Tag { return Tag{Name: strings.ToLower(name), Value: value} }

// write makes the file again, and reads it back: in some encodings a line does not
// mean the same after another one.
func (e *infoEditor) write() ([]byte, error) {
	_, err := e.walk(func(l textLine, owner int, first bool) error {
		fate, changed := e.fates[owner]
		switch {
		case !changed:
			e.out = append(e.out, l.raw...)
			e.text = append(append(e.text, l.text...), l.end...)
		case !fate.drop && first:
			return e.add(e.tags[owner].Name + ": " + fate.value + string(l.end))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, old := range e.history {
		if n := len(e.text); n > 0 && lineEnd(e.text[n-1:]) == nil {
			old.Name = e.newline + old.Name // nothing ended the last line
		}
		if err := e.add(old.Name + ": " + old.Value + e.newline); err != nil {
			return nil, err
		}
	}
	back, err := e.enc.decode(e.out)
	if err != nil || !bytes.Equal(back, e.text) {
		return nil, fmt.Errorf("it is written in %s, in which single lines cannot be changed", e.enc)
	}
	return e.out, nil
}

func (e *infoEditor) add(text string) error {
	raw, err := e.enc.encode([]byte(text))
	if err != nil {
		return fmt.Errorf("'%s': %w", finding.Show(strings.TrimSpace(text)), err)
	}
	e.out, e.text = append(e.out, raw...), append(e.text, text...)
	return nil
}
