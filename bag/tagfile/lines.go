package tagfile

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag/finding"
)

// maxLine bounds a line of a manifest: a path of 1024 bytes, each
// percent-encoded, and the longest digest take less than a twentieth.
const maxLine = 64 << 10

// lineSplitter cuts a stream into lines, which end in LF, CR LF or CR, as it
// passes. It holds at most one line.
type lineSplitter struct {
	line    func(number int, line []byte)
	most    int // longest line in bytes
	carry   []byte
	number  int
	skipLF  bool // the last byte was a CR that ended a line
	tooLong int  // number of the line that was too long; nothing is read after it
}

func (s *lineSplitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && s.tooLong == 0 {
		if s.skipLF && p[0] == '\n' {
			p = p[1:]
			s.skipLF = false
			continue
		}
		s.skipLF = false
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			i = len(p)
		}
		if len(s.carry)+i > s.most {
			s.tooLong = s.number + 1
			break
		}
		if i == len(p) {
			s.carry = append(s.carry, p...)
			break
		}
		s.emit(p[:i])
		s.skipLF = p[i] == '\r'
		p = p[i+1:]
	}
	return n, nil
}

func (s *lineSplitter) emit(p []byte) {
	s.number++
	if len(s.carry) > 0 {
		p = append(s.carry, p...)
		s.carry = p[:0]
	}
	s.line(s.number, p)
}

// end hands over a last line that nothing ended.
func (s *lineSplitter) end() {
	if len(s.carry) > 0 && s.tooLong == 0 {
		s.emit(nil)
	}
}

// A Parser reads a manifest or fetch.txt as it streams by. It holds at most one line. What is
// wrong becomes a finding.
type Parser struct {
	// ASCII says that there was nothing but ASCII so far.
	ASCII bool

	file     string
	enc      Encoding
	write    func([]byte) // to lines, through the decoder of the bag's encoding
	lines    lineSplitter
	problems *finding.List
	long     string // the code for a line that is too long
}

func newParser(file string, enc Encoding, problems *finding.List, long string, line func(number int, line []byte)) *Parser {
	p := &Parser{ASCII: true, file: file, enc: enc, problems: problems, long: long}
	p.lines = lineSplitter{most: maxLine, line: func(number int, text []byte) {
		p.ASCII = p.ASCII && IsASCII(text)
		line(number, text)
	}}
	p.write = enc.writer(&p.lines)
	return p
}

// Write takes the next bytes of the file. It never fails, and neither changes nor keeps them.
func (p *Parser) Write(text []byte) { p.write(text) }

// End is called when the file has ended.
func (p *Parser) End() {
	p.lines.end()
	if p.lines.tooLong > 0 {
		p.problems.Add(p.long, p.file, "%s: line %d is longer than %d bytes; nothing after it was read.", p.file, p.lines.tooLong, maxLine)
	}
}

// IsASCII says whether a text has no other characters.
func IsASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}
