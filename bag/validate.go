package bag

import (
	"maps"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// A Verdict is what [Bag.Validate] found. As JSON its lists are never null.
type Verdict struct {
	Valid bool `json:"valid"`
	// Unknown says that nothing is wrong with the bag but that a manifest cannot be
	// verified, so that it may well be valid.
	Unknown  bool      `json:"unknown,omitempty"`
	Errors   []Finding `json:"errors"`
	Warnings []Finding `json:"warnings"`
	Profile  string    `json:"profile"`
	Files    int       `json:"files"` // in the tar, tag files and manifests included
	Bytes    int64     `json:"bytes"` // their size
	More     int       `json:"more,omitempty"`
	// Unread is the number of files whose digests were not compared, see [ReadOutline].
	Unread int `json:"unread,omitempty"`
}

// Validate judges the bag by the rules of BagIt (RFC 8493, 3, or those of 0.97
// for an older bag) and of the profile; nil stands for the built-in one that
// [Profiles.Of] chooses. It collects the errors of all rules, Problems first, up
// to 1000; Verdict.More counts the rest.
//
// It only computes, and holds no more than 50 bytes for each file in the meantime.
func (b *Bag) Validate(p *Profile) Verdict {
	if p == nil {
		p = Profiles{}.Of(b)
	}
	j := &judge{bag: b, profile: p, rules: &p.Rules, cut: cutShort(b.Problems) || finding.Has(b.Problems, finding.NoTopDir)}
	if p.Fault != nil {
		j.errors.Add(finding.ProfileUnreadable, "", "The rules of the profile %s are not available: %v.", p.Name, p.Fault)
	}
	for _, member := range p.Ignored {
		j.warnings.Add(finding.ProfileMember, "",
			"The profile %s has the member '%s', which BagIt Profiles 1.4 does not define. It has no effect.", p.Name, finding.Show(member))
	}
	j.serialization()
	j.version()
	j.identifiers()
	j.fetch()
	j.manifests()
	j.tagFilesAllowed()
	for _, file := range p.TagFiles() {
		j.tags(file, p.TagRules(file))
	}
	j.files()
	j.payload()
	j.oxum()
	j.clashes()

	return Verdict{
		Valid:    len(b.Problems) == 0 && len(j.errors.Found) == 0,
		Unknown:  len(b.Problems) == 0 && len(j.errors.Found) > 0 && !slices.ContainsFunc(j.errors.Found, func(f Finding) bool { return f.Code != finding.ManifestUnknown }),
		Errors:   capped(b.Problems, j.errors.Found),
		Warnings: capped(b.Warnings, j.warnings.Found),
		Profile:  p.Name,
		Files:    j.present,
		Bytes:    b.Bytes,
		Unread:   j.unread,
		More:     b.More + j.errors.More + max(0, len(b.Problems)+len(j.errors.Found)-finding.Most),
	}
}

// capped joins the lists, and never returns nil.
func capped(a, b []Finding) []Finding {
	all := append(append(make([]Finding, 0, len(a)+len(b)), a...), b...)
	return all[:min(len(all), finding.Most)]
}

// A judge gathers the findings of one Validate.
type judge struct {
	bag              *Bag
	profile          *Profile
	rules            *profile.Rules
	errors, warnings finding.List

	// cut says that the bag was not read to its end. What is missing then is
	// not reported: it may well be there, and one fault needs one message.
	cut     bool
	loose   bool // one payload manifest is enough to list a file
	present int  // files in the tar
	unread  int  // those whose content was not read
}

// serialization is a tar or, if someone checks a bag before packing it, none.
func (j *judge) serialization() {
	if j.bag.Unpacked {
		if j.rules.Serialization == "required" {
			j.warnings.Add(finding.NotSerialized, "",
				"The profile %s requires that a bag is sent as one tar file. This directory was checked as if it were packed.", j.profile)
		}
		return
	}
	accepted := len(j.rules.AcceptSerialization) == 0 || slices.ContainsFunc(j.rules.AcceptSerialization, func(s string) bool {
		return slices.Contains([]string{"application/tar", "application/x-tar", "application/x-gtar", "application/x-ustar"}, s)
	})
	if j.rules.Serialization == "forbidden" || !accepted {
		j.errors.Add(finding.Serialization, "", "BagIt profile does not allow serialization format application/tar.")
	}
}

// versions are those of BagIt that there are. What distinguishes them before 1.0
// does not matter for checking a bag.
func versions() []string { return []string{"0.93", "0.94", "0.95", "0.96", "0.97", "1.0"} }

func (j *judge) version() {
	accepted := j.rules.AcceptVersion
	if len(accepted) == 0 {
		accepted = versions()
	}
	version, ok := j.bag.Tag(tagfile.Bagit, "BagIt-Version")
	switch {
	case j.bag.file(tagfile.Bagit) == nil:
		if !j.cut {
			j.errors.Add(finding.TagFileMissing, tagfile.Bagit, "bagit.txt is missing. Every bag must have it.")
		}
	case j.bag.unread(tagfile.Bagit):
	case !ok || version == "":
		j.errors.Add(finding.VersionMissing, tagfile.Bagit, "Missing required tag bagit.txt/BagIt-Version.")
	case !slices.Contains(accepted, version):
		j.errors.Add(finding.VersionNotAllowed, tagfile.Bagit,
			"BagIt-Version %s is not permitted in this BagIt profile. It allows %s.",
			finding.Show(version), strings.Join(accepted, ", "))
	}
	j.declaration()
}

// declaration sees that bagit.txt has its two lines, in their order (RFC 8493, 2.1.1).
func (j *judge) declaration() {
	const should = "It should have BagIt-Version and then Tag-File-Character-Encoding, and nothing else."
	seen := map[string]bool{}
	for _, t := range j.bag.Tags {
		if t.File != tagfile.Bagit {
			continue
		}
		name := strings.ToLower(t.Name)
		switch version, encoding := strings.ToLower("BagIt-Version"), strings.ToLower(tagfile.EncodingTag); {
		case name != version && name != encoding:
			j.warnings.Add(finding.Declaration, tagfile.Bagit, "bagit.txt has the tag %s. %s", finding.Show(t.Name), should)
		case seen[name]:
			j.warnings.Add(finding.Declaration, tagfile.Bagit, "bagit.txt has the tag %s more than once. %s", finding.Show(t.Name), should)
		case name == version && seen[encoding]:
			j.warnings.Add(finding.DeclarationOrder, tagfile.Bagit, "In bagit.txt, BagIt-Version comes second. %s", should)
		}
		seen[name] = true
	}
}

// unread says that a tag file is there and could not be read to its end: what is not in
// its tags may still be in the file, and one fault needs one message.
func (b *Bag) unread(file string) bool {
	return slices.ContainsFunc(b.Problems, func(f Finding) bool {
		return f.Path == file && (f.Code == finding.TagFileTooLarge || f.Code == finding.TagFileEncoding)
	})
}

// before10 says whether the bag follows a version of BagIt before 1.0.
func (b *Bag) before10() bool {
	version, _ := b.Tag(tagfile.Bagit, "BagIt-Version")
	return strings.HasPrefix(version, "0.") && slices.Contains(versions(), version)
}

// identifiers warns where a value was not followed.
func (j *judge) identifiers() {
	if j.profile.Name == profile.BagIt {
		return
	}
	id := j.bag.ProfileIdentifier()
	name, known := profile.For(id)
	switch {
	case id == j.profile.Identifier(), known && name == j.profile.Name:
	case name == profile.APTrust22 && newerOption(j.bag):
		j.warnings.Add(finding.ProfileNotNamed, tagfile.BagInfo,
			"The bag names the profile %s, which does not have the storage option %s. It was checked as %s, which has all of the other and this one.",
			name, finding.Show(j.bag.StorageOption()), j.profile)
	case name == j.profile.Name:
		j.warnings.Add(finding.UnknownProfile, tagfile.BagInfo,
			"The BagIt-Profile-Identifier %s is not known. The bag was checked as %s.", finding.Show(id), name)
	default:
		j.warnings.Add(finding.ProfileNotNamed, tagfile.BagInfo,
			"The bag does not say that it follows the profile %s, by which it was checked. In bag-info.txt, BagIt-Profile-Identifier would have to be '%s'.",
			j.profile, finding.Show(j.profile.Identifier()))
	}
	file, tag := profile.StorageTag(j.profile.Name)
	value, _ := j.bag.Tag(file, tag)
	if _, legal := profile.StorageOption(value); legal || value == "" {
		return
	}
	switch j.profile.Name {
	case profile.BTR10:
		j.warnings.Add(finding.StorageOption, tagfile.BagInfo,
			"In file bag-info.txt, tag %s has illegal value '%s'. Standard storage is used.", tag, finding.Show(value))
	case profile.APTrust22, profile.APTrust23: // have a rule for it
	default:
		j.errors.Add(finding.TagIllegal, file, "In file %s, tag %s has illegal value '%s'. Legal are %s.",
			file, tag, finding.Show(value), strings.Join(profile.StorageOptions(), ", "))
	}
}

// fetch looks at fetch.txt (RFC 8493, 2.2.3). A bag must be whole when it is
// checked: what fetch.txt lists and nobody fetched is missing.
func (j *judge) fetch() {
	switch {
	case j.bag.HasFetch && !j.rules.AllowFetch:
		j.errors.Add(finding.FetchNotAllowed, tagfile.Fetch,
			"Bag has fetch.txt file which profile %s does not allow: all files must be in the bag itself.", j.profile)
	case !j.bag.HasFetch && j.rules.FetchRequired && !j.cut:
		j.errors.Add(finding.FetchMissing, tagfile.Fetch, "fetch.txt is missing. The profile %s requires it.", j.profile)
	}
}

func (j *judge) manifests() {
	b, r := j.bag, j.rules
	j.allowed("manifest", false, b.Manifests, r.ManifestsAllowed)
	j.allowed("tag manifest", true, b.TagManifests, r.TagManifestsAllowed)
	if j.cut {
		return
	}
	j.required("manifest", false, b.Manifests, r.ManifestsRequired)
	j.required("tag manifest", true, b.TagManifests, r.TagManifestsRequired)
	if len(b.Manifests) == 0 {
		j.errors.Add(finding.ManifestMissing, "", "Bag must have at least one payload manifest, like manifest-sha256.txt.")
	}
}

func (j *judge) allowed(what string, tag bool, have []Algorithm, allowed []string) {
	for _, a := range have {
		switch {
		case !j.rules.AllowsManifest(a, tag):
			j.errors.Add(finding.ManifestNotAllowed, tagfile.ManifestName(a, tag),
				"Bag contains illegal %s '%s'. The profile allows %s.", what, finding.Show(string(a)), strings.Join(allowed, ", "))
		case a.Size() == 0:
			j.errors.Add(finding.ManifestUnknown, tagfile.ManifestName(a, tag),
				"The %s '%s' cannot be verified, since its algorithm is not supported: whether the bag is valid is not known. "+
					"Put a manifest of md5, sha1, sha256 or sha512 in its place.", what, finding.Show(string(a)))
		}
	}
}

func (j *judge) required(what string, tag bool, have []Algorithm, required []string) {
	for _, r := range required {
		if !slices.Contains(have, Algorithm(r)) {
			j.errors.Add(finding.ManifestMissing, tagfile.ManifestName(Algorithm(r), tag), "Bag is missing required %s '%s'.", what, r)
		}
	}
}

func (j *judge) tagFilesAllowed() {
	for _, file := range j.rules.TagFilesRequired {
		if !j.cut && j.bag.file(file) == nil {
			j.errors.Add(finding.TagFileMissing, file, "%s is missing. The profile requires it.", file)
		}
	}
	for _, f := range j.bag.Files {
		described := f.Kind() == TagFile && !f.Missing && f.Path != tagfile.Bagit && f.Path != tagfile.BagInfo
		if described && !j.rules.AllowsTagFile(f.Path) {
			j.errors.Add(finding.TagFileNotAllowed, f.Path, "Bag contains illegal tag file '%s'.", finding.Show(f.Path))
		}
	}
}

// tags checks one tag file against the profile.
func (j *judge) tags(file string, rules map[string]profile.TagRule) {
	var required []string
	for name, rule := range rules {
		if rule.Required {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	if j.bag.file(file) == nil {
		if len(required) > 0 && !j.cut && file != tagfile.Bagit { // version reports that one
			j.errors.Add(finding.TagFileMissing, file,
				"%s is missing. The profile requires it, with the tags %s.", file, strings.Join(required, ", "))
		}
		return
	}
	if j.bag.unread(file) {
		return
	}
	for _, name := range required {
		if _, ok := j.bag.Tag(file, name); !ok && (file != tagfile.Bagit || name != "BagIt-Version") {
			j.errors.Add(finding.TagMissing, file, "Required tag %s in file %s is missing.", name, file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		j.values(file, name, rules[name])
	}
}

// values checks each tag of the name, and how many there are.
func (j *judge) values(file, name string, rule profile.TagRule) {
	values := j.bag.values(file, name)
	for _, v := range values {
		switch {
		case v == "" && name == "BagIt-Version": // version reports that one
		case v == "" && rule.Bound():
			j.errors.Add(finding.TagEmpty, file, "In file %s, required tag %s has no value.", file, name)
		case !rule.Allows(v):
			j.errors.Add(finding.TagIllegal, file, "In file %s, tag %s has illegal value '%s'. Legal are %s.",
				file, name, finding.Show(v), strings.Join(rule.Values, ", "))
		}
	}
	j.occurrences(file, name, rule, values)
}

func (b *Bag) values(file, name string) (values []string) {
	for _, t := range b.Tags {
		if t.File == file && strings.EqualFold(t.Name, name) {
			values = append(values, t.Value)
		}
	}
	return values
}

func (j *judge) occurrences(file, name string, rule profile.TagRule, values []string) {
	switch {
	case len(values) == 0:
		if rule.Recommended && !rule.Required {
			j.warnings.Add(finding.TagRecommended, file, "In file %s, there is no tag %s. The profile recommends it.", file, name)
		}
	case rule.Repeatable == nil: // a profile before 1.3, in which nobody could say it
		if rule.Bound() && slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
			j.warnings.Add(finding.TagRepeated, file,
				"In file %s, tag %s occurs more than once with different values. The first, '%s', is used.", file, name, finding.Show(values[0]))
		}
	case !*rule.Repeatable && len(values) > 1:
		j.errors.Add(finding.TagOnce, file, "In file %s, tag %s occurs %d times. The profile allows it once.", file, name, len(values))
	}
}
