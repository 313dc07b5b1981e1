package bag

import (
	"encoding/hex"
	"slices"
)

// A ManifestSet is a set of the manifests that a bag may have: of each of the four
// algorithms a payload manifest and a tag manifest. What a manifest says of a file is
// nearly always the digest that the file has, and then a bit is enough to know it.
type ManifestSet uint8

// manifests are those of a set by their bits. Of each algorithm the payload's comes first.
var manifests = [8]Expected{ //nolint:gochecknoglobals // a constant
	{Algorithm: MD5},
	{Algorithm: MD5, TagManifest: true},
	{Algorithm: SHA1},
	{Algorithm: SHA1, TagManifest: true},
	{Algorithm: SHA256},
	{Algorithm: SHA256, TagManifest: true},
	{Algorithm: SHA512},
	{Algorithm: SHA512, TagManifest: true},
}

// bitOf is the set of one manifest; empty for an algorithm that is not one of the four.
func bitOf(a Algorithm, tag bool) ManifestSet {
	if i := slices.Index(manifests[:], Expected{Algorithm: a, TagManifest: tag}); i >= 0 {
		return 1 << i
	}
	return 0
}

// payloadManifests are all that are not of tag files.
const payloadManifests ManifestSet = 0b01010101

// Expected returns what the manifests say of the file, at most one digest for each.
func (f *File) Expected() []Expected {
	list := make([]Expected, 0, len(manifests)+len(f.Others))
	for bit, e := range manifests {
		if f.Agreed&(1<<bit) != 0 {
			e.Digest = f.Digests.Hex(e.Algorithm)
			list = append(list, e)
		}
	}
	return append(list, f.Others...)
}

// isListed says whether any manifest mentions the file.
func (f *File) isListed() bool { return f.Agreed != 0 || len(f.Others) > 0 }

// inPayloadManifest says whether one of them lists the file.
func (f *File) inPayloadManifest() bool {
	return f.Agreed&payloadManifests != 0 || slices.ContainsFunc(f.Others, func(e Expected) bool { return !e.TagManifest })
}

// said returns the digest that a manifest has for the file, if it has one.
func (f *File) said(a Algorithm, tag bool) (digest string, ok bool) {
	if f.Agreed&bitOf(a, tag) != 0 {
		return f.Digests.Hex(a), true
	}
	for _, e := range f.Others {
		if e.Algorithm == a && e.TagManifest == tag {
			return e.Digest, true
		}
	}
	return "", false
}

// expect adds what a manifest says that has said nothing of the file so far. Of a file that is
// missing, was not read, or has not come yet, what the first manifests say stands for its digests.
func (f *File) expect(e Expected) {
	sum := f.Digests.Sum(e.Algorithm)
	if (f.Missing || f.Unread) && f.Agreed&(bitOf(e.Algorithm, false)|bitOf(e.Algorithm, true)) == 0 && len(e.Digest) == hex.EncodedLen(len(sum)) {
		_, _ = hex.Decode(sum, []byte(e.Digest)) // if it is not hex, it does not agree
	}
	if f.Digests.Agrees(e.Algorithm, e.Digest) {
		f.Agreed |= bitOf(e.Algorithm, e.TagManifest)
		return
	}
	f.Others = append(f.Others, e)
}

// unexpect takes back what a manifest says.
func (f *File) unexpect(a Algorithm, tag bool) {
	f.Agreed &^= bitOf(a, tag)
	f.Others = slices.DeleteFunc(f.Others, func(e Expected) bool { return e.Algorithm == a && e.TagManifest == tag })
}
