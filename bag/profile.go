package bag

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	aptrustV22 = "aptrust-v2.2"
	aptrustV23 = "aptrust-v2.3"
	btrV10     = "btr-v1.0"

	defaultIdentifier = "https://raw.githubusercontent.com/APTrust/preservation-services/master/profiles/aptrust-v2.3.json"
	btrIdentifier     = "https://github.com/dpscollaborative/btr_bagit_profile/releases/download/1.0/btr-bagit-profile.json"
)

//go:embed profiles/*.json
var profileFiles embed.FS

// A Profile is a set of rules for bags beyond those of BagIt, after the BagIt
// Profiles specification 1.4.0. Its member Other-Info is ours: it holds rules
// for the tags of bagit.txt and aptrust-info.txt, in the form of Bag-Info.
type Profile struct {
	name    string
	rules   profileRules
	ignored []string // members that have no effect
	fault   error    // the rules could not be read; a bag is not valid then
}

// profileRules has the members of the specification by their names there.
type profileRules struct {
	Info struct {
		Identifier string `json:"BagIt-Profile-Identifier"`
	}
	BagInfo              map[string]tagRule
	OtherInfo            map[string]map[string]tagRule
	ManifestsRequired    []string
	ManifestsAllowed     []string
	TagManifestsRequired []string
	TagManifestsAllowed  []string
	TagFilesRequired     []string
	TagFilesAllowed      []string // patterns, like those of the payload
	PayloadFilesRequired []string
	PayloadFilesAllowed  []string
	AllowFetch           bool
	FetchRequired        bool
	DataEmpty            bool
	Serialization        string
	AcceptSerialization  []string
	AcceptVersion        []string
}

type tagRule struct {
	Required    bool     `json:"required"`
	Recommended bool     `json:"recommended"`
	Repeatable  *bool    `json:"repeatable"` // nil for true
	Values      []string `json:"values"`     // compared without regard to case; empty for anything
	Description string   `json:"description"`
}

// bound says that a blank value is none.
func (r tagRule) bound() bool { return r.Required || len(r.Values) > 0 }

// BuiltInProfiles are the names that ProfileNamed knows.
func BuiltInProfiles() []string { return []string{aptrustV22, aptrustV23, btrV10} }

// ProfileNamed returns one of the built-in profiles: aptrust-v2.2, aptrust-v2.3
// or btr-v1.0.
func ProfileNamed(name string) (*Profile, error) {
	data, err := profileFiles.ReadFile("profiles/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no BagIt profile %q", name)
	}
	p, err := LoadProfile(bytes.NewReader(data), name)
	if err != nil {
		return nil, err
	}
	p.name = name
	return p, nil
}

// PlainBagIt has no rules beyond those of BagIt itself (RFC 8493, 3).
func PlainBagIt() *Profile {
	return &Profile{name: plainBagIt, rules: profileRules{AllowFetch: true, Serialization: "optional"}}
}

const plainBagIt = "BagIt"

// String returns the profile's name.
func (p *Profile) String() string { return p.name }

// Identifier is the address by which bags name the profile; blank if it has none.
func (p *Profile) Identifier() string { return p.rules.Info.Identifier }

// tagFiles are the files for whose tags there are rules, sorted. BagIt itself has
// one for bagit.txt.
func (p *Profile) tagFiles() []string {
	files := append(slices.Collect(maps.Keys(p.rules.OtherInfo)), bagitTxt)
	if len(p.rules.BagInfo) > 0 {
		files = append(files, bagInfoTxt)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func (p *Profile) tagRules(file string) map[string]tagRule {
	switch file {
	case bagInfoTxt:
		return p.rules.BagInfo
	case bagitTxt: // RFC 8493, 2.1.1
		rules := map[string]tagRule{encodingTag: {Required: true}}
		maps.Copy(rules, p.rules.OtherInfo[bagitTxt])
		return rules
	default:
		return p.rules.OtherInfo[file]
	}
}

// ProfileIdentifier is the value of BagIt-Profile-Identifier in bag-info.txt.
// Two wrong addresses of the BTR profile that are in use become the right one,
// and a blank one becomes that of APTrust's profile 2.3. Others are kept.
func (b *Bag) ProfileIdentifier() string {
	id, _ := b.Tag(bagInfoTxt, "BagIt-Profile-Identifier")
	switch id {
	case "":
		return defaultIdentifier
	case "https://raw.githubusercontent.com/APTrust/dart/master/profiles/btr-v0.1.json",
		"https://raw.githubusercontent.com/dpscollaborative/btr_bagit_profile/master/btr-bagit-profile.json":
		return btrIdentifier
	default:
		return id
	}
}

// Profiles are those that bags may follow: the built-in ones, and further ones
// by their identifiers. The zero value has the built-in ones only.
type Profiles struct {
	further map[string]*Profile
}

// NewProfiles refuses a profile without an identifier, and one whose identifier
// is that of another.
func NewProfiles(further ...*Profile) (Profiles, error) {
	s := Profiles{further: map[string]*Profile{}}
	for _, p := range further {
		id := p.Identifier()
		if id == "" {
			return Profiles{}, fmt.Errorf("profile %s: it has no BagIt-Profile-Identifier, by which bags could name it", p)
		}
		if name, builtIn := profileFor(id); builtIn {
			return Profiles{}, fmt.Errorf("profile %s: its BagIt-Profile-Identifier is that of the built-in profile %s", p, name)
		}
		if s.further[id] != nil {
			return Profiles{}, fmt.Errorf("two profiles have the BagIt-Profile-Identifier %s", id)
		}
		s.further[id] = p
	}
	return s, nil
}

// Of is the profile that the bag says it follows, or APTrust's profile 2.3 if it
// names none that is known. That is also the one for a bag that follows 2.2 but for a
// storage option that came with 2.3. Where bag-info.txt cannot be read, nothing is known
// of the profile, and the rules are those of BagIt.
func (s Profiles) Of(b *Bag) *Profile {
	id := b.ProfileIdentifier()
	if b.unread(bagInfoTxt) {
		return PlainBagIt()
	}
	if p := s.further[id]; p != nil {
		return p
	}
	name, _ := profileFor(id)
	if name == aptrustV22 && newerOption(b) {
		name = aptrustV23
	}
	p, err := ProfileNamed(name)
	if err != nil {
		return &Profile{name: name, fault: err}
	}
	return p
}

// newerOption says that a bag asks for a storage option that profile 2.2 does not have
// and 2.3 has.
func newerOption(b *Bag) bool {
	file, tag := storageTag(aptrustV22)
	value, ok := b.Tag(file, tag)
	return ok && strings.EqualFold(value, "Wasabi-TX")
}

// profileFor returns the name of the profile for an identifier, and whether the
// identifier is one that we know.
func profileFor(identifier string) (name string, known bool) {
	switch {
	case strings.Contains(identifier, "/btr_bagit_profile"), strings.Contains(identifier, "/btr-bagit-profile"):
		return btrV10, true
	case strings.HasSuffix(identifier, "/"+aptrustV22+".json"):
		return aptrustV22, true
	default:
		return aptrustV23, strings.HasSuffix(identifier, "/"+aptrustV23+".json")
	}
}

const standardStorage = "Standard"

// storageOptions are those of the registry, as they are spelled there.
func storageOptions() []string {
	return []string{
		standardStorage,
		"Glacier-VA", "Glacier-OH", "Glacier-OR",
		"Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR",
		"Wasabi-VA", "Wasabi-OR", "Wasabi-TX",
	}
}

// storageOption returns the option as it is spelled in the registry.
func storageOption(value string) (option string, known bool) {
	for _, o := range storageOptions() {
		if strings.EqualFold(o, value) {
			return o, true
		}
	}
	return value, false
}

// storageTag is where a bag of the profile asks for a storage option.
func storageTag(profile string) (file, tag string) {
	if profile == btrV10 {
		return bagInfoTxt, "APTrust-Storage-Option"
	}
	return aptrustInfoTxt, "Storage-Option"
}

// StorageOption is what the bag asks for: in the tag Storage-Option of
// aptrust-info.txt, or in the tag APTrust-Storage-Option of bag-info.txt if it
// follows the BTR profile. Without it, it is "Standard". A value that does not
// exist is returned as it is, since [Bag.Validate] refuses it; in a BTR bag,
// which may be meant for others too, it counts as "Standard".
func (b *Bag) StorageOption() string {
	name, _ := profileFor(b.ProfileIdentifier())
	value, _ := b.Tag(storageTag(name))
	if value == "" {
		return standardStorage
	}
	option, known := storageOption(value)
	if name == btrV10 && !known {
		return standardStorage
	}
	return option
}
