package bag

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

const (
	// maxTagFile bounds a tag file whose tags are wanted, in bytes. Real ones
	// have a few hundred.
	maxTagFile = 1 << 20
	// maxTags bounds the tags of one file.
	maxTags = 10000
)

// tagEncoding is what Tag-File-Character-Encoding declares for manifests and
// tag files. bagit.txt itself is always in UTF-8 (RFC 8493, 2.1.1).
type tagEncoding string

const (
	utf8Encoding   tagEncoding = "" // the zero value, as long as nothing is declared
	latin1Encoding tagEncoding = "ISO-8859-1"
	utf16Encoding  tagEncoding = "UTF-16"
	utf16BE        tagEncoding = "UTF-16BE"
	utf16LE        tagEncoding = "UTF-16LE"
)

// encodingNamed returns false for an encoding that is not supported.
func encodingNamed(name string) (tagEncoding, bool) {
	switch strings.ToUpper(strings.TrimSpace(name)) {
	case "UTF-8", "UTF8", "US-ASCII", "ASCII":
		return utf8Encoding, true
	case "ISO-8859-1", "ISO8859-1", "ISO_8859-1", "LATIN1":
		return latin1Encoding, true
	case "UTF-16":
		return utf16Encoding, true
	case "UTF-16BE":
		return utf16BE, true
	case "UTF-16LE":
		return utf16LE, true
	default:
		return utf8Encoding, false
	}
}

// decoder returns nil for UTF-8.
func (e tagEncoding) decoder() transform.Transformer {
	switch e {
	case latin1Encoding:
		return charmap.ISO8859_1.NewDecoder()
	case utf16Encoding, utf16BE:
		// without a mark, UTF-16 is big-endian (RFC 2781, 4.3)
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM).NewDecoder()
	case utf16LE:
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder()
	default:
		return nil
	}
}

// writer returns a function that decodes into w. The decoders replace what
// they cannot read by U+FFFD, and w does not fail, so nothing is lost by having
// no error.
func (e tagEncoding) writer(w io.Writer) func([]byte) {
	if d := e.decoder(); d != nil {
		w = transform.NewWriter(w, d)
	}
	return func(p []byte) { _, _ = w.Write(p) }
}

func (e tagEncoding) decode(raw []byte) ([]byte, error) {
	d := e.decoder()
	if d == nil {
		return raw, nil
	}
	out, _, err := transform.Bytes(d, raw)
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
	full   bool   // has maxTags
}

// parseTags returns the tags of a file that is in the given encoding. Tags
// after a problem are returned too, so that a depositor hears of all faults at
// once.
func parseTags(file string, raw []byte, enc tagEncoding, problems, warnings *findings) []Tag {
	p := tagParser{file: file, problems: problems, warnings: warnings}
	text, err := enc.decode(raw)
	if err != nil || !utf8.Valid(text) {
		problems.add(codeTagFileEncoding, file,
			"%s is not valid UTF-8. Save it as UTF-8, or declare its encoding as Tag-File-Character-Encoding in bagit.txt.", file)
		return nil
	}
	text, marked := bytes.CutPrefix(text, []byte("\ufeff"))
	if marked {
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
// not indented would become a tag.
func cutLabel(text string) (label, value string, ok bool) {
	label, value, ok = strings.Cut(text, ":")
	if !ok || label == "" || strings.TrimSpace(label) != label {
		return "", "", false
	}
	spaced := value == "" || value[0] == ' ' || value[0] == '\t'
	if strings.ContainsAny(label, " \t") && !spaced {
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
