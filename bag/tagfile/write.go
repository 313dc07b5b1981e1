package tagfile

import (
	"fmt"
	"io"
	"strings"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/naming"
)

// encodingFor is EncodingNamed where blank stands for UTF-8.
func encodingFor(name string) (Encoding, error) {
	if name == "" {
		return Encoding{}, nil
	}
	enc, ok := EncodingNamed(name)
	if !ok {
		return Encoding{}, fmt.Errorf("the encoding '%s' is not supported", finding.Show(name))
	}
	return enc, nil
}

// BagitTxt is the content of bagit.txt for a bag whose tag files are in the
// encoding; blank for UTF-8. It is in UTF-8 itself, whatever it declares (RFC
// 8493, 2.1.1). Of a bag that said ASCII it says UTF-8, as which Read took it.
func BagitTxt(encoding string) ([]byte, error) {
	enc, err := encodingFor(encoding)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSpace(encoding)
	if enc.IsUTF8() {
		name = enc.String()
	}
	return fmt.Appendf(nil, "BagIt-Version: 1.0\n%s: %s\n", EncodingTag, name), nil
}

// A ManifestWriter writes a payload manifest or a tag manifest, line by line. It
// holds one line in memory. How long the manifest gets follows from its paths
// alone: to know it before there are digests, write to [io.Discard] and ask Size.
type ManifestWriter struct {
	w         io.Writer
	algorithm digest.Algorithm
	enc       Encoding
	escape    *strings.Replacer
	size      int64
}

// NewManifestWriter writes to w, one line at a time, in the encoding that
// bagit.txt declares; blank for UTF-8.
func NewManifestWriter(w io.Writer, a digest.Algorithm, encoding string) (*ManifestWriter, error) {
	if a.Size() == 0 {
		return nil, fmt.Errorf("no digest algorithm '%s'", finding.Show(string(a)))
	}
	enc, err := encodingFor(encoding)
	if err != nil {
		return nil, err
	}
	// these three, and only these (RFC 8493, 2.1.3)
	escape := strings.NewReplacer("%", "%25", "\n", "%0A", "\r", "%0D")
	return &ManifestWriter{w: w, algorithm: a, enc: enc, escape: escape}, nil
}

// Add writes the line of one file. The error is that of the writer, or it names a
// path that cannot be in a manifest of the encoding; of such a path, nothing is written.
func (m *ManifestWriter) Add(path string, d digest.Digests) error {
	if fault := naming.PathFault(path); fault != "" {
		return fmt.Errorf("the path '%s' cannot be in a manifest: %s", finding.Show(path), fault)
	}
	separator := "  "
	if strings.IndexByte(" \t*", path[0]) >= 0 {
		separator = " *" // what comes after this mark is the path, even if it is such a character
	}
	line, err := m.enc.encode([]byte(d.Hex(m.algorithm) + separator + m.escape.Replace(path) + "\n"))
	if err != nil {
		return fmt.Errorf("the path '%s' cannot be in a manifest: %w", finding.Show(path), err)
	}
	if m.size == 0 {
		line = append(m.enc.writtenMark(), line...)
	}
	n, err := m.w.Write(line)
	m.size += int64(n)
	if err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	return nil
}

// Size is the number of bytes that were written.
func (m *ManifestWriter) Size() int64 { return m.size }
