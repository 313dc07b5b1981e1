package profile

import (
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/digest"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// allows says whether a list of what is allowed has something that fits; an empty one, and
// one with "*", allow everything.
func allows(allowed []string, fits func(allowed string) bool) bool {
	return len(allowed) == 0 || slices.Contains(allowed, "*") || slices.ContainsFunc(allowed, fits)
}

// AllowsManifest says whether a bag may have a manifest of the algorithm.
func (r *Rules) AllowsManifest(a digest.Algorithm, tag bool) bool {
	allowed := r.ManifestsAllowed
	if tag {
		allowed = r.TagManifestsAllowed
	}
	return allows(allowed, func(name string) bool { return name == string(a) })
}

// AllowsTagFile says whether a bag may have a tag file at the path.
func (r *Rules) AllowsTagFile(path string) bool {
	return allows(r.TagFilesAllowed, func(pattern string) bool { return glob(pattern, path) })
}

// AllowsPayloadFile says whether a bag may have a payload file at the path. The patterns
// need not begin with data/.
func (r *Rules) AllowsPayloadFile(path string) bool {
	return allows(r.PayloadFilesAllowed, func(pattern string) bool {
		return glob(pattern, path) || glob(pattern, strings.TrimPrefix(path, tagfile.PayloadDir))
	})
}

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
// since without any it would be no bag; a verdict says what is wrong with it.
func (p *Profile) RestoreAlgorithms() (manifests, tagManifests []digest.Algorithm) {
	r := &p.Rules
	usual := []digest.Algorithm{digest.SHA256}
	switch {
	case p.Name == BTR10:
		usual = []digest.Algorithm{digest.SHA1, digest.SHA256, digest.SHA512}
	case len(r.ManifestsRequired) == 0:
		usual = []digest.Algorithm{digest.SHA256, digest.SHA512}
	}
	manifests = r.chooseAlgorithms(usual, r.ManifestsRequired, false)
	if len(manifests) == 0 {
		manifests = []digest.Algorithm{digest.SHA256}
	}
	return manifests, r.chooseAlgorithms(manifests, r.TagManifestsRequired, true)
}

// chooseAlgorithms takes those that are usual and allowed, and those that are
// required; if that leaves none, the best that is allowed.
func (r *Rules) chooseAlgorithms(usual []digest.Algorithm, required []string, tag bool) (chosen []digest.Algorithm) {
	var possible []digest.Algorithm
	for _, a := range []digest.Algorithm{digest.MD5, digest.SHA1, digest.SHA256, digest.SHA512} {
		may := r.AllowsManifest(a, tag)
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
