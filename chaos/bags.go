package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/internal/oracle"
)

// mix says what bags an experiment deposits.
type mix struct {
	Bags  int
	Large int // of Bags: 24 MiB in one file
	Many  int // of Bags: many files
	Files int // of each of those; 0: 300
}

const invalidEach = 10 // one bag in so many is invalid, in the ways of rig.Flaws in rotation

// makeBags writes the tars of a mix to dir and has the oracle read them. The same
// seed makes the same bags.
func makeBags(dir string, seed uint64, m mix, institutions []rig.Institution) ([]oracle.Bag, error) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the bags' directory: %w", err)
	}
	var bags []oracle.Bag
	for i := range m.Bags {
		option := []string{"Standard", "Standard", "Standard", "Wasabi-OR", "Standard", "Wasabi-VA"}[i%6]
		d := rig.Draft{Spec: bagtest.Spec{Name: fmt.Sprintf("bag-%04d", i), StorageOption: option}}
		add := func(path string, size int) {
			d.Files = append(d.Files, bagtest.File{Path: path, Size: int64(size), Seed: rng.Uint64()})
		}
		switch {
		case i < m.Large:
			add("data/film.mov", 24<<20)
		case i < m.Large+m.Many:
			for n := range cmp.Or(m.Files, 300) {
				add(fmt.Sprintf("data/pages/%02d/page-%05d.txt", n%7, n), 200+rng.IntN(2000))
			}
		default:
			for n := range 2 + rng.IntN(3) {
				add(fmt.Sprintf("data/file-%d.bin", n), 100+rng.IntN(20_000))
			}
			if i%invalidEach == invalidEach/2 {
				d.Flaw = rig.Flaws()[i/invalidEach%len(rig.Flaws())]
			}
		}
		if i%3 == 0 {
			d.Files = append(d.Files, bagtest.File{Path: "custom/notes.txt", Content: "Kept by: hand\n"})
		}
		bag, err := d.Bag(dir, institutions[i%len(institutions)])
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the bag
		}
		bags = append(bags, bag)
	}
	return bags, nil
}
