package tagfile

import (
	"bytes"
	"encoding/hex"
	"strings"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

// manifest reads one manifest (RFC 8493, 2.1.3).
type manifest struct {
	*Parser

	algorithm digest.Algorithm
	tag       bool // a tag manifest
	warnings  *finding.List
	entry     func(number int, path []byte, raw string, e Expected)

	dotSlash, scope, binary bool // warned of already
}

// NewManifest reads the manifest of that name. entry receives each good line; raw is the path
// as it was written, if percent-decoding changed it.
func NewManifest(
	name string, enc Encoding, problems, warnings *finding.List, entry func(number int, path []byte, raw string, e Expected),
) *Parser {
	m := &manifest{warnings: warnings, entry: entry}
	m.algorithm, m.tag = OfManifest(name)
	m.Parser = newParser(name, enc, problems, finding.ManifestLong, m.parseLine)
	return m.Parser
}

func (m *manifest) parseLine(number int, line []byte) {
	if number == 1 {
		line = m.dropMark(line)
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	digits, path, binary, ok := splitLine(line)
	if !ok {
		m.problems.Add(finding.ManifestLine, m.file,
			"%s, line %d: expected a digest, white space and a path; found '%s'.", m.file, number, finding.Show(string(line)))
		return
	}
	if hex, escaped := bytes.CutPrefix(digits, []byte(`\`)); escaped && isHexDigest(hex, m.algorithm.Size()) {
		m.problems.Add(finding.ManifestDigest, m.file,
			`%s, line %d: it begins with a backslash. So %ssum of GNU marks a line whose file name it has escaped, which BagIt does not know. `+
				`Write the line without that backslash, and each "\\" in the name as "\"; a file with a line break ("\n") in its name has to be renamed.`,
			m.file, number, m.algorithm)
		return
	}
	if !isHexDigest(digits, m.algorithm.Size()) {
		m.problems.Add(finding.ManifestDigest, m.file,
			"%s, line %d: expected a %s digest of %d hex digits, found '%s'.",
			m.file, number, m.algorithm, 2*m.algorithm.Size(), finding.Show(string(digits)))
		return
	}
	path, raw, ok := m.parsePath(number, path)
	if !ok {
		return
	}
	if binary && !m.binary {
		m.binary = true
		m.warnings.Add(finding.ManifestBinary, m.file,
			`%s, line %d: there is a "*" before the path, as md5sum and its like write for a binary file. It is ignored here and in the lines after it.`, m.file, number)
	}
	m.entry(number, path, raw, Expected{
		Algorithm:   m.algorithm,
		TagManifest: m.tag,
		Digest:      strings.ToLower(string(digits)),
	})
}

// dropMark takes away a byte order mark, which some editors leave.
func (m *manifest) dropMark(line []byte) []byte {
	rest, found := bytes.CutPrefix(line, []byte("\ufeff"))
	if found {
		m.warnings.Add(finding.ByteOrderMark, m.file, "%s begins with a byte order mark, which is ignored.", m.file)
	}
	return rest
}

// splitLine parts a line at its first run of white space. A "*" in the second place
// after the digest is how md5sum marks a file that was read as binary; elsewhere it
// begins a name, but that of no payload file.
func splitLine(line []byte) (digits, path []byte, binary, ok bool) {
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
	return bytes.HasPrefix(bytes.TrimPrefix(path, []byte("./")), []byte(PayloadDir))
}

func isHexDigest(b []byte, size int) bool {
	var space [64]byte
	if size == 0 || len(b) != hex.EncodedLen(size) {
		return false
	}
	_, err := hex.Decode(space[:], b)
	return err == nil
}

func (m *manifest) parsePath(number int, path []byte) (clean []byte, raw string, ok bool) {
	if !m.enc.decoded(path) {
		m.problems.Add(finding.ManifestEncoding, m.file,
			"%s, line %d: the path '%s' is not valid %s.", m.file, number, finding.Show(string(path)), m.enc)
		return nil, "", false
	}
	if rest, found := bytes.CutPrefix(path, []byte("./")); found {
		path = rest
		if !m.dotSlash {
			m.dotSlash = true
			m.warnings.Add(finding.ManifestDotSlash, m.file,
				`%s, line %d: the path begins with "./", which is ignored here and in the lines after it.`, m.file, number)
		}
	}
	clean = percentDecode(path)
	if fault := naming.PathFault(string(clean)); fault != "" {
		m.problems.Add(finding.ManifestPath, m.file,
			"%s, line %d: the path '%s' is not legal: %s.", m.file, number, finding.Show(string(clean)), fault)
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
func (m *manifest) checkScope(number int, path []byte) {
	payload := bytes.HasPrefix(path, []byte(PayloadDir)) || bytes.HasPrefix(path, []byte(`data\`)) // see matchBackslashes
	if m.scope || payload != m.tag {
		return
	}
	m.scope = true
	belongs := "only files under data/ belong into a payload manifest"
	if m.tag {
		belongs = "files under data/ do not belong into a tag manifest"
	}
	m.warnings.Add(finding.ManifestScope, m.file, "%s, line %d: it lists %s, but %s.", m.file, number, finding.Show(string(path)), belongs)
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
