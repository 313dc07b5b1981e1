package bag

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

// manifestParser reads one manifest as it streams by (RFC 8493, 2.1.3). Write
// never fails: what is wrong becomes a finding.
type manifestParser struct {
	name      string
	algorithm Algorithm
	tag       bool // a tag manifest

	// entry receives each good line. raw is the path as it was written, if
	// percent-decoding changed it.
	entry    func(number int, path []byte, raw string, e Expected)
	problems *findings
	warnings *findings

	lines lineSplitter
	write func([]byte) // to lines, through the decoder of the bag's encoding
	ascii bool         // nothing but ASCII so far
	enc   tagEncoding

	raw     []byte // as long as the encoding is not known
	dropped bool   // raw was too large

	dotSlash, scope, binary bool // warned of already
}

// setup must be called before the first write.
func (m *manifestParser) setup(enc tagEncoding) {
	m.ascii, m.enc = true, enc
	m.lines.line = m.parseLine
	m.lines.most = maxLine
	m.write = enc.writer(&m.lines)
}

func (m *manifestParser) end() {
	m.lines.end()
	if m.lines.tooLong > 0 {
		m.problems.add(codeManifestLong, m.name,
			"%s: line %d is longer than %d bytes; nothing after it was read.", m.name, m.lines.tooLong, maxLine)
	}
}

func (m *manifestParser) parseLine(number int, line []byte) {
	m.ascii = m.ascii && isASCII(line)
	if number == 1 {
		line = m.dropMark(line)
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	digest, path, binary, ok := splitLine(line)
	if !ok {
		m.problems.add(codeManifestLine, m.name,
			"%s, line %d: expected a digest, white space and a path; found '%s'.", m.name, number, show(string(line)))
		return
	}
	if hex, escaped := bytes.CutPrefix(digest, []byte(`\`)); escaped && isHexDigest(hex, m.algorithm.size()) {
		m.problems.add(codeManifestDigest, m.name,
			`%s, line %d: it begins with a backslash. So %ssum of GNU marks a line whose file name it has escaped, which BagIt does not know. `+
				`Write the line without that backslash, and each "\\" in the name as "\"; a file with a line break ("\n") in its name has to be renamed.`,
			m.name, number, m.algorithm)
		return
	}
	if !isHexDigest(digest, m.algorithm.size()) {
		m.problems.add(codeManifestDigest, m.name,
			"%s, line %d: expected a %s digest of %d hex digits, found '%s'.",
			m.name, number, m.algorithm, 2*m.algorithm.size(), show(string(digest)))
		return
	}
	path, raw, ok := m.parsePath(number, path)
	if !ok {
		return
	}
	if binary && !m.binary {
		m.binary = true
		m.warnings.add(codeManifestBinary, m.name,
			`%s, line %d: there is a "*" before the path, as md5sum and its like write for a binary file. It is ignored here and in the lines after it.`, m.name, number)
	}
	m.entry(number, path, raw, Expected{
		Algorithm:   m.algorithm,
		TagManifest: m.tag,
		Digest:      strings.ToLower(string(digest)),
	})
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}

// dropMark takes away a byte order mark, which some editors leave.
func (m *manifestParser) dropMark(line []byte) []byte {
	rest, found := bytes.CutPrefix(line, []byte("\ufeff"))
	if found {
		m.warnings.add(codeByteOrderMark, m.name, "%s begins with a byte order mark, which is ignored.", m.name)
	}
	return rest
}

// splitLine parts a line at its first run of white space. A "*" in the second place
// after the digest is how md5sum marks a file that was read as binary; elsewhere it
// begins a name, but that of no payload file.
func splitLine(line []byte) (digest, path []byte, binary, ok bool) {
	i := bytes.IndexAny(line, " \t")
	if i <= 0 {
		return nil, nil, false, false
	}
	path = bytes.TrimLeft(line[i:], " \t")
	if rest, star := bytes.CutPrefix(path, []byte("*")); star && (len(line)-len(path) == i+1 || isPayloadLine(rest)) {
		path, binary = rest, !bytes.ContainsAny(rest[:min(len(rest), 1)], " \t*") // else it keeps a name that begins so
	}
	return line[:i], path, binary, len(path) > 0
}

func isPayloadLine(path []byte) bool {
	return bytes.HasPrefix(bytes.TrimPrefix(path, []byte("./")), []byte(payloadDir))
}

func isHexDigest(b []byte, size int) bool {
	var space [64]byte
	if size == 0 || len(b) != hex.EncodedLen(size) {
		return false
	}
	_, err := hex.Decode(space[:], b)
	return err == nil
}

func (m *manifestParser) parsePath(number int, path []byte) (clean []byte, raw string, ok bool) {
	if !m.enc.decoded(path) {
		m.problems.add(codeManifestEncoding, m.name,
			"%s, line %d: the path '%s' is not valid %s.", m.name, number, show(string(path)), m.enc)
		return nil, "", false
	}
	if rest, found := bytes.CutPrefix(path, []byte("./")); found {
		path = rest
		if !m.dotSlash {
			m.dotSlash = true
			m.warnings.add(codeManifestDotSlash, m.name,
				`%s, line %d: the path begins with "./", which is ignored here and in the lines after it.`, m.name, number)
		}
	}
	clean = percentDecode(path)
	if fault := pathFault(string(clean)); fault != "" {
		m.problems.add(codeManifestPath, m.name,
			"%s, line %d: the path '%s' is not legal: %s.", m.name, number, show(string(clean)), fault)
		return nil, "", false
	}
	if len(clean) != len(path) {
		raw = string(path)
	}
	m.checkScope(number, clean)
	return clean, raw, true
}

// checkScope warns of lines that belong into the other sort of manifest. Their
// digests are verified all the same.
func (m *manifestParser) checkScope(number int, path []byte) {
	payload := bytes.HasPrefix(path, []byte(payloadDir)) || bytes.HasPrefix(path, []byte(`data\`)) // see matchBackslashes
	if m.scope || payload != m.tag {
		return
	}
	m.scope = true
	belongs := "only files under data/ belong into a payload manifest"
	if m.tag {
		belongs = "files under data/ do not belong into a tag manifest"
	}
	m.warnings.add(codeManifestScope, m.name, "%s, line %d: it lists %s, but %s.", m.name, number, show(string(path)), belongs)
}

// percentDecode undoes the three encodings of RFC 8493, 2.1.3, and no others:
// line feed, carriage return, and the percent sign itself. It returns a new
// slice if it changes anything.
func percentDecode(path []byte) []byte {
	if bytes.IndexByte(path, '%') < 0 {
		return path
	}
	out := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			out = append(out, path[i])
			continue
		}
		switch strings.ToUpper(string(path[i+1 : i+3])) {
		case "0A":
			out = append(out, '\n')
		case "0D":
			out = append(out, '\r')
		case "25":
			out = append(out, '%')
		default:
			out = append(out, '%')
			continue
		}
		i += 2
	}
	return out
}
