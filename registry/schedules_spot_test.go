package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// sized puts so many objects of a size on record, as [archive.objects] does, and
// has them spot-restored every seven days.
func (a *archive) sized(n int, bytes int64) upkeep.SpotChoice {
	a.t.Helper()
	a.objects(n, "Standard")
	a.exec(`UPDATE generic_files SET size = $1`, bytes)
	a.exec(`UPDATE institutions SET spot_restore_days = 7 WHERE identifier = 'test.edu'`)
	return upkeep.SpotChoice{
		Institution: upkeep.SpotInstitution{ID: a.in.ID, Identifier: "test.edu", Days: 7},
		Options:     []string{"Standard", "Wasabi-VA"}, Least: 10_000, Most: 1 << 30,
	}
}

func (a *archive) draw(c upkeep.SpotChoice) string {
	a.t.Helper()
	object := must.Get(upkeep.In(a.Registry).Draw(context.Background(), c))(a.t)
	return strings.TrimPrefix(object, "test.edu/")
}

func (a *archive) spot(object string) int64 {
	a.t.Helper()
	return must.Get(upkeep.In(a.Registry).RequestSpotRestore(context.Background(), a.in.ID, "test.edu/"+object, 100))(a.t)
}

// end brings a request to its end as a worker does.
func (a *archive) end(item int64, status, note string) {
	a.t.Helper()
	a.exec(`UPDATE work_items SET claim_token = claim_token + 1, status = $2::text, retry = false, note = $3,
		stage = CASE WHEN $2::text = 'Success' THEN 'Resolve' ELSE stage END WHERE id = $1`, item, status, note)
}

func (a *archive) dueForSpot() (names []string) {
	a.t.Helper()
	list := must.Get(upkeep.In(a.Registry).DueForSpotRestore(context.Background()))(a.t)
	for _, in := range list {
		names = append(names, in.Identifier)
	}
	return names
}

// An institution is due as often as it has said, and not while the last one waits.
func TestWhoIsDueForASpotRestoration(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.sized(2, 20_000)
	due := func(when string, want bool) {
		t.Helper()
		if got := a.dueForSpot(); slices.Contains(got, "test.edu") != want || len(got) > 1 {
			t.Errorf("%s: due are %v", when, got)
		}
	}
	a.institution("never.edu")
	due("never done", true)
	a.exec(`UPDATE institutions SET state = 'D'`)
	due("deactivated", false)
	a.exec(`UPDATE institutions SET state = 'A'`)
	item := a.spot("o1")
	due("just asked for", false)
	a.exec(`UPDATE spot_restores SET requested_at = now() - interval '30 days'`)
	due("still in the queue", false)
	a.end(item, "Success", "It is there.")
	due("done long ago", true)
	a.exec(`UPDATE spot_restores SET requested_at = now() - interval '6 days 11 hours'`)
	due("done lately", false)
	a.exec(`UPDATE spot_restores SET requested_at = now() - interval '6 days 23 hours'`) // by a job that is a moment later each day
	due("done seven days ago, all but a moment", true)
	cancelled := a.spot("o2")
	a.exec(`SELECT cancel($1)`, cancelled)
	due("cancelled", true)
	a.exec(`UPDATE institutions SET spot_restore_days = 0 WHERE identifier = 'test.edu'`)
	due("off", false)
}

// Only what can be restored at once, shows something and is in nobody's way is
// drawn: here there is never more than one such object.
func TestDrawKeepsToItsRules(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{
		"deleted":         `UPDATE intellectual_objects SET state = 'D' WHERE bag_name <> 'o3'`,
		"being deleted":   `UPDATE intellectual_objects SET deleted_by_item = 1 WHERE bag_name <> 'o3'`,
		"losing a file":   `UPDATE generic_files SET deleted_by_item = 1 WHERE identifier NOT LIKE '%/o3/%'`,
		"too small":       `UPDATE generic_files SET size = 9999 WHERE identifier NOT LIKE '%/o3/%'`,
		"too large":       `UPDATE generic_files SET size = (1 << 30) + 1 WHERE identifier NOT LIKE '%/o3/%'`,
		"without files":   `UPDATE generic_files SET state = 'D' WHERE identifier NOT LIKE '%/o3/%'`,
		"archived":        `UPDATE intellectual_objects SET storage_option = 'Glacier-VA' WHERE bag_name <> 'o3'`,
		"another's":       `UPDATE intellectual_objects SET institution_id = (SELECT max(id) FROM institutions) WHERE bag_name <> 'o3'`,
		"just restored":   `INSERT INTO spot_restores SELECT institution_id, id, id, now() - interval '6 days', now(), 'restored' FROM intellectual_objects WHERE bag_name <> 'o3'`,
		"being ingested":  `INSERT INTO uploads_in_work SELECT identifier, 'n', 'e', 7 FROM intellectual_objects WHERE bag_name <> 'o3'`,
		"in work already": `SELECT 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			c := a.sized(6, 20_000)
			a.institution("other.edu")
			if strings.HasPrefix(rule, "UPDATE generic_files") { // its triggers count files
				a.exec(rule)
			} else {
				a.scene(rule)
			}
			if name == "in work already" {
				for _, o := range []string{"o1", "o2", "o4", "o5", "o6"} {
					must.Get(requests.In(a.Registry).RequestRestoration(t.Context(), requests.RestorationRequest{Identifier: "test.edu/" + o}))(t)
				}
			}
			for range 20 {
				if got := a.draw(c); got != "o3" {
					t.Fatalf("drew %q", got)
				}
			}
			a.exec(`UPDATE intellectual_objects SET deleted_by_item = 7 WHERE bag_name = 'o3'`)
			want := map[string]bool{"": true}
			if name == "just restored" { // better one of them than none
				want = map[string]bool{"o1": true, "o2": true, "o4": true, "o5": true, "o6": true}
			}
			if got := a.draw(c); !want[got] {
				t.Errorf("drew %q when nothing was left", got)
			}
		})
	}
	if a := newArchive(t); a.draw(upkeep.SpotChoice{Institution: upkeep.SpotInstitution{ID: a.in.ID}}) != "" {
		t.Error("something was drawn of an institution that has nothing")
	}
}

// Each object has its chance, and not only the first.
func TestDrawIsRandom(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	c := a.sized(400, 20_000)
	drawn, halves := map[string]int{}, [2]int{}
	for range 200 {
		o := a.draw(c)
		drawn[o]++
		halves[min(value[int](a, `SELECT (substr($1, 2)::int - 1) / 200`, o), 1)]++
	}
	// Of 200 draws from 400 some 150 differ. The page of a draw reaches a hundred objects
	// beyond its start, so that the lower half gets 75 of them. That fewer than 100 differ,
	// or that a half gets fewer than 25, is more than seven standard deviations away.
	if len(drawn) < 100 || halves[0] < 25 || halves[1] < 25 {
		t.Errorf("%d different objects were drawn, %v of the halves", len(drawn), halves)
	}
}

// Where the numbers of an institution's objects have a gap, nearly all draws fall into
// it: those that come after it all have their chance.
func TestDrawIsRandomBesideAGap(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.sized(1, 20_000)
	a.exec(`UPDATE intellectual_objects SET identifier = 'test.edu/first', bag_name = 'first'`)
	a.exec(`UPDATE generic_files SET identifier = 'test.edu/first/data/f'`)
	a.exec(`SELECT setval(pg_get_serial_sequence('intellectual_objects', 'id'), 1000000)`)
	c := a.sized(50, 20_000)
	drawn := map[string]int{}
	for range 60 {
		drawn[a.draw(c)]++
	}
	if len(drawn) < 15 { // some 35 are to be expected
		t.Errorf("only %d of 51 objects were drawn: %v", len(drawn), drawn)
	}
}

// One that may be drawn is found among thousands that may not.
func TestDrawFindsTheOnlyOne(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	c := a.sized(5000, 10)
	a.exec(`UPDATE generic_files SET size = 10000 WHERE identifier = 'test.edu/o3210/data/f'`)
	if got := a.draw(c); got != "o3210" {
		t.Errorf("drew %q", got)
	}
}

// However many ask at once, one object is restored, by the archive, last of all.
func TestSpotRestorationIsAskedForOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.sized(8, 20_000)
	var made atomic.Int64
	var all sync.WaitGroup
	for _, o := range []string{"o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8"} {
		all.Go(func() {
			item, err := upkeep.In(a.Registry).RequestSpotRestore(context.Background(), a.in.ID, "test.edu/"+o, 100)
			if err != nil {
				t.Error(err)
			}
			if item > 0 {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if n := value[int64](a, `SELECT count(*) FROM work_items w JOIN spot_restores s ON s.work_item_id = w.id
			WHERE w.action = 'Restore Object' AND w.priority = 100 AND w."user" = 'system@aptrust.org' AND w.intellectual_object_id = s.intellectual_object_id`); n != 1 || made.Load() != 1 {
		t.Errorf("%d were asked for, and %d are in the queue", made.Load(), n)
	}
	if _, err := upkeep.In(a.Registry).RequestSpotRestore(context.Background(), a.in.ID, "test.edu/none", 100); err != nil {
		t.Errorf("who is not due is refused: %v", err)
	}
	a.exec(`DELETE FROM spot_restores`)
	if _, err := upkeep.In(a.Registry).RequestSpotRestore(context.Background(), a.in.ID, "test.edu/none", 100); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("what is not there is %v", err)
	}
	if n := value[int](a, `SELECT count(*) FROM spot_restores`); n != 0 {
		t.Errorf("%d are on record of what is not there", n)
	}
}

// The institution gets an alert of its own kind for each, and the staff for failures;
// an ordinary restoration is reported as before.
func TestSpotRestorationsAreReported(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.sized(4, 20_000)
	alerts := func() []string {
		return a.table(`SELECT concat_ws('|', type, institution_id IS NOT NULL, work_item_id, subject) FROM alerts ORDER BY id`)
	}
	next := func() {
		a.exec(`DELETE FROM alerts; UPDATE spot_restores SET requested_at = now() - interval '30 days'`)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, alerts(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	outcome := func(item int64) string {
		t.Helper()
		return value[string](a, `SELECT coalesce(outcome, 'none') || CASE WHEN ended_at IS NULL THEN '' ELSE ' ended' END FROM spot_restores WHERE work_item_id = $1`, item)
	}

	item := a.spot("o1")
	if got := outcome(item); got != "none" {
		t.Errorf("before its end it is %s", got)
	}
	a.end(item, "Success", "It is in restore.test.edu.")
	expect("restored", "Spot Restoration Completed|t|1|Spot restoration is completed: test.edu/o1")
	if text := value[string](a, `SELECT content FROM alerts`); !strings.Contains(text, "Every 7 days") || !strings.HasSuffix(text, "It is in restore.test.edu.") {
		t.Errorf("it says %q", text)
	}
	if got := outcome(item); got != "restored ended" {
		t.Errorf("at its end it is %s", got)
	}

	next()
	item = a.spot("o2")
	a.end(item, "Suspended", "No good copy can be read.")
	expect("failed", "Spot Restoration Failed|t|2|Spot restoration failed: test.edu/o2", "Spot Restoration Failed|f|2|Spot restoration failed: test.edu/o2")
	if n := value[int](a, `SELECT count(*) FROM alerts WHERE content LIKE '%item 2 is Suspended. No good copy can be read.'`); n != 2 {
		t.Errorf("%d alerts say why", n)
	}
	if got := outcome(item); got != "failed ended" {
		t.Errorf("at its end it is %s", got)
	}
	next()
	a.exec(`SELECT requeue($1)`, item) // a person has repaired it
	a.end(item, "Success", "It is there.")
	expect("mended", "Spot Restoration Completed|t|2|Spot restoration is completed: test.edu/o2")
	if got := outcome(item); got != "restored ended" {
		t.Errorf("mended it is %s", got)
	}

	next()
	item = a.spot("o3")
	a.exec(`SELECT cancel($1)`, item)
	expect("cancelled")
	if got := outcome(item); got != "cancelled ended" {
		t.Errorf("at its end it is %s", got)
	}
	next()
	for i, o := range []string{"test.edu/o4", "test.edu/o4/data/f"} {
		r := must.Get(requests.In(a.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{Identifier: o, File: i == 1}))(t)
		a.end(r.Item.ID, "Success", "It is there.")
	}
	expect("asked for by people", "Restoration Completed|t|4|Restore Object is completed: test.edu/o4", "Restoration Completed|t|5|Restore File is completed: test.edu/o4")
	next()
	failed := must.Get(requests.In(a.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{Identifier: "test.edu/o4"}))(t)
	a.end(failed.Item.ID, "Failed", "It is not there.")
	expect("asked for by people, and failed", "Item Failed|t|6|Item 6 failed at Requested: o4.tar", "Item Failed|f|6|Item 6 failed at Requested: o4.tar")
}
