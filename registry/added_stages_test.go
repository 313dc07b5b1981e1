package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// order is that of an ingest's stages.
func (a *archive) order() string {
	a.t.Helper()
	return value[string](a, `SELECT string_agg(stage, ', ' ORDER BY ordinal) FROM stage_settings WHERE action = 'Ingest'`)
}

func (a *archive) addStage(name, after registry.Stage) {
	a.t.Helper()
	must.Get(a.AddStage(context.Background(), registry.NewStage{Name: name, After: after}))(a.t)
}

// Stages are put in and taken out anywhere, and the others keep their order.
func TestStagesAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	before := a.order()
	a.addStage("OCR", "Validate")
	a.addStage("Virus Scan", "Validate")
	a.addStage("Report 2", "Record")
	want := "Receive, Validate, Virus Scan, OCR, Reingest Check, Copy To Staging, Format Identification, Store, Storage Validation, Record, Report 2, Cleanup"
	if got := a.order(); got != want {
		t.Errorf("the order is %s", got)
	}
	if n := value[int](a, `SELECT count(*) FROM stage_settings_audit WHERE before = 'null' AND after->>'worker' = 'http'`); n != 3 {
		t.Errorf("%d additions are on record", n)
	}
	for _, name := range []registry.Stage{"OCR", "Report 2", "Virus Scan"} {
		if s, err := a.RemoveStage(ctx, name); err != nil || s.Stage != name {
			t.Errorf("RemoveStage(%s) = %+v, %v", name, s, err)
		}
	}
	if got := a.order(); got != before {
		t.Errorf("the order is %s", got)
	}
	a.addStage("OCR", "Receive") // a name may come back
	if got := a.order(); !strings.HasPrefix(got, "Receive, OCR, Validate, ") {
		t.Errorf("the order is %s", got)
	}
	if names, err := a.StageNames(ctx); err != nil || !slices.Equal(names[:3], []registry.Stage{"Receive", "OCR", "Validate"}) || len(names) != 19 {
		t.Errorf("StageNames = %q, %v", names, err)
	}
}

// What would break the order, or could be mistaken, is refused with what to do.
func TestStagesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.addStage("Virus Scan", "Validate")
	for call, want := range map[string]string{
		`SELECT add_stage('Store', 'Validate')`:                                        "there is a stage 'Store' already",
		`SELECT add_stage('STORE', 'Validate')`:                                        "there is a stage 'Store' already",
		`SELECT add_stage('Fetch', 'Validate')`:                                        "there is a stage 'Fetch' already",
		`SELECT add_stage('Delete', 'Validate')`:                                       "invalid stage name: 'Delete'",
		`SELECT add_stage('All', 'Validate')`:                                          "invalid stage name: 'All'",
		`SELECT add_stage('Two  Spaces', 'Validate')`:                                  "invalid stage name:",
		`SELECT add_stage(NULL, 'Validate')`:                                           "invalid stage name: NULL",
		`SELECT add_stage('O''CR', 'Validate')`:                                        "invalid stage name:",
		`SELECT add_stage('A' || repeat('b', 50), 'Validate')`:                         "invalid stage name:",
		`SELECT add_stage('OCR', 'Requested')`:                                         "there is no stage 'Requested'; the stages of Ingest are: Receive, Validate, Virus Scan, Reingest Check",
		`SELECT add_stage('OCR', 'Cleanup')`:                                           "no stage can come after Cleanup",
		`SELECT add_stage('OCR', 'Validate', 'ingest06_storage')`:                      "the topic 'ingest06_storage' is that of Ingest, Store",
		`SELECT add_stage('OCR', 'Validate', 'a b')`:                                   "NSQ has no topic 'a b'",
		`SELECT add_stage('OCR', 'Validate', lease => '1 second', heartbeat => '1 s')`: "lease_outlasts_heartbeats",
		`SELECT remove_stage('Record')`:                                                "the stage Record is Farol's own",
		`SELECT remove_stage('Virus scan')`:                                            "there is no stage 'Virus scan'",
		`UPDATE stage_settings SET worker = 'http' WHERE stage = 'Store'`:              "farol_works_its_own_stages",
		`UPDATE stage_settings SET worker = 'farol' WHERE stage = 'Virus Scan'`:        "farol_works_its_own_stages",
		`UPDATE stage_settings SET ordinal = 1 WHERE stage = 'Virus Scan'`:             "cannot be renamed or moved",
		`DELETE FROM stage_names`:                                                      "only add_stage() and remove_stage() write stage_names",
		`TRUNCATE stage_names CASCADE`:                                                 "write stage_names",
		`UPDATE stage_names SET followed_by = 'Store'`:                                 "write stage_names",
		`SELECT pause_stage('Virus scan')`:                                             "Receive, Validate, Virus Scan, Reingest Check",
	} {
		testenv.Refused(t, a.db, want, call)
	}
	if _, err := a.AddStage(context.Background(), registry.NewStage{Name: "Store", After: "Validate"}); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("AddStage = %v, want ErrRefused", err)
	}
}

// A stage stays while live items are at it. What is parked there can be requeued to
// where items go on now, even if that stage is removed too, and no further.
func TestItemsOfARemovedStageAreNotLost(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	a.addStage("Virus Scan", "Validate")
	a.addStage("OCR", "Virus Scan")
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	if got := a.order(); !strings.HasPrefix(got, "Receive, Validate, Virus Scan, OCR, Reingest Check") {
		t.Fatalf("the order is %s", got)
	}
	a.exec(`UPDATE work_items SET stage = 'Virus Scan', claim_token = claim_token + 1, entered_token = claim_token + 1`)
	if _, err := a.RemoveStage(ctx, "Virus Scan"); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("RemoveStage with a live item = %v", err)
	}
	a.exec(`UPDATE work_items SET status = 'Suspended'`)
	if s, err := a.RemoveStage(ctx, "Virus Scan"); err != nil || s.Parked != 1 {
		t.Errorf("RemoveStage = %+v, %v", s, err)
	}
	if _, err := a.RemoveStage(ctx, "OCR"); err != nil {
		t.Error(err)
	}
	for stage, want := range map[string]string{
		"Copy To Staging": "it has only come to Virus Scan", "Virus Scan": "there is no stage 'Virus Scan'", "": "there is no stage 'Virus Scan'", "OCR": "there is no stage 'OCR'",
	} {
		if _, err := a.Requeue(ctx, id, registry.Stage(stage)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Requeue to %q = %v, want %q", stage, err, want)
		}
	}
	if item, err := a.Requeue(ctx, id, "Reingest Check"); err != nil || item.Stage != "Reingest Check" || item.Status != "Pending" {
		t.Errorf("Requeue = %+v, %v", item, err)
	}
}

// An added stage behind Store is late: what has come to it is not replaced by a
// newer version. One before it is not.
func TestAddedStagesAreLateOrNot(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.addStage("Early", "Format Identification")
	a.addStage("Late", "Store")
	for stage, want := range map[string]string{"Early": "Cancelled", "Late": "Pending"} {
		id := a.upload(etag1, time.Now().Add(-time.Hour), stage+".tar")[0]
		a.exec(`UPDATE work_items SET stage = $2, claim_token = claim_token + 1, entered_token = claim_token + 1 WHERE id = $1`, id, stage)
		a.upload("another-etag", time.Now(), stage+".tar")
		if got := value[string](a, `SELECT status FROM work_items WHERE id = $1`, id); got != want {
			t.Errorf("at %s the older version is %s, want %s", stage, got, want)
		}
	}
}

// A dump is restored in whatever order: names are not looked at while there are none.
func TestNamesAreNotCheckedInARestoration(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	if value[bool](a, `SELECT convalidated FROM pg_constraint WHERE conname = 'work_stage_check'`) {
		t.Error("a dump has the check before the data")
	}
	a.scene(`DELETE FROM stage_names`)
	if got := value[string](a, `SELECT 'Virus Scan'::work_stage`); got != "Virus Scan" {
		t.Errorf("got %s", got)
	}
}
