// Package tagfile reads and writes the files that describe a bag: bagit.txt, bag-info.txt,
// manifests and fetch.txt, in the encoding that the bag declares. What comes in are their
// bytes, as they stream by and from anyone; what goes out are tags, what manifests say of
// files, and findings about all that is wrong. The other way round, what comes in are
// digests, paths and new values of tags, and what goes out are the bytes of such a file.
package tagfile

import (
	"strings"

	"github.com/farol-preservation/farol/bag/digest"
)

// The names that BagIt gives to files and to the directory of the payload.
const (
	Bagit       = "bagit.txt"
	BagInfo     = "bag-info.txt"
	APTrustInfo = "aptrust-info.txt"
	Fetch       = "fetch.txt"
	PayloadDir  = "data/"
)

// A Tag is one line (with what is folded into it) of a tag file. Name keeps its
// case; compare it by [strings.EqualFold].
type Tag struct {
	File  string `json:"file"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Expected is the digest that one manifest has for a file, in lower-case hex.
type Expected struct {
	Algorithm   digest.Algorithm `json:"algorithm"`
	TagManifest bool             `json:"tag_manifest,omitzero"`
	Digest      string           `json:"digest"`
}

// Manifest is the name of the manifest that said it.
func (e Expected) Manifest() string { return ManifestName(e.Algorithm, e.TagManifest) }

// ManifestName is the path in the bag of a payload manifest or of a tag manifest.
func ManifestName(a digest.Algorithm, tag bool) string {
	if tag {
		return "tagmanifest-" + string(a) + ".txt"
	}
	return "manifest-" + string(a) + ".txt"
}

// OfManifest takes the algorithm, and whether it is a tag manifest, out of a manifest's name.
func OfManifest(name string) (a digest.Algorithm, tag bool) {
	kind, rest, _ := strings.Cut(name, "-")
	return digest.Algorithm(strings.TrimSuffix(rest, ".txt")), kind == "tagmanifest"
}

// HasTags says whether the tags of the file are wanted.
func HasTags(path string) bool { return path == Bagit || path == BagInfo || path == APTrustInfo }
