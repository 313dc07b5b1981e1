package rig_test

import (
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/chaos/rig"
)

// A name with a percent sign is encoded in manifests (RFC 8493, 2.1.3), and the oracle reads it
// back. A name that only looks encoded stays what it is.
func TestNamesWithPercentSignsAreEncoded(t *testing.T) {
	t.Parallel()
	d := rig.Draft{Spec: bagtest.Spec{Name: "50% off", Files: []bagtest.File{{Path: "data/50% off.bin", Size: 10}, {Path: "data/%25.bin", Size: 10}, {Path: "%0A.txt", Size: 10}}}}
	bag, err := d.Bag(t.TempDir(), rig.Institution{Identifier: "test.edu", Receiving: "in"})
	if err != nil || bag.Wrong != "" || len(bag.Preserved()) != 5 {
		t.Errorf("the oracle finds %q, and %d files to keep: %v", bag.Wrong, len(bag.Preserved()), err)
	}
}
