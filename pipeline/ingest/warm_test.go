package ingest

import (
	"bytes"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
)

// warm has all stages run in one process, so that each finds in memory what the stages before
// it have kept, and returns that.
func (a *archive) warm() *lists.Recent {
	var steps []pipeline.Step
	a.Steps = func(d pipeline.Deps) []pipeline.Step {
		if steps == nil {
			steps = Steps(d)
		}
		return steps
	}
	return a.Steps(a.Deps)[0].Run.(entered).areas.Recent
}

// whole checks that the bag is ingested, and every copy is what is on record.
func (a *archive) whole() {
	a.T.Helper()
	a.Unharmed(1)
	made := 0
	for name, b := range a.Deps.Targets {
		for _, key := range a.Keys(b) {
			o, err := b.Head(a.T.Context(), key) // archived copies answer too, with the checksum of what was stored
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records s JOIN checksums c USING (generic_file_id)
				WHERE s.key = $1 AND s.target = $2 AND c.algorithm = 'sha256' AND encode(decode(c.digest, 'hex'), 'base64') = $3`, key, name, o.SHA256); err != nil || n != 1 {
				a.T.Errorf("%s %s has SHA-256 %q, %v; %d records have that", name, key, o.SHA256, err, n)
			}
			made++
		}
	}
	if made == 0 {
		a.T.Error("nothing was stored")
	}
}

// A process whose memory has other bytes than the bag stores none of them.
func TestBytesThatWentBadInMemoryAreNotStored(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	kept := a.warm()
	a.Bags(1)
	engine := a.Engine()
	a.UpTo(engine, "Store")
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items`)
	good := kept.Tar(id)
	if len(good) == 0 {
		t.Fatal("the tar is not kept")
	}
	bad := bytes.Clone(good)
	for i := range bad {
		bad[i] ^= 1
	}
	kept.KeepTar(id, bad)
	a.One(engine, "Store")
	if item := a.Item(id); item.Stage != "Storage Validation" {
		t.Fatalf("item = %+v", item)
	}
	a.Work()
	a.whole()
}

// Losing the lists between two stages costs a process with warm memory time, and nothing
// else.
func TestWarmStagesOutliveTheirLists(t *testing.T) {
	t.Parallel()
	for _, stage := range []registry.Stage{"Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup"} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.warm()
			a.Bags(1)
			a.UpTo(a.Engine(), stage)
			a.LoseLists()
			a.Work()
			a.whole()
		})
	}
}

// A bag that its depositor deletes while it is in memory is ingested as it was read.
func TestBagInMemoryIsIngestedThoughItIsDeleted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	a.Bags(1)
	a.UpTo(a.Engine(), "Copy To Staging")
	must.Do(t, a.Receiving.Delete(t.Context(), "bag0.tar"))
	a.Work()
	a.whole()
}
