package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// paused lists the stages that are paused, with the reason, in their order.
func (a *archive) paused() string {
	a.t.Helper()
	return value[string](a, `SELECT coalesce(string_agg(concat_ws(' ', action, stage, pause_reason), ', ' ORDER BY action, ordinal), '')
		FROM stage_settings WHERE paused AND paused_by = session_user AND paused_at <= now()`)
}

// The first pause records who paused; every change is on record.
func TestPausedStagesSayByWhomAndWhy(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	for _, step := range []struct {
		do   string
		want string // paused afterwards
	}{
		{`SELECT pause_stage('Store')`, "Ingest Store"},
		{`SELECT pause_stage('Store', 'The bucket moves.')`, "Ingest Store The bucket moves."},
		{`SELECT pause_stage('Store')`, "Ingest Store The bucket moves."},
		{`SELECT pause_stage('Requested', 'Holidays.', 'Delete')`, "Delete Requested Holidays., Ingest Store The bucket moves."},
		{`SELECT resume_stage('Store')`, "Delete Requested Holidays."},
		{`SELECT resume_stage('Requested', 'Restore File')`, "Delete Requested Holidays."},
		{`SELECT resume_stage('Requested')`, ""},
		{`SELECT pause_stage('Requested')`, "Delete Requested, Export Requested, Glacier Restore Requested, Restore File Requested, Restore Object Requested"},
		{`SELECT resume_all()`, "Delete Requested, Export Requested, Glacier Restore Requested, Restore File Requested, Restore Object Requested"}, // not paused by pause_all()
		{`SELECT resume_stage('Requested')`, ""},
		{`UPDATE stage_settings SET paused = true, pause_reason = 'By hand.' WHERE stage = 'Record'`, "Ingest Record By hand."},
		{`UPDATE stage_settings SET paused = true, paused_by = 'somebody', paused_at = 'infinity' WHERE stage = 'Record'`, "Ingest Record By hand."},
		{`UPDATE stage_settings SET paused_by = NULL, paused_at = NULL`, "Ingest Record By hand."},
		{`UPDATE stage_settings SET paused = false, pause_reason = 'Left over.'`, ""},
	} {
		a.exec(step.do)
		if got := a.paused(); got != step.want {
			t.Errorf("after %s: %q are paused, want %q", step.do, got, step.want)
		}
		a.fit(t, step.do)
	}
	if since := value[bool](a, `SELECT bool_or(paused_at IS NOT NULL OR pause_reason IS NOT NULL) FROM stage_settings`); since {
		t.Error("a stage that goes on says that it is paused")
	}
	const wantAudit = 1 + 1 + 0 + 1 + 1 + 0 + 1 + 5 + 0 + 5 + 1 + 0 + 0 + 1 // changes, by step
	if n := value[int](a, `SELECT count(*) FROM stage_settings_audit WHERE session_user_is = session_user AND before <> after`); n != wantAudit {
		t.Errorf("%d changes are on record, want %d", n, wantAudit)
	}
	all, err := a.Pause(ctx, "", "Upgrade")
	if err != nil || len(all) != 15 || !all[0].Paused || *all[0].PauseReason != "Upgrade" || all[0].PausedBy == nil || all[0].PausedAt == nil {
		t.Errorf("Pause of all = %+v, %v", all, err)
	}
	if one, err := a.Resume(ctx, "Store"); err != nil || len(one) != 1 || one[0].Paused || strings.Contains(a.paused(), "Ingest Store Up") {
		t.Errorf("Resume = %+v, %v", one, err)
	}
	if all, err := a.Resume(ctx, ""); err != nil || len(all) != 15 || a.paused() != "" {
		t.Errorf("Resume of all = %+v, %v", all, err)
	}
}

// A name with a small mistake is corrected in the error; any other wrong name is answered
// with all names.
func TestWrongNamesAreCorrected(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	for call, want := range map[string][2]string{
		`SELECT pause_stage('copy_to staging')`:                {"there is no stage 'copy_to staging'; the stages are: Receive, Validate, Reingest Check, ", "Write 'Copy To Staging'."},
		`SELECT resume_stage('RECORD ')`:                       {"there is no stage 'RECORD '", "Write 'Record'."},
		`SELECT pause_stage('Stroe')`:                          {"Record, Cleanup, Requested", "Write 'Store'."},
		`SELECT pause_stage('Recieve')`:                        {"there is no stage 'Recieve'", "Write 'Receive'."},
		`SELECT pause_stage('Storage')`:                        {"there is no stage 'Storage'", "Write 'Store'."},
		`SELECT pause_stage('Upload')`:                         {"there is no stage 'Upload'", "Write one of them"},
		`SELECT pause_stage('')`:                               {"there is no stage ''", "Write one of them"},
		`UPDATE work_items SET status = 'Canceled'`:            {"there is no status 'Canceled'; the statuses are: Pending, Started, ", "Write 'Cancelled'."},
		`UPDATE work_items SET storage_option = 'standard'`:    {"there is no storage option 'standard'; the storage options are: Standard, ", "Write 'Standard'."},
		`SELECT pause_stage('Store', NULL, 'Delete')`:          {"the stages of Delete are: Requested", "Write one of them"},
		`SELECT pause_stage('Requested', NULL, 'delete')`:      {"there is no action 'delete'; the actions are: Delete, Export, Glacier Restore, Ingest, ", "Write 'Delete'."},
		`SELECT pause_stage(NULL)`:                             {"there is no stage NULL", "Write one of them"},
		fmt.Sprintf(`SELECT requeue(%d, 'receive')`, id):       {"there is no stage 'receive'; the stages of Ingest are", "Write 'Receive'."},
		`SELECT requeue_where('true', 'formatidentification')`: {"there is no stage", "Write 'Format Identification'."},
		`SELECT drain_worker('nobody')`:                        {"there is no live worker 'nobody'", "There is none."},
		`SELECT requeue(99)`:                                   {"there is no item 99", ""},
		`SELECT cancel(NULL)`:                                  {"there is no item NULL", ""},
		`SELECT release(99)`:                                   {"there is no item 99", ""},
		`SELECT set_priority(99, 1)`:                           {"there is no item 99", ""},
		`SELECT why_not(99)`:                                   {"there is no item 99", ""},
	} {
		var refused *pgconn.PgError
		if _, err := a.db.Exec(context.Background(), call); !errors.As(err, &refused) || !strings.Contains(refused.Message, want[0]) || !strings.HasPrefix(refused.Hint, want[1]) {
			t.Errorf("%s: %v (%+v), want %q", call, err, refused, want)
		}
	}
	if _, err := a.Pause(context.Background(), "store", ""); !errors.Is(err, registry.ErrRefused) || !strings.HasSuffix(err.Error(), ". Write 'Store'.") {
		t.Errorf("Pause = %v, want ErrRefused with the right name", err)
	}
	if _, err := a.Drain(context.Background(), "nobody"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Drain = %v, want ErrNotFound", err)
	}
}

// Items are at a stage by its name: it keeps name and place, and stays as long as
// there are any.
func TestStagesStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.upload(etag1, time.Now(), "bag.tar")
	for _, typed := range []string{
		`UPDATE stage_settings SET stage = 'Stroe' WHERE stage = 'Store'`,
		`UPDATE stage_settings SET action = 'Delete' WHERE stage = 'Store'`,
		`UPDATE stage_settings SET ordinal = 1 WHERE stage = 'Store'`,
		`DELETE FROM stage_settings WHERE stage = 'Receive'`,
	} {
		var refused *pgconn.PgError
		if _, err := a.db.Exec(context.Background(), typed); !errors.As(err, &refused) || refused.Code != "23514" || refused.Hint == "" {
			t.Errorf("%s: %v, want a refusal with a way out", typed, err)
		}
		a.fit(t, typed)
	}
	a.exec(`DELETE FROM stage_settings WHERE action = 'Delete'`) // a later version may have no use for it
}

// Workers are notified of changed settings, and of items that overtake.
func TestWorkersAreNotifiedOfDecisions(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx, stop := context.WithTimeout(context.Background(), testenv.Patience)
	defer stop()
	a.worker("w1", `[]`)
	delayed, running := a.standing("delayed"), a.standingAs("running.tar", "Started")
	c := must.Get(a.db.Acquire(ctx))(t)
	defer c.Release()
	must.Get(c.Exec(ctx, `LISTEN farol_work; LISTEN farol_settings`))(t)
	const work, settings = `farol_work "\nStore"`, `farol_settings ""`
	for _, step := range []struct {
		do   string
		want []string
	}{
		{`SELECT drain_worker('w1')`, []string{settings}},
		{`SELECT pause_stage('Store')`, []string{settings, work}},
		{`SELECT resume_stage('Store')`, []string{settings, work}},
		{fmt.Sprintf(`SELECT set_priority(%d, -1)`, delayed), []string{work}},
		{fmt.Sprintf(`UPDATE work_items SET priority = 1 WHERE id = %d`, delayed), []string{work}},
		{fmt.Sprintf(`UPDATE work_items SET size = 5 WHERE id = %d`, delayed), []string{work}},
		{fmt.Sprintf(`SELECT requeue(%d)`, delayed), []string{work}},
		{fmt.Sprintf(`SELECT release(%d)`, running), []string{work}},
	} {
		a.exec(step.do)
		var heard []string
		for range step.want {
			n, err := c.Conn().WaitForNotification(ctx)
			if err != nil {
				t.Fatalf("after %s: heard %q and then %v", step.do, heard, err)
			}
			heard = append(heard, fmt.Sprintf("%s %q", n.Channel, n.Payload))
		}
		if !slices.Equal(heard, step.want) {
			t.Errorf("after %s: heard %q, want %q", step.do, heard, step.want)
		}
	}
}

// What runs with the rights of the tables' owner looks at no table that a session
// has made for itself.
func TestNoTableOfASessionStandsInForOurs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.standing("Failed")
	pooled := must.Get(a.db.Acquire(context.Background()))(t)
	c := pooled.Hijack() // so that what it makes goes with it
	defer c.Close(context.Background())
	for _, sql := range []string{
		`CREATE TEMPORARY VIEW stage_settings AS SELECT action, stage, 1::smallint AS ordinal, topic FROM public.stage_settings`,
		`CREATE TEMPORARY TABLE work_item_audit (LIKE public.work_item_audit INCLUDING DEFAULTS)`,
		`CREATE TEMPORARY TABLE work_item_attempts (LIKE public.work_item_attempts)`,
		`CREATE TEMPORARY TABLE institution_virtual_times (LIKE public.institution_virtual_times)`,
	} {
		must.Get(c.Exec(context.Background(), sql))(t)
	}
	for _, later := range []string{
		`UPDATE work_items SET stage = 'Record', status = 'Pending' WHERE id = $1`, `SELECT requeue($1, 'Record')`,
	} {
		if _, err := c.Exec(context.Background(), later, id); err == nil || !strings.Contains(err.Error(), "has only come to Store") {
			t.Errorf("%s: %v, want it refused by the stages that there are", later, err)
		}
	}
	must.Get(c.Exec(context.Background(), `UPDATE work_items SET status = 'Pending' WHERE id = $1`, id))(t)
	if n := value[int](a, `SELECT count(*) FROM public.work_item_audit`); n != 1 {
		t.Errorf("%d changes are on record, want 1", n)
	}
	if n := value[int](a, `SELECT count(*) FROM public.institution_virtual_times`); n != 2 {
		t.Errorf("its institution has taken %d turns, want one for each time that the item came", n)
	}
}

// worker puts a worker process on record whose heartbeat was a moment ago.
func (a *archive) worker(name, pools string) {
	a.t.Helper()
	a.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, heartbeat, pools)
		VALUES ($1, 'node-of-' || $1, 12, 'h', 1, '10 seconds', $2)`, name, pools)
}
