package bag

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// RestoreAlgorithms are those for which a bag that is restored by the profile
// gets payload manifests and tag manifests, the weakest digest first. APTrust's
// profiles get MD5 and SHA-256, the BTR profile all but MD5.
//
// Other profiles get what they require, and SHA-256 if they allow it. Where they
// require nothing, SHA-512 is added to that: anyone who reads bags must know these
// two (RFC 8493, 2.4). If they allow neither, it is the best that they allow. Tag
// manifests have the same algorithms, as far as the profile allows, and what it
// requires of them; if it allows none that there is, there are none.
//
// An algorithm that Farol does not have cannot be written, though the profile
// requires it. A profile that allows no other for payload manifests gets SHA-256,
// since without any it would be no bag; Validate says what is wrong with it.
func (p *Profile) RestoreAlgorithms() (manifests, tagManifests []Algorithm) {
	r := p.rules
	usual := []Algorithm{SHA256}
	switch {
	case p.name == btrV10:
		usual = []Algorithm{SHA1, SHA256, SHA512}
	case len(r.ManifestsRequired) == 0:
		usual = []Algorithm{SHA256, SHA512}
	}
	manifests = chooseAlgorithms(usual, r.ManifestsRequired, r.ManifestsAllowed)
	if len(manifests) == 0 {
		manifests = []Algorithm{SHA256}
	}
	return manifests, chooseAlgorithms(manifests, r.TagManifestsRequired, r.TagManifestsAllowed)
}

// chooseAlgorithms takes those that are usual and allowed, and those that are
// required; if that leaves none, the best that is allowed.
func chooseAlgorithms(usual []Algorithm, required, allowed []string) (chosen []Algorithm) {
	var possible []Algorithm
	for _, a := range []Algorithm{MD5, SHA1, SHA256, SHA512} {
		may := anything(allowed) || slices.Contains(allowed, string(a))
		if may {
			possible = append(possible, a)
		}
		if may && slices.Contains(usual, a) || slices.Contains(required, string(a)) {
			chosen = append(chosen, a)
		}
	}
	if len(chosen) == 0 && len(possible) > 0 {
		chosen = possible[len(possible)-1:]
	}
	return chosen
}

// Encoding is what bagit.txt declares as Tag-File-Character-Encoding, as it is
// written there; "UTF-8" if it declares nothing. The bag's manifests and tag
// files are in that encoding, and a bag that is restored with the same tag files
// has to declare it again.
func (b *Bag) Encoding() string {
	if name, _ := b.Tag(bagitTxt, encodingTag); name != "" {
		return name
	}
	return tagEncoding{}.String()
}

// encodingFor is encodingNamed for what [Bag.Encoding] returned, or blank for
// UTF-8.
func encodingFor(name string) (tagEncoding, error) {
	if name == "" {
		return tagEncoding{}, nil
	}
	enc, ok := encodingNamed(name)
	if !ok {
		return tagEncoding{}, fmt.Errorf("the encoding '%s' is not supported", show(name))
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
	if enc.isUTF8() {
		name = enc.String()
	}
	return fmt.Appendf(nil, "BagIt-Version: 1.0\n%s: %s\n", encodingTag, name), nil
}

// A ManifestWriter writes a payload manifest or a tag manifest, line by line. It
// holds one line in memory. How long the manifest gets follows from its paths
// alone: to know it before there are digests, write to [io.Discard] and ask Size.
type ManifestWriter struct {
	w         io.Writer
	algorithm Algorithm
	enc       tagEncoding
	escape    *strings.Replacer
	size      int64
}

// NewManifestWriter writes to w, one line at a time, in the encoding that
// bagit.txt declares; blank for UTF-8.
func NewManifestWriter(w io.Writer, a Algorithm, encoding string) (*ManifestWriter, error) {
	if a.size() == 0 {
		return nil, fmt.Errorf("no digest algorithm '%s'", show(string(a)))
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
// path that cannot be in a manifest of the encoding, of which nothing was written.
func (m *ManifestWriter) Add(path string, d Digests) error {
	if fault := pathFault(path); fault != "" {
		return fmt.Errorf("the path '%s' cannot be in a manifest: %s", show(path), fault)
	}
	separator := "  "
	if strings.IndexByte(" \t*", path[0]) >= 0 {
		separator = " *" // what comes after this mark is the path, even if it is such a character
	}
	line, err := m.enc.encode([]byte(d.Hex(m.algorithm) + separator + m.escape.Replace(path) + "\n"))
	if err != nil {
		return fmt.Errorf("the path '%s' cannot be in a manifest: %w", show(path), err)
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
