package bag

import (
	"embed"
	"encoding/json"
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
// Profiles specification 1.3. Its member Other-Info is ours: it holds rules for
// the tags of files other than bag-info.txt, in the form of Bag-Info.
type Profile struct {
	name  string
	rules profileRules
	fault error // the rules could not be read; a bag is not valid then
}

type profileRules struct {
	Info struct {
		Identifier string `json:"BagIt-Profile-Identifier"`
	} `json:"BagIt-Profile-Info"`
	BagInfo              map[string]tagRule            `json:"Bag-Info"`
	OtherInfo            map[string]map[string]tagRule `json:"Other-Info"`
	ManifestsRequired    []string                      `json:"Manifests-Required"`
	ManifestsAllowed     []string                      `json:"Manifests-Allowed"`
	TagManifestsRequired []string                      `json:"Tag-Manifests-Required"`
	TagManifestsAllowed  []string                      `json:"Tag-Manifests-Allowed"`
	TagFilesRequired     []string                      `json:"Tag-Files-Required"`
	TagFilesAllowed      []string                      `json:"Tag-Files-Allowed"`
	AllowFetch           bool                          `json:"Allow-Fetch.txt"`
	Serialization        string                        `json:"Serialization"`
	AcceptSerialization  []string                      `json:"Accept-Serialization"`
	AcceptVersion        []string                      `json:"Accept-BagIt-Version"`
}

type tagRule struct {
	Required bool     `json:"required"`
	Values   []string `json:"values"` // compared without regard to case; empty for anything
}

// ProfileNamed returns one of the built-in profiles: aptrust-v2.2, aptrust-v2.3
// or btr-v1.0.
func ProfileNamed(name string) (*Profile, error) {
	p := &Profile{name: name}
	data, err := profileFiles.ReadFile("profiles/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no BagIt profile %q", name)
	}
	if err := json.Unmarshal(data, &p.rules); err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return p, nil
}

// String returns the profile's name.
func (p *Profile) String() string { return p.name }

// tagFiles are the files for whose tags there are rules, sorted.
func (p *Profile) tagFiles() []string {
	files := slices.Collect(maps.Keys(p.rules.OtherInfo))
	if len(p.rules.BagInfo) > 0 {
		files = append(files, bagInfoTxt)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func (p *Profile) tagRules(file string) map[string]tagRule {
	if file == bagInfoTxt {
		return p.rules.BagInfo
	}
	return p.rules.OtherInfo[file]
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

// Profile is the one that the bag says it follows, or APTrust's profile 2.3 if
// it names none that is known.
func (b *Bag) Profile() *Profile {
	name, _ := profileFor(b.ProfileIdentifier())
	p, err := ProfileNamed(name)
	if err != nil {
		return &Profile{name: name, fault: err}
	}
	return p
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

// storageOption returns the option as it is spelled in the registry.
func storageOption(value string) (option string, known bool) {
	for _, o := range []string{
		standardStorage,
		"Glacier-VA", "Glacier-OH", "Glacier-OR",
		"Glacier-Deep-VA", "Glacier-Deep-OH", "Glacier-Deep-OR",
		"Wasabi-VA", "Wasabi-OR", "Wasabi-TX",
	} {
		if strings.EqualFold(o, value) {
			return o, true
		}
	}
	return value, false
}

// StorageOption is what the bag asks for: in the tag Storage-Option of
// aptrust-info.txt, or in the tag APTrust-Storage-Option of bag-info.txt if it
// follows the BTR profile. Without it, it is "Standard". A value that does not
// exist is returned as it is, since [Bag.Validate] refuses it; in a BTR bag,
// which may be meant for others too, it counts as "Standard".
func (b *Bag) StorageOption() string {
	name, _ := profileFor(b.ProfileIdentifier())
	if name == btrV10 {
		value, _ := b.Tag(bagInfoTxt, btrStorageTag)
		if option, known := storageOption(value); known {
			return option
		}
		return standardStorage
	}
	value, _ := b.Tag(aptrustInfoTxt, "Storage-Option")
	if value == "" {
		return standardStorage
	}
	option, _ := storageOption(value)
	return option
}

const btrStorageTag = "APTrust-Storage-Option"
