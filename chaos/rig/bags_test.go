package rig_test

import (
	"math/rand/v2"
	"testing"

	"github.com/farol-preservation/farol/chaos/rig"
)

// A name with a percent sign is encoded in manifests (RFC 8493, 2.1.3), and the oracle reads it
// back. A name that only looks encoded stays what it is.
func TestNamesWithPercentSignsAreEncoded(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	d := rig.Draft{Name: "50% off", Option: "Standard", Files: []rig.Content{rig.Noise(rng, "data/50% off.bin", 10), rig.Noise(rng, "data/%25.bin", 10), rig.Noise(rng, "%0A.txt", 10)}}
	bag, err := d.Bag(t.TempDir(), rig.Institution{Identifier: "test.edu", Receiving: "in"}, rng)
	if err != nil || bag.Wrong != "" || len(bag.Preserved()) != 5 {
		t.Errorf("the oracle finds %q, and %d files to keep: %v", bag.Wrong, len(bag.Preserved()), err)
	}
}
