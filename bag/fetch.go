package bag

import (
	"bytes"
	"net/url"
)

// fetchParser reads fetch.txt as it streams by (RFC 8493, 2.2.3). Nothing is ever
// fetched: what it lists must be in the bag, like everything.
type fetchParser struct {
	enc      tagEncoding
	lines    lineSplitter
	ascii    bool
	problems *findings
	listed   func(number int, path string)
}

// fetchLine is where a file was listed.
type fetchLine struct {
	number int
	path   string
}

func (rd *reader) fetchFile() (tee func([]byte), done func()) {
	p := &fetchParser{enc: rd.encoding, ascii: true, problems: &rd.textProblems}
	p.lines.line = p.parseLine
	p.lines.most = maxLine
	p.listed = func(number int, path string) {
		if !rd.takes(entryRoom + int64(len(path))) {
			return
		}
		rd.fetchLines = append(rd.fetchLines, fetchLine{number, path})
	}
	rd.fetch = p
	return rd.encoding.writer(&p.lines), func() {
		p.lines.end()
		if p.lines.tooLong > 0 {
			p.problems.add(codeFetchLine, fetchTxt,
				"%s: line %d is longer than %d bytes; nothing after it was read.", fetchTxt, p.lines.tooLong, maxLine)
		}
	}
}

func (p *fetchParser) parseLine(number int, line []byte) {
	p.ascii = p.ascii && isASCII(line)
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	address, rest := cutField(line)
	length, path := cutField(rest)
	u, err := url.Parse(string(address))
	if err != nil || !u.IsAbs() || len(path) == 0 || string(length) != "-" && !isDigits(string(length)) {
		p.problems.add(codeFetchLine, fetchTxt,
			"%s, line %d: expected an address, a length (or -) and a path; found '%s'.", fetchTxt, number, show(string(line)))
		return
	}
	path = percentDecode(bytes.TrimPrefix(path, []byte("./")))
	fault := pathFault(string(path))
	if !p.enc.decoded(path) {
		fault = "it is not valid " + p.enc.String()
	}
	switch {
	case fault != "":
		p.problems.add(codeFetchPath, fetchTxt,
			"%s, line %d: the path '%s' is not legal: %s.", fetchTxt, number, show(string(path)), fault)
	case !bytes.HasPrefix(path, []byte(payloadDir)):
		p.problems.add(codeFetchScope, fetchTxt,
			"%s, line %d: it lists %s, but only files under data/ may be fetched.", fetchTxt, number, show(string(path)))
	default:
		p.listed(number, string(path))
	}
}

// cutField takes the first field off a line, and the white space after it.
func cutField(line []byte) (field, rest []byte) {
	i := bytes.IndexAny(line, " \t")
	if i < 0 {
		return line, nil
	}
	return line[:i], bytes.TrimLeft(line[i:], " \t")
}

// fetched compares fetch.txt with the payload manifests, which must list all that
// it lists.
func (rd *reader) fetched() {
	for _, l := range rd.fetchLines {
		f := rd.byPath[l.path]
		if f == nil || !f.inPayloadManifest() {
			rd.textProblems.add(codeFetchUnlisted, fetchTxt,
				"%s, line %d: %s is in no payload manifest.", fetchTxt, l.number, show(l.path))
			continue
		}
		f.Fetch = true
	}
}
