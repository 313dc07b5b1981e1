package bag

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

const (
	// maxTagFile bounds a tag file whose tags are wanted, in bytes. Real ones
	// have a few hundred.
	maxTagFile = 1 << 20
	// maxTags bounds the tags of one file.
	maxTags = 10000
	// encodingTag is the tag of bagit.txt that names the encoding of all others.
	encodingTag = "Tag-File-Character-Encoding"
)

// tagEncoding is what Tag-File-Character-Encoding declares for manifests and
// tag files. bagit.txt itself is always in UTF-8 (RFC 8493, 2.1.1), which is the
// zero value.
type tagEncoding struct {
	name string
	enc  encoding.Encoding
}

// encodingNamed returns false for an encoding that is not supported. The names
// are those of IANA's register, and some that tools write.
func encodingNamed(name string) (tagEncoding, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	switch name {
	case "UTF-8", "UTF8", "US-ASCII", "ASCII":
		return tagEncoding{}, true
	case "ISO8859-1":
		name = "ISO-8859-1"
	case "UTF-16LE", "UTF16LE":
		return tagEncoding{name, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)}, true
	case "UTF-16", "UTF16", "UTF-16BE", "UTF16BE":
		// without a mark, UTF-16 is big-endian (RFC 2781, 4.3)
		return tagEncoding{name, unicode.UTF16(unicode.BigEndian, unicode.UseBOM)}, true
	case "UTF-32", "UTF-32BE":
		return tagEncoding{name, utf32.UTF32(utf32.BigEndian, utf32.UseBOM)}, true
	case "UTF-32LE":
		return tagEncoding{name, utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)}, true
	}
	enc, err := ianaindex.IANA.Encoding(name)
	return tagEncoding{name, enc}, err == nil && enc != nil
}

func (e tagEncoding) isUTF8() bool { return e.enc == nil }

// String returns the name of the encoding.
func (e tagEncoding) String() string {
	if e.isUTF8() {
		return "UTF-8"
	}
	return e.name
}

// keepsASCII says that what is ASCII means the same in this encoding.
func (e tagEncoding) keepsASCII() bool {
	var all []byte
	for c := range byte(utf8.RuneSelf) {
		all = append(all, c)
	}
	text, err := e.decode(all)
	return err == nil && bytes.Equal(text, all)
}

// decoded says whether a text that went through the decoder is what was written:
// the decoders put U+FFFD where there was something that they cannot read.
func (e tagEncoding) decoded(text []byte) bool {
	if e.isUTF8() {
		return utf8.Valid(text)
	}
	return !bytes.ContainsRune(text, utf8.RuneError)
}

// writer returns a function that decodes into w, which does not fail.
func (e tagEncoding) writer(w io.Writer) func([]byte) {
	if !e.isUTF8() {
		w = transform.NewWriter(w, e.enc.NewDecoder())
	}
	return func(p []byte) { _, _ = w.Write(p) }
}

func (e tagEncoding) decode(raw []byte) ([]byte, error) {
	if e.isUTF8() {
		return raw, nil
	}
	out, err := e.enc.NewDecoder().Bytes(raw)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", e, err)
	}
	return out, nil
}

// tagParser reads one tag file (RFC 8493, 2.2.2).
type tagParser struct {
	file     string
	tags     []Tag
	problems *findings
	warnings *findings

	value  []byte // of the last tag, as long as it may be continued
	indent bool   // warned already
	spaced bool   // warned already
	full   bool   // has maxTags
}

// parseTags returns the tags of a file that is in the given encoding. Tags
// after a problem are returned too, so that a depositor sees all faults at
// once.
func parseTags(file string, raw []byte, enc tagEncoding, problems, warnings *findings) []Tag {
	p := tagParser{file: file, problems: problems, warnings: warnings}
	text, err := enc.decode(raw)
	if err != nil || !enc.decoded(text) {
		problems.add(codeTagFileEncoding, file,
			"%s is not valid %s. Save it so, or declare its encoding as Tag-File-Character-Encoding in bagit.txt.", file, enc)
		return nil
	}
	text, marked := bytes.CutPrefix(text, []byte("\ufeff"))
	switch {
	case marked && file == bagitTxt: // RFC 8493, 2.1.1
		problems.add(codeByteOrderMark, file, "bagit.txt begins with a byte order mark, which BagIt forbids. Save it without.")
	case marked:
		warnings.add(codeByteOrderMark, file, "%s begins with a byte order mark, which is ignored.", file)
	}
	lines := lineSplitter{line: p.parseLine, most: maxTagFile * 2}
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
				p.warnings.add(codeTagLabelSpace, p.file,
					"%s, line %d: there is white space between the label %s and its colon. It is ignored here and in the lines after it.",
					p.file, number, show(label))
			}
		}
		p.begin(label, value)
		return
	}
	if len(p.tags) == 0 {
		p.problems.add(codeTagFileMalformed, p.file,
			`%s, line %d: expected "Label: value", found '%s'.`, p.file, number, show(text))
		return
	}
	if !indented && !p.indent {
		p.indent = true
		p.warnings.add(codeTagNotIndented, p.file,
			"%s, line %d: it has no label and is not indented; it was taken to continue the tag %s.",
			p.file, number, show(p.tags[len(p.tags)-1].Name))
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
		p.problems.add(codeTagFileTooLarge, p.file, "%s has more than %d tags.", p.file, maxTags)
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
		if r == '\t' || !isControl(r) {
			continue
		}
		p.problems.add(codeTagControl, p.file,
			"%s: the tag %s contains a control character (%U).", p.file, show(t.Name), r)
		t.Name, t.Value = maskControls(t.Name), maskControls(t.Value)
		return
	}
}

func maskControls(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, s)
}

// isControl covers Unicode's category Cc.
func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }
