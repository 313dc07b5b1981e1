package bag

import (
	"maps"
	"slices"
	"strings"
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
	j := &judge{bag: b, profile: p, rules: p.rules, cut: cutShort(b.Problems) || hasCode(b.Problems, codeNoTopDir)}
	if p.fault != nil {
		j.errors.add(codeProfileUnreadable, "", "The rules of the profile %s are not available: %v.", p.name, p.fault)
	}
	for _, member := range p.ignored {
		j.warnings.add(codeProfileMember, "",
			"The profile %s has the member '%s', which BagIt Profiles 1.4 does not define. It has no effect.", p.name, show(member))
	}
	j.serialization()
	j.version()
	j.identifiers()
	j.fetch()
	j.manifests()
	j.tagFilesAllowed()
	for _, file := range p.tagFiles() {
		j.tags(file, p.tagRules(file))
	}
	j.files()
	j.payload()
	j.oxum()
	j.clashes()

	return Verdict{
		Valid:    len(b.Problems) == 0 && len(j.errors.list) == 0,
		Unknown:  len(b.Problems) == 0 && len(j.errors.list) > 0 && j.errors.all(codeManifestUnknown),
		Errors:   capped(b.Problems, j.errors.list),
		Warnings: capped(b.Warnings, j.warnings.list),
		Profile:  p.name,
		Files:    j.present,
		Bytes:    b.Bytes,
		Unread:   j.unread,
		More:     b.More + j.errors.more + max(0, len(b.Problems)+len(j.errors.list)-maxFindings),
	}
}

// capped joins the lists, and never returns nil.
func capped(a, b []Finding) []Finding {
	all := append(append(make([]Finding, 0, len(a)+len(b)), a...), b...)
	return all[:min(len(all), maxFindings)]
}

// A judge gathers the findings of one Validate.
type judge struct {
	bag              *Bag
	profile          *Profile
	rules            profileRules
	errors, warnings findings

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
			j.warnings.add(codeNotSerialized, "",
				"The profile %s requires that a bag is sent as one tar file. This directory was checked as if it were packed.", j.profile)
		}
		return
	}
	accepted := len(j.rules.AcceptSerialization) == 0 || slices.ContainsFunc(j.rules.AcceptSerialization, func(s string) bool {
		return slices.Contains([]string{"application/tar", "application/x-tar", "application/x-gtar", "application/x-ustar"}, s)
	})
	if j.rules.Serialization == "forbidden" || !accepted {
		j.errors.add(codeSerialization, "", "BagIt profile does not allow serialization format application/tar.")
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
	version, ok := j.bag.Tag(bagitTxt, "BagIt-Version")
	switch {
	case j.bag.file(bagitTxt) == nil:
		if !j.cut {
			j.errors.add(codeTagFileMissing, bagitTxt, "bagit.txt is missing. Every bag must have it.")
		}
	case j.bag.unread(bagitTxt):
	case !ok || version == "":
		j.errors.add(codeVersionMissing, bagitTxt, "Missing required tag bagit.txt/BagIt-Version.")
	case !slices.Contains(accepted, version):
		j.errors.add(codeVersionNotAllowed, bagitTxt,
			"BagIt-Version %s is not permitted in this BagIt profile. It allows %s.",
			show(version), strings.Join(accepted, ", "))
	}
	j.declaration()
}

// declaration sees that bagit.txt has its two lines, in their order (RFC 8493, 2.1.1).
func (j *judge) declaration() {
	const should = "It should have BagIt-Version and then Tag-File-Character-Encoding, and nothing else."
	seen := map[string]bool{}
	for _, t := range j.bag.Tags {
		if t.File != bagitTxt {
			continue
		}
		name := strings.ToLower(t.Name)
		switch version, encoding := strings.ToLower("BagIt-Version"), strings.ToLower(encodingTag); {
		case name != version && name != encoding:
			j.warnings.add(codeDeclaration, bagitTxt, "bagit.txt has the tag %s. %s", show(t.Name), should)
		case seen[name]:
			j.warnings.add(codeDeclaration, bagitTxt, "bagit.txt has the tag %s more than once. %s", show(t.Name), should)
		case name == version && seen[encoding]:
			j.warnings.add(codeDeclarationOrder, bagitTxt, "In bagit.txt, BagIt-Version comes second. %s", should)
		}
		seen[name] = true
	}
}

// unread says that a tag file is there and could not be read to its end: what is not in
// its tags may still be in the file, and one fault needs one message.
func (b *Bag) unread(file string) bool {
	return slices.ContainsFunc(b.Problems, func(f Finding) bool {
		return f.Path == file && (f.Code == codeTagFileTooLarge || f.Code == codeTagFileEncoding)
	})
}

// before10 says whether the bag follows a version of BagIt before 1.0.
func (b *Bag) before10() bool {
	version, _ := b.Tag(bagitTxt, "BagIt-Version")
	return strings.HasPrefix(version, "0.") && slices.Contains(versions(), version)
}

// identifiers warns where a value was not followed.
func (j *judge) identifiers() {
	if j.profile.name == plainBagIt {
		return
	}
	id := j.bag.ProfileIdentifier()
	name, known := profileFor(id)
	switch {
	case id == j.profile.Identifier(), known && name == j.profile.name:
	case name == aptrustV22 && newerOption(j.bag):
		j.warnings.add(codeProfileNotNamed, bagInfoTxt,
			"The bag names the profile %s, which does not have the storage option %s. It was checked as %s, which has all of the other and this one.",
			name, show(j.bag.StorageOption()), j.profile)
	case name == j.profile.name:
		j.warnings.add(codeUnknownProfile, bagInfoTxt,
			"The BagIt-Profile-Identifier %s is not known. The bag was checked as %s.", show(id), name)
	default:
		j.warnings.add(codeProfileNotNamed, bagInfoTxt,
			"The bag does not say that it follows the profile %s, by which it was checked. In bag-info.txt, BagIt-Profile-Identifier would have to be '%s'.",
			j.profile, show(j.profile.Identifier()))
	}
	file, tag := storageTag(j.profile.name)
	value, _ := j.bag.Tag(file, tag)
	if _, legal := storageOption(value); legal || value == "" {
		return
	}
	switch j.profile.name {
	case btrV10:
		j.warnings.add(codeStorageOption, bagInfoTxt,
			"In file bag-info.txt, tag %s has illegal value '%s'. Standard storage is used.", tag, show(value))
	case aptrustV22, aptrustV23: // have a rule for it
	default:
		j.errors.add(codeTagIllegal, file, "In file %s, tag %s has illegal value '%s'. Legal are %s.",
			file, tag, show(value), strings.Join(storageOptions(), ", "))
	}
}

// fetch looks at fetch.txt (RFC 8493, 2.2.3). A bag must be whole when it is
// checked: what fetch.txt lists and nobody fetched is missing.
func (j *judge) fetch() {
	switch {
	case j.bag.HasFetch && !j.rules.AllowFetch:
		j.errors.add(codeFetchNotAllowed, fetchTxt,
			"Bag has fetch.txt file which profile %s does not allow: all files must be in the bag itself.", j.profile)
	case !j.bag.HasFetch && j.rules.FetchRequired && !j.cut:
		j.errors.add(codeFetchMissing, fetchTxt, "fetch.txt is missing. The profile %s requires it.", j.profile)
	}
}

func (j *judge) manifests() {
	b := j.bag
	j.allowed("manifest", false, b.Manifests, j.rules.ManifestsAllowed)
	j.allowed("tag manifest", true, b.TagManifests, j.rules.TagManifestsAllowed)
	if j.cut {
		return
	}
	j.required("manifest", false, b.Manifests, j.rules.ManifestsRequired)
	j.required("tag manifest", true, b.TagManifests, j.rules.TagManifestsRequired)
	if len(b.Manifests) == 0 {
		j.errors.add(codeManifestMissing, "", "Bag must have at least one payload manifest, like manifest-sha256.txt.")
	}
}

func (j *judge) allowed(what string, tag bool, have []Algorithm, allowed []string) {
	for _, a := range have {
		switch {
		case !anything(allowed) && !slices.Contains(allowed, string(a)):
			j.errors.add(codeManifestNotAllowed, ManifestName(a, tag),
				"Bag contains illegal %s '%s'. The profile allows %s.", what, show(string(a)), strings.Join(allowed, ", "))
		case a.size() == 0:
			j.errors.add(codeManifestUnknown, ManifestName(a, tag),
				"The %s '%s' cannot be verified, since its algorithm is not supported: whether the bag is valid is not known. "+
					"Put a manifest of md5, sha1, sha256 or sha512 in its place.", what, show(string(a)))
		}
	}
}

// anything says whether a list of what is allowed allows everything.
func anything(allowed []string) bool { return len(allowed) == 0 || slices.Contains(allowed, "*") }

func (j *judge) required(what string, tag bool, have []Algorithm, required []string) {
	for _, r := range required {
		if !slices.Contains(have, Algorithm(r)) {
			j.errors.add(codeManifestMissing, ManifestName(Algorithm(r), tag), "Bag is missing required %s '%s'.", what, r)
		}
	}
}

func (j *judge) tagFilesAllowed() {
	for _, file := range j.rules.TagFilesRequired {
		if !j.cut && j.bag.file(file) == nil {
			j.errors.add(codeTagFileMissing, file, "%s is missing. The profile requires it.", file)
		}
	}
	if anything(j.rules.TagFilesAllowed) {
		return
	}
	for _, f := range j.bag.Files {
		if f.Kind() != TagFile || f.Missing || f.Path == bagitTxt || f.Path == bagInfoTxt {
			continue
		}
		if !slices.ContainsFunc(j.rules.TagFilesAllowed, func(pattern string) bool { return glob(pattern, f.Path) }) {
			j.errors.add(codeTagFileNotAllowed, f.Path, "Bag contains illegal tag file '%s'.", show(f.Path))
		}
	}
}

// tags checks one tag file against the profile.
func (j *judge) tags(file string, rules map[string]tagRule) {
	var required []string
	for name, rule := range rules {
		if rule.Required {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	if j.bag.file(file) == nil {
		if len(required) > 0 && !j.cut && file != bagitTxt { // version reports that one
			j.errors.add(codeTagFileMissing, file,
				"%s is missing. The profile requires it, with the tags %s.", file, strings.Join(required, ", "))
		}
		return
	}
	if j.bag.unread(file) {
		return
	}
	for _, name := range required {
		if _, ok := j.bag.Tag(file, name); !ok && (file != bagitTxt || name != "BagIt-Version") {
			j.errors.add(codeTagMissing, file, "Required tag %s in file %s is missing.", name, file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		j.values(file, name, rules[name])
	}
}

// values checks each tag of the name, and how many there are.
func (j *judge) values(file, name string, rule tagRule) {
	values := j.bag.values(file, name)
	for _, v := range values {
		switch {
		case v == "" && name == "BagIt-Version": // version reports that one
		case v == "" && rule.bound():
			j.errors.add(codeTagEmpty, file, "In file %s, required tag %s has no value.", file, name)
		case !rule.allows(v):
			j.errors.add(codeTagIllegal, file, "In file %s, tag %s has illegal value '%s'. Legal are %s.",
				file, name, show(v), strings.Join(rule.Values, ", "))
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

func (j *judge) occurrences(file, name string, rule tagRule, values []string) {
	switch {
	case len(values) == 0:
		if rule.Recommended && !rule.Required {
			j.warnings.add(codeTagRecommended, file, "In file %s, there is no tag %s. The profile recommends it.", file, name)
		}
	case rule.Repeatable == nil: // a profile before 1.3, in which nobody could say it
		if rule.bound() && slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
			j.warnings.add(codeTagRepeated, file,
				"In file %s, tag %s occurs more than once with different values. The first, '%s', is used.", file, name, show(values[0]))
		}
	case !*rule.Repeatable && len(values) > 1:
		j.errors.add(codeTagOnce, file, "In file %s, tag %s occurs %d times. The profile allows it once.", file, name, len(values))
	}
}

func (r tagRule) allows(value string) bool {
	return len(r.Values) == 0 || slices.ContainsFunc(r.Values, func(v string) bool { return strings.EqualFold(v, value) })
}
