package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// as is a registry in the name of a person who runs a command.
func (a *archive) as(person string) *registry.Registry {
	a.t.Helper()
	db := must.Get(dial.Connect(a.t.Context(), a.db.Config().ConnString(), "farol-pause "+person))(a.t)
	a.t.Cleanup(db.Close)
	return registry.New(db)
}

// inForce lists the pauses of a stage: who, why.
func (a *archive) inForce(stage registry.Stage) string {
	a.t.Helper()
	list := must.Get(a.Pauses(a.t.Context()))(a.t)
	var texts []string
	for _, s := range list {
		if s.Stage != stage {
			continue
		}
		if s.Paused != (len(s.Pauses) > 0) {
			a.t.Errorf("%s is paused: %t, with %d pauses", stage, s.Paused, len(s.Pauses))
		}
		for _, p := range s.Pauses {
			reason := ""
			if p.Reason != nil {
				reason = " " + *p.Reason
			}
			texts = append(texts, p.By[strings.Index(p.By, "(")+1:strings.LastIndex(p.By, ")")]+reason)
		}
	}
	return strings.Join(texts, ", ")
}

// A legal hold outlives the pause and the resume of all stages, whoever makes these, and its
// reason stays: it ends by whom it is, or by its ID.
func TestNobodyLiftsAPauseOfAnotherByAccident(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := t.Context()
	ann, bob := a.as("ann"), a.as("bob")
	must := func(list []record.StagePause, err error) []record.StagePause {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := func(stage registry.Stage, want string) {
		t.Helper()
		if got := a.inForce(stage); got != want {
			t.Errorf("pauses of %s: %q, want %q", stage, got, want)
		}
	}
	must(ann.Pause(ctx, "Store", "legal hold"))
	all := must(bob.Pause(ctx, "", "upgrade"))
	want("Store", "ann legal hold, bob upgrade")
	must(bob.Pause(ctx, "", "upgrade to 4.2")) // his reason, and hers stays
	want("Store", "ann legal hold, bob upgrade to 4.2")
	want(registry.FixityStage, "bob upgrade to 4.2")
	if ids := value[int](a, `SELECT count(DISTINCT id) FROM pauses WHERE of_all`); ids != 1 {
		t.Errorf("a pause of all stages has %d IDs, want 1 by which it can be ended", ids)
	}

	if left := must(ann.Resume(ctx, "")); !left[0].Paused {
		t.Error("ann ended bob's pause of all stages")
	}
	one := must(bob.Resume(ctx, "Store"))
	if len(one) != 1 || !one[0].Paused || len(one[0].Pauses) != 1 || *one[0].PauseReason != "legal hold" || !strings.Contains(*one[0].PausedBy, "ann") {
		t.Errorf("the answer to bob is %+v, want that the stage is still paused, by ann", one)
	}
	must(bob.Resume(ctx, ""))
	want("Store", "ann legal hold")
	want("Record", "")
	if n := value[int](a, `SELECT count(*) FROM stage_pauses WHERE paused`); n != 1 {
		t.Errorf("%d stages are paused, want 1 of %d", n, len(all))
	}

	// The same in the name of one person: the hold of a stage is not the pause of all.
	must(ann.Pause(ctx, "", "upgrade"))
	must(ann.Resume(ctx, ""))
	want("Store", "ann legal hold")

	_, err := bob.DB().Exec(ctx, `UPDATE stage_settings SET paused = false`)
	if !errors.Is(registry.Refusal(err), registry.ErrRefused) || !strings.Contains(err.Error(), "ann") || !strings.Contains(err.Error(), "legal hold") {
		t.Errorf("bob's UPDATE: %v", err)
	}
	if _, err := bob.DB().Exec(ctx, `UPDATE stage_settings SET paused = true, pause_reason = 'new disks' WHERE stage = 'Store'`); err != nil {
		t.Error(err)
	}
	want("Store", "ann legal hold, bob new disks")

	hold := value[int64](a, `SELECT id FROM pauses WHERE reason = 'legal hold' AND lifted_at IS NULL`)
	must(bob.LiftPause(ctx, hold)) // on purpose
	want("Store", "bob new disks")
	if by := value[string](a, `SELECT lifted_by FROM pauses WHERE reason = 'legal hold'`); !strings.Contains(by, "bob") {
		t.Errorf("the hold was lifted by %q", by)
	}
	if after := value[string](a, `SELECT actor || ': ' || (before->>'pause_reason') || ' -> ' || (after->>'pause_reason') FROM stage_settings_audit ORDER BY id DESC LIMIT 1`); !strings.HasSuffix(after, "(bob): legal hold; new disks -> new disks") {
		t.Errorf("on record: %s", after)
	}
	if _, err := bob.LiftPause(ctx, hold); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	must(bob.Resume(ctx, "Store"))
	want("Store", "")
}

// A stage that is added while all stages are paused is paused with them, and goes on with them.
func TestAnAddedStageIsPausedWithAllOthers(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ann := a.as("ann")
	for range 2 { // the name can be used again
		must.Get(ann.Pause(t.Context(), "", "upgrade"))(t)
		if s, err := a.AddStage(t.Context(), registry.NewStage{Name: "Virus Scan", After: "Validate"}); err != nil || !s.Paused || a.inForce("Virus Scan") == "" {
			t.Errorf("added: %+v, %v; want it paused", s, err)
		}
		must.Get(a.RemoveStage(t.Context(), "Virus Scan"))(t)
	}
	must.Get(a.AddStage(t.Context(), registry.NewStage{Name: "Virus Scan", After: "Validate"}))(t)
	must.Get(ann.Resume(t.Context(), ""))(t)
	if n := value[int](a, `SELECT count(*) FROM stage_pauses WHERE paused`); n != 0 {
		t.Errorf("%d stages are still paused", n)
	}
}

// Two people who hold a service hold it twice.
func TestNobodyReleasesAHoldOfAnother(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := t.Context()
	a.exec(`INSERT INTO known_services (service) VALUES ('s3:a')`)
	ann, bob := a.as("ann"), a.as("bob")
	state := func(list []record.Service, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if list[0].HeldBy == nil {
			return list[0].State
		}
		return list[0].State + " " + *list[0].HeldReason
	}
	_ = state(ann.HoldService(ctx, "s3:a", "legal hold"))
	if got := state(bob.HoldService(ctx, "s3:a", "new disks")); got != "held legal hold; new disks" {
		t.Error(got)
	}
	if got := state(bob.ReleaseService(ctx, "s3:a")); got != "held legal hold" {
		t.Errorf("bob released it: %s", got)
	}
	if _, err := bob.LiftPause(ctx, value[int64](a, `SELECT id FROM pauses WHERE lifted_at IS NULL`)); err != nil {
		t.Error(err)
	}
	if got := state(a.ReleaseService(ctx, "s3:a")); got != "ok" {
		t.Errorf("afterwards it is %s", got)
	}
}

// Whatever three people and NSQ do, in whatever order, a stage is paused exactly while a
// pause of somebody is left, and each person's pause ends by that person or by its ID.
func TestPausesAreAsTheirPeopleLeaveThem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	people := []*registry.Registry{a.as("ann"), a.as("bob"), a.as("eve")}
	stages := []registry.Stage{"Store", "Record", registry.FixityStage}
	topics := []string{"ingest06_storage", "ingest08_record", "fixity_check"}
	rapid.Check(t, func(rt *rapid.T) {
		a.exec(`UPDATE pauses SET lifted_at = now(), lifted_by = 'test' WHERE lifted_at IS NULL`)
		a.exec(`UPDATE stage_settings SET paused_at = paused_at`)
		a.exec(`UPDATE fixity_feed SET paused_at = paused_at`)
		type pause struct {
			stage int
			who   string
			all   bool
		}
		model := map[pause]bool{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			n, s := rapid.IntRange(0, 2).Draw(rt, "person"), rapid.IntRange(0, 2).Draw(rt, "stage")
			who, stage := people[n], stages[s]
			name := fmt.Sprint(n)
			var err error
			switch do := rapid.SampledFrom([]string{"pause", "resume", "pause all", "resume all", "lift", "NSQ", "unNSQ"}).Draw(rt, "do"); do {
			case "pause":
				_, err = who.Pause(t.Context(), stage, "why")
				model[pause{s, name, false}] = true
			case "resume":
				_, err = who.Resume(t.Context(), stage)
				for _, p := range []pause{{s, name, false}, {s, name, true}, {s, "NSQ", false}} {
					delete(model, p)
				}
			case "pause all", "resume all":
				if do == "pause all" {
					_, err = who.Pause(t.Context(), "", "")
				} else {
					_, err = who.Resume(t.Context(), "")
				}
				for s := range stages {
					if delete(model, pause{s, name, true}); do == "pause all" {
						model[pause{s, name, true}] = true
					}
				}
			case "lift":
				var id int64
				by := fmt.Sprintf("%%(%s)", []string{"ann", "bob", "eve"}[n])
				if err = a.db.QueryRow(t.Context(), `SELECT id FROM pauses WHERE stage = $1 AND paused_by LIKE $2 AND NOT of_all AND lifted_at IS NULL`, stage, by).Scan(&id); err == nil {
					_, err = people[(n+1)%3].LiftPause(t.Context(), id)
				} else if errors.Is(err, pgx.ErrNoRows) {
					err = nil
				}
				delete(model, pause{s, name, false})
			default:
				_, err = a.db.Exec(t.Context(), `SELECT pause_from_nsq($1, gen_random_uuid()::text, $2, true)`, topics[s], do == "NSQ")
				if do == "unNSQ" {
					delete(model, pause{s, "NSQ", false})
				} else if paused(model, func(p pause) bool { return p.stage == s }) == 0 { // else it is so already
					model[pause{s, "NSQ", false}] = true
				}
			}
			if err != nil {
				rt.Fatal(err)
			}
			for s, stage := range stages {
				want := paused(model, func(p pause) bool { return p.stage == s })
				var is bool
				var records int
				must.Do(rt, a.db.QueryRow(t.Context(), `SELECT paused, jsonb_array_length(pauses) FROM stage_pauses WHERE stage = $1`, stage).Scan(&is, &records))
				if is != (want > 0) || records != want {
					rt.Fatalf("%s: paused %t with %d pauses, want %d", stage, is, records, want)
				}
			}
		}
	})
}

// paused counts the pauses of a model that are about something.
func paused[P comparable](model map[P]bool, about func(P) bool) (n int) {
	for p := range model {
		if about(p) {
			n++
		}
	}
	return n
}

// What follows from the records of pauses cannot be typed over.
func TestWhatFollowsFromPausesIsNotTyped(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`SELECT pause_all('upgrade')`)
	a.exec(`UPDATE stage_settings SET paused_by = 'nobody', paused_at = NULL, paused_in_nsq = true`)
	if n := value[int](a, `SELECT count(*) FROM stage_settings WHERE NOT paused OR paused_by <> session_user OR paused_at IS NULL OR paused_in_nsq`); n != 0 {
		t.Errorf("what was typed into %d rows stands there", n)
	}
	testenv.Refused(t, a.db, "there is no pause 0 in force", `SELECT lift_pause(0)`)
}
