package tagfile

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

const (
	// MaxSize bounds a tag file whose tags are wanted, in bytes. Real ones
	// have a few hundred.
	MaxSize = 1 << 20
	// maxTags bounds the tags of one file.
	maxTags = 10000
	// EncodingTag is the tag of bagit.txt that names the encoding of all others.
	EncodingTag = "Tag-File-Character-Encoding"
)

// tagParser reads one tag file (RFC 8493, 2.2.2).
type tagParser struct {
	file     string
	tags     []Tag
	problems *finding.List
	warnings *finding.List

	value  []byte // of the last tag, as long as it may be continued
	indent bool   // warned already
	spaced bool   // warned already
	full   bool   // has maxTags
}

// ParseTags returns the tags of a file that is in the given encoding. Tags
// after a problem are returned too, so that a depositor sees all faults at
// once.
func ParseTags(file string, raw []byte, enc Encoding, problems, warnings *finding.List) []Tag {
	p := tagParser{file: file, problems: problems, warnings: warnings}
	text, err := enc.decode(raw)
	if err != nil || !enc.decoded(text) {
		problems.Add(finding.TagFileEncoding, file,
			"%s is not valid %s. Save it so, or declare its encoding as Tag-File-Character-Encoding in bagit.txt.", file, enc)
		return nil
	}
	text, marked := bytes.CutPrefix(text, []byte("\ufeff"))
	switch {
	case marked && file == Bagit: // RFC 8493, 2.1.1
		problems.Add(finding.ByteOrderMark, file, "bagit.txt begins with a byte order mark, which BagIt forbids. Save it without.")
	case marked:
		warnings.Add(finding.ByteOrderMark, file, "%s begins with a byte order mark, which is ignored.", file)
	}
	lines := lineSplitter{line: p.parseLine, most: MaxSize * 2}
	_, _ = lines.Write(text) // never fails
	lines.end()
	p.finishTag()
	for i := range p.tags {
		p.checkValue(&p.tags[i])
	}
	return p.tags
}

func (p *tagParser) parseLine(number int, line []byte) {
	text := string(bytes.TrimSpace(line))
	if text == "" || p.full {
		return // blank lines are allowed anywhere
	}
	indented := line[0] == ' ' || line[0] == '\t'
	label, value, ok := cutLabel(text)
	if !indented && ok {
		if trimmed := strings.TrimRight(label, " \t"); trimmed != label {
			label = trimmed
			if !p.spaced {
				p.spaced = true
				p.warnings.Add(finding.TagLabelSpace, p.file,
					"%s, line %d: there is white space between the label %s and its colon. It is ignored here and in the lines after it.",
					p.file, number, finding.Show(label))
			}
		}
		p.begin(label, value)
		return
	}
	if len(p.tags) == 0 {
		p.problems.Add(finding.TagFileMalformed, p.file,
			`%s, line %d: expected "Label: value", found '%s'.`, p.file, number, finding.Show(text))
		return
	}
	if !indented && !p.indent {
		p.indent = true
		p.warnings.Add(finding.TagNotIndented, p.file,
			"%s, line %d: it has no label and is not indented; it was taken to continue the tag %s.",
			p.file, number, finding.Show(p.tags[len(p.tags)-1].Name))
	}
	if len(p.value) > 0 {
		p.value = append(p.value, ' ')
	}
	p.value = append(p.value, text...)
}

func (p *tagParser) begin(label, value string) {
	p.finishTag()
	if len(p.tags) == maxTags {
		p.full = true
		p.problems.Add(finding.TagFileTooLarge, p.file, "%s has more than %d tags.", p.file, maxTags)
		return
	}
	p.tags = append(p.tags, Tag{File: p.file, Name: label})
	p.value = append(p.value, value...)
}

// finishTag gives the last tag its value. The value is gathered in a buffer
// first, since a megabyte may be one tag continued half a million times.
func (p *tagParser) finishTag() {
	if n := len(p.tags); n > 0 {
		p.tags[n-1].Value = string(p.value)
	}
	p.value = p.value[:0]
}

// cutLabel parts "Label: value". A label with white space in it counts only if
// the colon is followed by white space as well; else a folded sentence that was
// not indented would become a tag. White space before the colon stays with the label.
func cutLabel(text string) (label, value string, ok bool) {
	label, value, ok = strings.Cut(text, ":")
	name := strings.TrimRight(label, " \t")
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return "", "", false
	}
	spaced := value == "" || value[0] == ' ' || value[0] == '\t'
	if strings.ContainsAny(name, " \t") && !spaced {
		return "", "", false
	}
	return label, strings.TrimSpace(value), true
}

// checkValue refuses control characters: no label or value has a use for them,
// and a database cannot even store NUL.
func (p *tagParser) checkValue(t *Tag) {
	for _, r := range t.Name + t.Value {
		if r == '\t' || !naming.IsControl(r) {
			continue
		}
		p.problems.Add(finding.TagControl, p.file,
			"%s: the tag %s contains a control character (%U).", p.file, finding.Show(t.Name), r)
		t.Name, t.Value = maskControls(t.Name), maskControls(t.Value)
		return
	}
}

func maskControls(s string) string {
	return strings.Map(func(r rune) rune {
		if naming.IsControl(r) && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, s)
}
