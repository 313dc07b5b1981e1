package registry_test

import (
	"slices"
	"strings"
	"testing"
)

// everybodys are the functions that everybody may execute: they run with the rights
// of their caller and so give nobody any, but for is_stage_name, which a domain
// calls, and which says whether a name is that of a stage.
func everybodys() []string {
	return strings.Fields(`
		acting_person acting_program acting_user bound_by_hand condition_alone deletion_item_waits deletion_waits event_identifier event_type_uri event_words format_outcome identification_failed is_late_stage is_pipeline_topic
		is_stage_name items_where log_partition_width log_sequence meant_name most_by_hand most_memory needs_service newest_of no_such no_such_priority
		object_identifier_of outcome_of pause_state pause_text pauses_of plan_apply_item plan_batch plan_count plan_hash plan_lock plan_make plan_refusal plan_undo_item refused requeue_report
		requeue_verdict rival_of scaling_items scaling_signal signed_in_actor service_named service_text signature_number stage_named stage_place takers unchanged uses_service virtual_cost
		why_no_memory why_no_worker why_not why_pending`)
}

// A function is for those who were given it. A new one belongs into the list above, or
// is revoked from PUBLIC; one that runs with the rights of the owner is revoked.
func TestEverybodyMayExecuteNothingOfTheOwners(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var list []string
	for _, f := range strings.Fields(value[string](a, `
		SELECT string_agg(p.proname || ':' || p.prosecdef || ':' || (p.prorettype = 'trigger'::regtype), ' ' ORDER BY p.proname)
		FROM pg_proc p
		WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f'
		  AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x WHERE x.grantee = 0 AND x.privilege_type = 'EXECUTE')`)) {
		part := strings.Split(f, ":")
		if part[1] == "true" && part[0] != "is_stage_name" {
			t.Errorf("everybody may execute %s, which runs with the rights of the owner", part[0])
		}
		if part[2] == "true" {
			t.Errorf("everybody may put the trigger function %s on a table of theirs", part[0])
		}
		list = append(list, part[0])
	}
	slices.Sort(list)
	for _, name := range slices.Compact(list) {
		if !slices.Contains(everybodys(), name) {
			t.Errorf("everybody may execute %s: revoke it from PUBLIC, or say in this test why not", name)
		}
	}
	for _, name := range everybodys() {
		if !slices.Contains(list, name) {
			t.Errorf("%s is in the list, and not everybody may execute it", name)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND p.prosecdef
		AND NOT EXISTS (SELECT FROM unnest(p.proconfig) c WHERE c LIKE 'search_path=%pg_temp%')`); n != 0 {
		t.Errorf("%d functions with the rights of the owner look for names in pg_temp first", n)
	}
}
