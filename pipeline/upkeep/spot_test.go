package upkeep

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// An object that was drawn goes the way of any restoration, behind all that people
// ask for, and its institution is told.
func TestDrawnObjectIsRestoredAndReported(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	for _, name := range []string{"one", "two"} {
		a.Ingested(bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a.bin", Size: 20_000}}})
	}
	a.Ingested(bagtest.Spec{Name: "small", Files: []bagtest.File{{Path: "data/a.bin", Size: 100}}})
	a.Ingested(bagtest.Spec{Name: "cold", StorageOption: "Glacier-OH", Files: []bagtest.File{{Path: "data/a.bin", Size: 20_000}}})
	a.Ingested(bagtest.Spec{Name: "huge", Files: []bagtest.File{{Path: "data/a.bin", Size: 200_000}}})
	job := a.jobs().SpotRestore(24*time.Hour, Spot{Least: LeastSpot, Most: 100_000})
	if got := a.does(job); got != "chosen: none; without a suitable object: none" {
		t.Errorf("result while no institution wants it = %q", got)
	}
	a.Exec(`UPDATE institutions SET spot_restore_days = 7 WHERE identifier = 'test.edu'`)
	got := a.does(job)
	if !slices.Contains([]string{"chosen: test.edu/one; without a suitable object: none", "chosen: test.edu/two; without a suitable object: none"}, got) {
		t.Fatalf("result = %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT priority FROM work_items WHERE action = 'Restore Object'`); n != 100 {
		t.Errorf("its priority is %d", n)
	}
	if again := a.does(job); again != "chosen: none; without a suitable object: none" {
		t.Errorf("result of another run = %q", again)
	}
	a.Work()
	drawn := pipelinetest.Value[string](a, `SELECT object_identifier FROM work_items WHERE action = 'Restore Object' AND status = 'Success'`)
	if keys := a.Keys(a.RestoreBucket()); !slices.Equal(keys, []string{drawn + ".tar"}) {
		t.Errorf("restored are %v, and drawn was %s", keys, drawn)
	}
	if text := pipelinetest.Value[string](a, `SELECT string_agg(type || ': ' || content, '; ') FROM alerts`); !strings.HasPrefix(text, "Spot Restoration Completed: ") ||
		!strings.Contains(text, drawn) || !strings.Contains(text, "restored to https://") || strings.Contains(text, "; ") {
		t.Errorf("alerts: %s", text)
	}

	// The other one's copies are bad.
	other := map[string]string{"test.edu/one": "test.edu/two", "test.edu/two": "test.edu/one"}[drawn]
	a.Exec(`UPDATE spot_restores SET requested_at = now() - interval '6 days 20 hours'; DELETE FROM alerts`)
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		a.Flip(target, other+"/data/a.bin", 7)
	}
	if got := a.does(job); got != "chosen: "+other+"; without a suitable object: none" {
		t.Fatalf("result a week later = %q", got)
	}
	a.Work()
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Spot Restoration Failed' AND content LIKE '%data/a.bin%'`); n != 2 || pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type <> 'Failed Fixity Check'`) != 2 {
		t.Errorf("%d alerts say that it failed", n)
	}
	if outcomes := pipelinetest.Value[string](a, `SELECT string_agg(outcome, ' ' ORDER BY work_item_id) FROM spot_restores`); outcomes != "restored failed" {
		t.Errorf("on record: %s", outcomes)
	}
	a.Exec(`UPDATE spot_restores SET requested_at = now() - interval '30 days'; UPDATE intellectual_objects SET state = 'D'`)
	if got := a.does(job); got != "chosen: none; without a suitable object: test.edu" {
		t.Errorf("result when all is deleted = %q", got)
	}
}

// What is read at once is where the configuration says so, and not the option's name.
func TestOptionsThatCanBeReadAtOnce(t *testing.T) {
	t.Parallel()
	open := func(cold bool) Jobs {
		d := Jobs{Targets: map[string]*storage.Bucket{}}
		for _, spec := range storage.Targets() {
			class := spec.StorageClass
			if !cold {
				class = ""
			}
			b := must.Get(storage.NewClient(storage.Options{}).Bucket(storage.Target{Name: spec.Name, Bucket: spec.Bucket, Region: "us-east-1", StorageClass: class, AccessKeyID: "a", SecretAccessKey: "s"}))(t)
			d.Targets[spec.Name] = b
		}
		return d
	}
	if diff := cmp.Diff([]string{"Standard", "Wasabi-VA", "Wasabi-OR", "Wasabi-TX"}, open(true).readableOptions()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(storage.OptionNames(), open(false).readableOptions()); diff != "" {
		t.Errorf("options of a gateway without classes (-want +got):\n%s", diff)
	}
}

func TestListsOfManyAreCut(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprint(i))
	}
	if got := listed(many); got != "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 20 more" {
		t.Errorf("listed = %q", got)
	}
}
