// Package profile has the rules for bags beyond those of BagIt. What comes in is a profile in
// the JSON of the BagIt Profiles specification, or the name of a built-in one; what goes out
// are its rules, or all that is wrong with it.
package profile

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag/tagfile"
)

// The names of the built-in profiles.
const (
	APTrust22 = "aptrust-v2.2"
	APTrust23 = "aptrust-v2.3"
	BTR10     = "btr-v1.0"

	defaultIdentifier = "https://raw.githubusercontent.com/APTrust/preservation-services/master/profiles/aptrust-v2.3.json"
	btrIdentifier     = "https://github.com/dpscollaborative/btr_bagit_profile/releases/download/1.0/btr-bagit-profile.json"
)

//go:embed profiles/*.json
var profileFiles embed.FS

// A Profile is a set of rules for bags beyond those of BagIt, after the BagIt
// Profiles specification 1.4.0. Its member Other-Info is ours: it holds rules
// for the tags of bagit.txt and aptrust-info.txt, in the form of Bag-Info.
type Profile struct {
	Name    string // in verdicts
	Rules   Rules
	Ignored []string // members that have no effect
	Fault   error    // the rules could not be read; a bag is not valid then
}

// Rules has the members of the specification.
type Rules struct {
	Info struct {
		Identifier string `json:"BagIt-Profile-Identifier"`
	} `member:"BagIt-Profile-Info"`
	BagInfo              map[string]TagRule            // Bag-Info
	OtherInfo            map[string]map[string]TagRule // Other-Info
	ManifestsRequired    []string                      `member:"Manifests-Required"`
	ManifestsAllowed     []string                      `member:"Manifests-Allowed"`
	TagManifestsRequired []string                      `member:"Tag-Manifests-Required"`
	TagManifestsAllowed  []string                      `member:"Tag-Manifests-Allowed"`
	TagFilesRequired     []string                      `member:"Tag-Files-Required"`
	TagFilesAllowed      []string                      `member:"Tag-Files-Allowed"` // patterns, like those of the payload
	PayloadFilesRequired []string                      `member:"Payload-Files-Required"`
	PayloadFilesAllowed  []string                      `member:"Payload-Files-Allowed"`
	AllowFetch           bool                          `member:"Allow-Fetch.txt"`
	FetchRequired        bool                          `member:"Fetch.txt-Required"`
	DataEmpty            bool                          `member:"Data-Empty"`
	Serialization        string                        `member:"Serialization"`
	AcceptSerialization  []string                      `member:"Accept-Serialization"`
	AcceptVersion        []string                      `member:"Accept-BagIt-Version"`
}

// A TagRule says what a tag must be.
type TagRule struct {
	Required    bool     `json:"required"`
	Recommended bool     `json:"recommended"`
	Repeatable  *bool    `json:"repeatable"` // nil for true
	Values      []string `json:"values"`     // compared without regard to case; empty for anything
	Description string   `json:"description"`
}

// Allows says whether a tag may have a value.
func (r TagRule) Allows(value string) bool {
	return len(r.Values) == 0 || slices.ContainsFunc(r.Values, func(v string) bool { return strings.EqualFold(v, value) })
}

// Bound says that a blank value is none.
func (r TagRule) Bound() bool { return r.Required || len(r.Values) > 0 }

// BuiltIn are the names that Named knows.
func BuiltIn() []string { return []string{APTrust22, APTrust23, BTR10} }

// Named returns one of the built-in profiles: aptrust-v2.2, aptrust-v2.3
// or btr-v1.0.
func Named(name string) (*Profile, error) {
	data, err := profileFiles.ReadFile("profiles/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no BagIt profile %q", name)
	}
	p, err := Load(bytes.NewReader(data), name)
	if err != nil {
		return nil, err
	}
	p.Name = name
	return p, nil
}

// Plain has no rules beyond those of BagIt itself (RFC 8493, 3).
func Plain() *Profile {
	return &Profile{Name: BagIt, Rules: Rules{AllowFetch: true, Serialization: "optional"}}
}

// BagIt is the name of [Plain].
const BagIt = "BagIt"

// String returns the profile's name.
func (p *Profile) String() string { return p.Name }

// Identifier is the address by which bags name the profile; blank if it has none.
func (p *Profile) Identifier() string { return p.Rules.Info.Identifier }

// TagFiles are the files for whose tags there are rules, sorted. BagIt itself has
// one for bagit.txt.
func (p *Profile) TagFiles() []string {
	files := append(slices.Collect(maps.Keys(p.Rules.OtherInfo)), tagfile.Bagit)
	if len(p.Rules.BagInfo) > 0 {
		files = append(files, tagfile.BagInfo)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// TagRules are the rules for the tags of a file, by their names.
func (p *Profile) TagRules(file string) map[string]TagRule {
	switch file {
	case tagfile.BagInfo:
		return p.Rules.BagInfo
	case tagfile.Bagit: // RFC 8493, 2.1.1
		rules := map[string]TagRule{tagfile.EncodingTag: {Required: true}}
		maps.Copy(rules, p.Rules.OtherInfo[tagfile.Bagit])
		return rules
	default:
		return p.Rules.OtherInfo[file]
	}
}

// KnownAs is the identifier that is meant by one that a bag names. Two wrong addresses of the
// BTR profile that are in use become the right one, and a blank one becomes that of
// APTrust's profile 2.3. Others are kept.
func KnownAs(identifier string) string {
	switch identifier {
	case "":
		return defaultIdentifier
	case "https://raw.githubusercontent.com/APTrust/dart/master/profiles/btr-v0.1.json",
		"https://raw.githubusercontent.com/dpscollaborative/btr_bagit_profile/master/btr-bagit-profile.json":
		return btrIdentifier
	default:
		return identifier
	}
}

// For returns the name of the profile for an identifier, and whether the
// identifier is one that we know.
func For(identifier string) (name string, known bool) {
	switch {
	case strings.Contains(identifier, "/btr_bagit_profile"), strings.Contains(identifier, "/btr-bagit-profile"):
		return BTR10, true
	case strings.HasSuffix(identifier, "/"+APTrust22+".json"):
		return APTrust22, true
	default:
		return APTrust23, strings.HasSuffix(identifier, "/"+APTrust23+".json")
	}
}

// Standard is the storage option of a bag that asks for none.
const Standard = "Standard"

// StorageOptions are those of the registry, as they are spelled there.
func StorageOptions() []string {
	return []string{
		Standard,
		"Glacier-VA", "Glacier-OH", "Glacier-OR",
		"Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR",
		"Wasabi-VA", "Wasabi-OR", "Wasabi-TX",
	}
}

// StorageOption returns the option as it is spelled in the registry.
func StorageOption(value string) (option string, known bool) {
	for _, o := range StorageOptions() {
		if strings.EqualFold(o, value) {
			return o, true
		}
	}
	return value, false
}

// StorageTag is where a bag of the profile asks for a storage option.
func StorageTag(profile string) (file, tag string) {
	if profile == BTR10 {
		return tagfile.BagInfo, "APTrust-Storage-Option"
	}
	return tagfile.APTrustInfo, "Storage-Option"
}
