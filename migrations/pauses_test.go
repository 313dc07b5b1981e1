package migrations_test

import (
	"context"
	"testing"
)

// What was paused when pauses had no records is a record afterwards: all stages that were
// paused together by one ID, an older pause by its own, and a hold of a service.
func TestFlagsOfBeforeBecomePauses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, want string }{
		"one stage": {
			`UPDATE stage_settings SET paused = true, paused_by = 'farol (ann)', paused_at = '2026-01-01', pause_reason = 'legal hold' WHERE stage = 'Store'`,
			"1 Store legal hold",
		},
		"all stages": {
			`UPDATE stage_settings SET paused = true, paused_by = 'farol (bob)', paused_at = CASE stage WHEN 'Store' THEN '2026-01-01' ELSE '2026-02-01' END::timestamptz, pause_reason = 'upgrade';
			UPDATE fixity_feed SET paused = true, paused_by = 'farol (bob)', paused_at = '2026-02-01', pause_reason = 'upgrade'`,
			"14 of all upgrade, 1 Store upgrade",
		},
		"NSQ and a service": {
			`UPDATE stage_settings SET paused = true, paused_by = 'farol', paused_at = '2026-01-01', pause_reason = 'paused in NSQ', paused_in_nsq = true WHERE stage = 'Store';
			INSERT INTO known_services (service, held_at, held_by, held_reason) VALUES ('redis', '2026-01-01', 'farol (ann)', 'new disks'), ('s3:a', NULL, NULL, NULL)`,
			"1 Store paused in NSQ (NSQ), 1 redis new disks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := at(t, 149)
			c := connect(t, owner)
			defer c.Close(context.Background()) //nolint:errcheck // the database goes with the test
			exec(t, c, tc.before)
			up(t, owner)
			got := value[string](t, c, `SELECT string_agg(concat_ws(' ', n, what, reason, nsq), ', ' ORDER BY n DESC, what) FROM (
				SELECT count(*) AS n, CASE WHEN of_all THEN 'of all' ELSE min(stage) END AS what, reason, CASE WHEN in_nsq THEN '(NSQ)' END AS nsq
				FROM pauses WHERE lifted_at IS NULL GROUP BY id, of_all, reason, in_nsq) p`)
			if got != tc.want {
				t.Errorf("pauses: %s, want %s", got, tc.want)
			}
			exec(t, c, `UPDATE stage_settings SET cap = cap`) // which writes what follows from the pauses
			if n := value[int](t, c, `SELECT count(*) FROM stage_pauses WHERE paused <> (pauses <> '[]')`); n != 0 {
				t.Errorf("%d stages are not as their pauses say", n)
			}
		})
	}
}
