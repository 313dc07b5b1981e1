package migrations_test

import (
	"strings"
	"testing"
)

// Nobody goes back to a version that could not read the stages there are, and what
// is there afterwards is what was there before.
func TestAddedStagesHoldBackTheWayBack(t *testing.T) {
	p, c := migrated(t)
	const order = `SELECT string_agg(concat_ws(' ', action, stage, ordinal), ', ' ORDER BY action, ordinal) FROM stage_settings`
	before := value[string](t, c, order)
	exec(t, c, `SELECT add_stage('Virus Scan', 'Validate')`)
	if _, err := p.DownTo(t.Context(), 21); err == nil || !strings.Contains(err.Error(), "stages were added: Virus Scan") {
		t.Fatalf("DownTo = %v, want a refusal", err)
	}
	exec(t, c, `SELECT remove_stage('Virus Scan')`)
	if _, err := p.DownTo(t.Context(), 21); err != nil {
		t.Fatal(err)
	}
	if after := value[string](t, c, order); after != before {
		t.Errorf("the stages are\n%s\nand were\n%s", after, before)
	}
	if _, err := c.Exec(t.Context(), `SELECT 'Virus Scan'::work_stage`); err == nil || !strings.Contains(err.Error(), "there is no stage 'Virus Scan'; the stages are: Receive") {
		t.Errorf("a removed stage: %v", err)
	}
	if !value[bool](t, c, `SELECT has_table_privilege('farol_admin', 'queue_depth', 'SELECT')`) {
		t.Error("an administrator cannot see the queue's depth")
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, c, `SELECT has_function_privilege('farol_admin', 'remove_stage(text)', 'EXECUTE')`) {
		t.Error("an administrator cannot remove stages")
	}
}
