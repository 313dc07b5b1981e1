package tagfile

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

// fetch reads fetch.txt (RFC 8493, 2.2.3).
type fetch struct {
	*Parser

	listed func(number int, path string)
}

// NewFetch reads fetch.txt. Nothing is ever fetched: what it lists must be in the bag, like
// everything. listed receives each good line.
func NewFetch(enc Encoding, problems *finding.List, listed func(number int, path string)) *Parser {
	p := &fetch{listed: listed}
	p.Parser = newParser(Fetch, enc, problems, finding.FetchLine, p.parseLine)
	return p.Parser
}

func (p *fetch) parseLine(number int, line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	address, rest := cutField(line)
	length, path := cutField(rest)
	u, err := url.Parse(string(address))
	if err != nil || !u.IsAbs() || len(path) == 0 || len(length) == 0 || string(length) != "-" && strings.Trim(string(length), "0123456789") != "" {
		p.problems.Add(finding.FetchLine, Fetch,
			"%s, line %d: expected an address, a length (or -) and a path; found '%s'.", Fetch, number, finding.Show(string(line)))
		return
	}
	path = percentDecode(bytes.TrimPrefix(path, []byte("./")))
	fault := naming.PathFault(string(path))
	if !p.enc.decoded(path) {
		fault = "it is not valid " + p.enc.String()
	}
	switch {
	case fault != "":
		p.problems.Add(finding.FetchPath, Fetch,
			"%s, line %d: the path '%s' is not legal: %s.", Fetch, number, finding.Show(string(path)), fault)
	case !bytes.HasPrefix(path, []byte(PayloadDir)):
		p.problems.Add(finding.FetchScope, Fetch,
			"%s, line %d: it lists %s, but only files under data/ may be fetched.", Fetch, number, finding.Show(string(path)))
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
