package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/profile"
)

// Profiles says which profiles bags may follow in addition to the built-in ones.
type Profiles struct {
	Dir string `env:"FAROL_PROFILES" is:"a directory" doc:"Directory of BagIt profiles (*.json) that are accepted in addition to the built-in ones, by their BagIt-Profile-Identifier"`

	All bag.Profiles // these, and the built-in ones
}

// Bags says how large a bag's list of files may be.
type Bags struct {
	MaxFiles int `env:"FAROL_MAX_FILES" envDefault:"400000" min:"1" doc:"Limit of files in a bag, including those that only a manifest lists. A worker needs 640 bytes of memory per file and leaves larger bags to larger workers: 235,000 files fit into 512 MiB, 400,000 into 650 MiB"`
}

// check loads the profiles of the directory, and reports all that are wrong.
func (c *Profiles) check(s *reader) {
	if c.Dir == "" {
		return
	}
	var err error
	if c.All, err = loadProfiles(c.Dir); err != nil {
		s.wrong("FAROL_PROFILES", fmt.Sprintf("is %q: %v", c.Dir, err))
	}
}

func loadProfiles(dir string) (bag.Profiles, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return bag.Profiles{}, err
	}
	var further []*bag.Profile
	var faults []error
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		p, err := loadProfile(filepath.Join(dir, e.Name()))
		further, faults = append(further, p), append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return bag.Profiles{}, err
	}
	return bag.NewProfiles(further...)
}

func loadProfile(path string) (p *bag.Profile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return profile.Load(f, path)
}

// ChooseProfile is the profile that --profile names: a built-in one, or a file.
func ChooseProfile(name string) (*bag.Profile, error) {
	if slices.Contains(profile.BuiltIn(), name) {
		return profile.Named(name)
	}
	return loadProfile(name)
}
