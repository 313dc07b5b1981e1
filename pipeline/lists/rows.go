package lists

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
)

// Plan is what the registry already holds of the bag, as Reingest Check found it.
type Plan struct {
	StorageOption string        `json:"storage_option"` // where the object is or will be stored
	ObjectID      int64         `json:"object_id,omitzero"`
	Deletions     int64         `json:"deletions,omitzero"` // of the object or its files, so far
	Known         map[int]Known `json:"-"`
}

// Verdict is how Validate came to take the bag for valid.
type Verdict struct {
	By       string    `json:"by"`       // profile and version of BagIt
	Software string    `json:"software"` // that judged
	Warnings int       `json:"warnings"`
	Found    string    `json:"found,omitempty"` // the warnings, in words
	At       time.Time `json:"at"`
}

// Known is a file that the registry has seen before.
type Known struct {
	Index     int       `json:"i"`
	UUID      uuid.UUID `json:"uuid"`
	Unchanged bool      `json:"unchanged,omitzero"` // active, and its content is the same
	Deleted   bool      `json:"deleted,omitzero"`
	Key       string    `json:"key,omitempty"`  // under which content that is on record is stored again, because a copy of it is bad, or was found; "": as its content says
	Found     bool      `json:"found,omitzero"` // a copy of its content was found under the key, without a record
}

// Copies are a file's verified copies in the order of the storage option's targets.
type Copies struct {
	Index  int    `json:"i"`
	Copies []Copy `json:"copies"`
}

// MIME is the part of [Format] that copies need.
type MIME struct {
	Index int    `json:"i"`
	MIME  string `json:"mime"`
}

// Copy is a copy as its provider described it.
type Copy struct {
	Target   string    `json:"target"`
	ETag     string    `json:"etag"`
	Stored   time.Time `json:"stored"`
	Verified time.Time `json:"verified"`
	By       string    `json:"by"` // see [registry.Copy]
}

// VerifiedIn is where the copies of a list were verified: the buckets of the storage
// option's targets, in their order.
type VerifiedIn struct {
	Buckets []string `json:"buckets"`
}

// Again has a file stored again whose content is on record, under a key of its own
// beside those that are: which of its copies are bad makes no difference.
func (k Known) Again(f *bag.File, item int64, taken []string) Known {
	k.Unchanged = false
	for n := 0; k.Key == "" || slices.Contains(taken, k.Key); n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %d", f.Digests.SHA256, item, n))
		k.Key = k.UUID.String() + "." + hex.EncodeToString(sum[:8])
	}
	return k
}
