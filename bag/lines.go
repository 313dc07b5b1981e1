package bag

import "bytes"

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
