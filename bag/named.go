package bag

import (
	"fmt"
	"strings"

	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/bag/tagfile"
)

// ProfileIdentifier is the value of BagIt-Profile-Identifier in bag-info.txt.
// Two wrong addresses of the BTR profile that are in use become the right one,
// and a blank one becomes that of APTrust's profile 2.3. Others are kept.
func (b *Bag) ProfileIdentifier() string {
	id, _ := b.Tag(tagfile.BagInfo, "BagIt-Profile-Identifier")
	return profile.KnownAs(id)
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
		if name, builtIn := profile.For(id); builtIn {
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
	if b.unread(tagfile.BagInfo) {
		return profile.Plain()
	}
	if p := s.further[id]; p != nil {
		return p
	}
	name, _ := profile.For(id)
	if name == profile.APTrust22 && newerOption(b) {
		name = profile.APTrust23
	}
	p, err := profile.Named(name)
	if err != nil {
		return &Profile{Name: name, Fault: err}
	}
	return p
}

// newerOption says that a bag asks for a storage option that profile 2.2 does not have
// and 2.3 has.
func newerOption(b *Bag) bool {
	file, tag := profile.StorageTag(profile.APTrust22)
	value, ok := b.Tag(file, tag)
	return ok && strings.EqualFold(value, "Wasabi-TX")
}

// StorageOption is what the bag asks for: in the tag Storage-Option of
// aptrust-info.txt, or in the tag APTrust-Storage-Option of bag-info.txt if it
// follows the BTR profile. Without it, it is "Standard". A value that does not
// exist is returned as it is, since [Bag.Validate] refuses it; in a BTR bag,
// which may be meant for others too, it counts as "Standard".
func (b *Bag) StorageOption() string {
	name, _ := profile.For(b.ProfileIdentifier())
	value, _ := b.Tag(profile.StorageTag(name))
	if value == "" {
		return profile.Standard
	}
	option, known := profile.StorageOption(value)
	if name == profile.BTR10 && !known {
		return profile.Standard
	}
	return option
}
