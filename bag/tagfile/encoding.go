package tagfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

// Encoding is what Tag-File-Character-Encoding declares for manifests and
// tag files. bagit.txt itself is always in UTF-8 (RFC 8493, 2.1.1), which is the
// zero value.
type Encoding struct {
	name string
	enc  encoding.Encoding
}

// EncodingNamed returns false for an encoding that is not supported. The names
// are those of IANA's register, and some that tools write.
func EncodingNamed(name string) (Encoding, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	switch name {
	case "UTF-8", "UTF8", "US-ASCII", "ASCII":
		return Encoding{}, true
	case "ISO8859-1":
		name = "ISO-8859-1"
	case "UTF-16LE", "UTF16LE":
		return Encoding{name, unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)}, true
	case "UTF-16", "UTF16", "UTF-16BE", "UTF16BE":
		// without a mark, UTF-16 is big-endian (RFC 2781, 4.3)
		return Encoding{name, unicode.UTF16(unicode.BigEndian, unicode.UseBOM)}, true
	case "UTF-32", "UTF-32BE":
		return Encoding{name, utf32.UTF32(utf32.BigEndian, utf32.UseBOM)}, true
	case "UTF-32LE":
		return Encoding{name, utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)}, true
	}
	enc, err := ianaindex.IANA.Encoding(name)
	return Encoding{name, enc}, err == nil && enc != nil
}

// IsUTF8 says whether it is UTF-8; ASCII is a part of it.
func (e Encoding) IsUTF8() bool { return e.enc == nil }

// String returns the name of the encoding.
func (e Encoding) String() string {
	if e.IsUTF8() {
		return "UTF-8"
	}
	return e.name
}

// KeepsASCII says that what is ASCII means the same in this encoding.
func (e Encoding) KeepsASCII() bool {
	var all []byte
	for c := range byte(utf8.RuneSelf) {
		all = append(all, c)
	}
	text, err := e.decode(all)
	return err == nil && bytes.Equal(text, all)
}

// decoded says whether a text that went through the decoder is what was written:
// the decoders put U+FFFD where there was something that they cannot read.
func (e Encoding) decoded(text []byte) bool {
	if e.IsUTF8() {
		return utf8.Valid(text)
	}
	return !bytes.ContainsRune(text, utf8.RuneError)
}

// writer returns a function that decodes into w, which does not fail.
func (e Encoding) writer(w io.Writer) func([]byte) {
	if !e.IsUTF8() {
		w = transform.NewWriter(w, e.enc.NewDecoder())
	}
	return func(p []byte) { _, _ = w.Write(p) }
}

func (e Encoding) decode(raw []byte) ([]byte, error) {
	if e.IsUTF8() {
		return raw, nil
	}
	out, err := e.enc.NewDecoder().Bytes(raw)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", e, err)
	}
	return out, nil
}

// encode is the opposite of decode, without a byte order mark. It refuses what
// would not be read as it is here; some characters have a code that stands for
// another one too. What ends in a line feed may be followed by anything.
func (e Encoding) encode(text []byte) ([]byte, error) {
	if e.IsUTF8() {
		return text, nil
	}
	raw, err := e.enc.NewEncoder().Bytes(text)
	if err != nil {
		return nil, fmt.Errorf("it cannot be written in %s: %w", e, err)
	}
	back, err := e.decode(raw)
	if err != nil || !e.decoded(back) || !bytes.Equal(back, text) {
		return nil, fmt.Errorf("it cannot be written in %s", e)
	}
	return bytes.TrimPrefix(raw, e.mark()), nil
}

// mark is the byte order mark that the encoder writes before anything else.
func (e Encoding) mark() []byte {
	if e.IsUTF8() {
		return nil
	}
	mark, err := e.enc.NewEncoder().Bytes(nil)
	if err != nil {
		return nil
	}
	return mark
}

// writtenMark is the mark that a new file needs: none, if the name of the encoding
// says the order of bytes (RFC 2781, 3.3).
func (e Encoding) writtenMark() []byte {
	if strings.HasSuffix(e.name, "LE") || strings.HasSuffix(e.name, "BE") {
		return nil
	}
	return e.mark()
}

// of is the encoding of a certain file: the decoders believe the mark at its
// beginning more than the name.
func (e Encoding) of(content []byte) Encoding {
	for _, name := range []string{"UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"} {
		other, _ := EncodingNamed(name)
		mark := other.mark()
		if len(mark) == len(e.mark()) && bytes.HasPrefix(content, mark) {
			return other
		}
	}
	return e
}

// cutMark parts the mark that the decoder drops, and one that ParseTags drops,
// from the text after it.
func (e Encoding) cutMark(content []byte) (mark, rest []byte) {
	rest = bytes.TrimPrefix(content, e.mark())
	if second, err := e.encode([]byte("\ufeff")); err == nil {
		rest = bytes.TrimPrefix(rest, second)
	}
	return content[:len(content)-len(rest)], rest
}

// A textFile is a text whose lines can be distinguished in the bytes that it was
// decoded from. There may be a million of them; so they are not kept.
type textFile struct {
	content, text []byte
	ends          []int32 // in content, after each CR and LF of the text; nil if content is the text
}

// A textLine is a line of a text file.
type textLine struct {
	raw  []byte // as it is in the file, with its end
	text []byte // decoded, without its end
	end  []byte // LF, CR LF, CR or, after the last line, nothing
}

// lines cuts the text where lineSplitter does.
func (f *textFile) lines() iter.Seq[textLine] {
	return func(yield func(textLine) bool) {
		from, ends := 0, 0
		for rest := f.text; len(rest) > 0; {
			n := bytes.IndexAny(rest, "\r\n")
			if n < 0 {
				n = len(rest)
			}
			l := textLine{text: rest[:n], end: lineEnd(rest[n:])}
			rest = rest[n+len(l.end):]
			ends += len(l.end)
			to := len(f.content) // with what may come after the last character
			switch {
			case len(rest) == 0:
			case f.ends == nil:
				to = len(f.content) - len(rest)
			default:
				to = int(f.ends[ends-1])
			}
			l.raw = f.content[from:to]
			if from = to; !yield(l) {
				return
			}
		}
	}
}

// lineEnd is the end of a line with which text begins.
func lineEnd(text []byte) []byte {
	switch {
	case bytes.HasPrefix(text, []byte("\r\n")):
		return text[:2]
	case bytes.HasPrefix(text, []byte("\n")), bytes.HasPrefix(text, []byte("\r")):
		return text[:1]
	default:
		return nil
	}
}

// open decodes content, of no more than 2 GiB, that has no mark. To learn where each
// line is in it, the decoder is given no more at a time than it needs for one
// character.
func (e Encoding) open(content []byte) (*textFile, error) {
	refused := fmt.Errorf("it is not valid %s", e)
	if e.IsUTF8() {
		if !e.decoded(content) {
			return nil, refused
		}
		return &textFile{content: content, text: content}, nil
	}
	f := &textFile{content: content, ends: []int32{}}
	decoder := e.enc.NewDecoder()
	var buffer [16]byte
	for at, take := 0, 1; at < len(content); {
		n, read, err := decoder.Transform(buffer[:], content[at:at+take], at+take == len(content))
		at += read
		f.text = append(f.text, buffer[:n]...)
		if n > 0 && len(lineEnd(buffer[n-1:n])) > 0 {
			f.ends = append(f.ends, int32(at)) //nolint:gosec // a tag file is not that large
		}
		switch {
		case read > 0:
			take = 1
		case errors.Is(err, transform.ErrShortSrc) && take < len(buffer) && at+take < len(content):
			take++
		default:
			return nil, refused
		}
	}
	if !e.decoded(f.text) {
		return nil, refused
	}
	return f, nil
}
