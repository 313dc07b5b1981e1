// Package copies reads copies in preservation storage, judges them by what is on record,
// and puts on record that one is bad.
package copies

import (
	"cmp"
	"slices"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/storage"
)

// Targets are the preservation targets of this process, by name.
type Targets map[string]*storage.Bucket

// Holding returns the bucket of a target in which a copy on record is.
func (t Targets) Holding(target, bucket string) (*storage.Bucket, error) {
	b, ok := t[target]
	switch {
	case !ok:
		return nil, cause.NoTarget(target)
	case b.Name() != bucket:
		return nil, cause.OtherBucket(target, b.Name(), bucket)
	}
	return b, nil
}

// Priority is that of a target's copies: the one to restore from has the lowest. Those of
// targets that are not configured come last.
func (t Targets) Priority(target string) int {
	if b := t[target]; b != nil {
		return b.Priority()
	}
	return 1 << 30
}

// ByPriority orders copies: the one to restore from comes first.
func (t Targets) ByPriority(copies []record.StoredCopy) []record.StoredCopy {
	return slices.SortedStableFunc(slices.Values(copies), func(a, b record.StoredCopy) int {
		return cmp.Compare(t.Priority(a.Target), t.Priority(b.Target))
	})
}

// Of returns the buckets that a storage option's copies go to, the primary
// first, with their names.
func (t Targets) Of(option string) ([]string, []*storage.Bucket, error) {
	names := storage.TargetsOf(option)
	if len(names) == 0 {
		return nil, nil, claim.Fatal("storage-option", "there is no storage option %q", option)
	}
	buckets := make([]*storage.Bucket, len(names))
	for i, name := range names {
		b, ok := t[name]
		if !ok {
			return nil, nil, cause.NoTarget(name)
		}
		buckets[i] = b
	}
	return names, buckets, nil
}
