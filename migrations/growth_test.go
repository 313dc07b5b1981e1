package migrations_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// named are the tables that do not grow: settings, rows for each name, and work in progress.
const named = `uploads_in_work objects_in_work work_item_lists fixity_checks retired_copies unrecorded_copies topic_retries alert_repeats
	institutions institution_virtual_times users recovery_codes api_tokens queues mail_settings schedules stage_settings stage_names size_bands storage_options
	fixity_policies fixity_feed retrieval_prices request_settings known_services nsq_topics topic_readers topic_partitions administration_rights auditor_rights
	schema_repeatables goose_db_version stores event_texts registry_origin found_copies`

// A table that is added is named in the manual, with what it grows by and what trims it, or
// above if it does not grow.
func TestTheManualSaysWhatEachTableGrowsBy(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	page := must.Get(os.ReadFile("../docs/operators.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## What the database grows by\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tables := strings.Fields(value[string](t, super, `SELECT string_agg(relname, ' ') FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`))
	if len(tables) < 50 {
		t.Errorf("only %d tables were found", len(tables))
	}
	for _, table := range tables {
		if !slices.Contains(strings.Fields(named), table) && !strings.Contains(section, "`"+table+"`") {
			t.Errorf("docs/operators.md does not say what %s grows by", table)
		}
	}
}
