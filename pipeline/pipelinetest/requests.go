package pipelinetest

import (
	"context"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// requester and approver are the two people who decide to delete.
const requester, approver = "first@test.edu", "second@test.edu"

// Doomed has two people decide on a deletion; its items are in the queue.
func (a *Archive) Doomed(identifiers ...string) record.DeletionRequest {
	a.T.Helper()
	ctx := context.Background()
	for _, email := range []string{requester, approver} {
		_, err := a.Deps.Registry.AddUser(ctx, record.User{Email: email, Name: "Some Body", Role: registry.RoleInstitutionalAdmin, Institution: "test.edu"})
		if err != nil && !strings.Contains(err.Error(), "there is a person with that e-mail") {
			a.T.Fatal(err)
		}
	}
	a.Exec(`UPDATE intellectual_objects SET created_at = now() - interval '1 year'; UPDATE generic_files SET created_at = now() - interval '1 year'`)
	d, err := requests.In(a.Deps.Registry).RequestDeletion(ctx, requester, identifiers)
	if err != nil {
		a.T.Fatal(err)
	}
	if d, err = requests.In(a.Deps.Registry).ApproveDeletion(ctx, d.ID, approver, "test of the pipeline"); err != nil {
		a.T.Fatal(err)
	}
	return d
}

// AllCopies are all objects in preservation buckets.
func (a *Archive) AllCopies() (keys []string) {
	a.T.Helper()
	for name, b := range a.Deps.Targets {
		for _, key := range a.Keys(b) {
			keys = append(keys, name+" "+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Ask asks for a restoration of something that can be read at any time.
func (a *Archive) Ask(identifier string) int64 {
	a.T.Helper()
	r, err := requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
		Identifier: identifier, File: strings.Count(identifier, "/") > 1,
	})
	if err != nil {
		a.T.Fatal(err)
	}
	return r.Item.ID
}

// RestoreBucket is the bucket to which is restored.
func (a *Archive) RestoreBucket() *storage.Bucket { return a.Bucket(a.In.RestoreBucket) }

// Restored asks for something, and returns its item once that is at rest.
func (a *Archive) Restored(identifier string) record.WorkItem {
	a.T.Helper()
	id := a.Ask(identifier)
	a.Work()
	return a.Item(id)
}

// SameAsOnRecord compares all files of a bag with the registry.
func (a *Archive) SameAsOnRecord(b *bag.Bag, object string) {
	a.T.Helper()
	got := map[string]string{}
	for _, f := range b.Files {
		if f.Preservable() && f.Path != "bag-info.txt" {
			got[object+"/"+f.Path] = f.Digests.Hex(bag.SHA256)
		}
	}
	rows := Value[[]string](a, `SELECT array_agg(f.identifier || ' ' || c.digest ORDER BY f.identifier) FROM generic_files f
		JOIN checksums c ON c.generic_file_id = f.id AND c.algorithm = 'sha256' WHERE f.state = 'A' AND f.identifier NOT LIKE '%/bag-info.txt'`)
	var have []string
	for id, sum := range got {
		have = append(have, id+" "+sum)
	}
	slices.Sort(have)
	if !slices.Equal(have, rows) {
		a.T.Errorf("restored\n%s\non record\n%s", strings.Join(have, "\n"), strings.Join(rows, "\n"))
	}
}
