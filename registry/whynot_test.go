package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Each reason that keeps an item from being claimed is a row, with what to do about it; an item that can be claimed has none.
func TestWhyNot(t *testing.T) {
	t.Parallel()
	const takesAll = `[{"name": "all", "stages": ["Receive", "Store", "Record"], "min_size": 0, "max_size": 0, "slots": 8}]`
	const hasW1 = `status = 'Started', lease_expires_at = now() + interval '1 minute', node = 'n', pid = 1, worker = 'w1', attempt = 1`
	pool := func(change string) string {
		return `[{"name": "p", "stages": ["Store"], "min_size": 0, "max_size": 0, "slots": 8` + change + `}]`
	}
	for name, tc := range map[string]struct {
		state   string
		pools   string // of the only worker; "" for one that takes all
		prepare string // $ is the item
		other   string // how another item at Store stands
		want    []string
	}{
		"nothing":  {state: "Pending"},
		"parked":   {state: "Suspended", want: []string{"parked|Suspended at Store: Storage denies access.|Fix the cause, then SELECT requeue($)"}},
		"failed":   {state: "Failed", want: []string{"parked|Failed at Store: Storage denies access.|"}},
		"over":     {state: "Success", want: []string{"ended|Success at Cleanup|None."}},
		"given up": {state: "Cancelled", want: []string{"ended|Cancelled at Store: No longer wanted.|None."}},
		"archived": {
			state:   "Success",
			prepare: `INSERT INTO work_items_archive SELECT * FROM work_items; DELETE FROM work_items`, want: []string{"ended|Success|"},
		},
		"running": {state: "Started", want: []string{"running|The worker w on n, process 1, has it until |SELECT release($);"}},
		"running, and lapsed": {
			state: "Started", prepare: `UPDATE work_items SET lease_expires_at = now() - interval '10 seconds'`,
			want: []string{"worker gone|although its lease expired at |Any worker, scheduler, server or mirror that runs gives it back"},
		},
		"running, and lapsed so long ago that nobody reaps": {
			state: "Started", prepare: `UPDATE work_items SET lease_expires_at = now() - interval '2 minutes'`,
			want: []string{"worker gone|although its lease expired at |no process that would give it back is running"},
		},
		"paused": {
			state: "Pending", prepare: `SELECT pause_stage('Store', 'The bucket moves.')`,
			want: []string{"paused|Store of Ingest is paused, by USER since 2|SELECT resume_stage('Store');", "paused|: The bucket moves.|"},
		},
		"put off": {state: "delayed", want: []string{"delayed|It is due in 00:5|SELECT requeue($);", "delayed|The last attempt ended as transient: Storage is slow.|"}},
		"postponed by its stage": {
			state: "delayed", prepare: `UPDATE work_items SET claim_token = 6;
				INSERT INTO work_item_attempts VALUES ($, 6, 'Store', 1, 'n', 1, 'w', now(), now(), now(), 'snoozed', '', 'The object is thawing.')`,
			want: []string{"delayed|The stage postponed it: The object is thawing.|"},
		},
		"waits": {state: "waiting", want: []string{"waiting|It waits until item 1 of the same object has ended, which is Started at Store.|SELECT * FROM why_not(1);"}},
		"cap": {
			state: "Pending", prepare: `UPDATE stage_settings SET cap = 1 WHERE stage = 'Store'`, other: hasW1,
			want: []string{"cap|1 item is at Store; the cap is 1.|UPDATE stage_settings SET cap = 2 WHERE action = 'Ingest' AND stage = 'Store';"},
		},
		"no worker":                 {state: "Pending", prepare: `DELETE FROM worker_processes`, want: []string{"no worker|There is no live worker.|Start a worker that claims 'Store'"}},
		"one that was not heard of": {state: "Pending", prepare: `UPDATE worker_processes SET heartbeat_at = now() - interval '31 seconds'`, want: []string{"no worker|There is no live worker.|"}},
		"one that has ended":        {state: "Pending", prepare: `UPDATE worker_processes SET ended_at = now(), ending = 'stopped'`, want: []string{"no worker|There is no live worker.|"}},
		"another stage":             {state: "Pending", pools: `[{"name": "p", "stages": ["Receive"], "slots": 1}]`, want: []string{"no worker|No live worker takes Store of Ingest.|"}},
		"another action":            {state: "Pending", pools: pool(`, "actions": ["Delete"]`), want: []string{"no worker|No live worker takes Store of Ingest.|"}},
		"its action":                {state: "Pending", pools: pool(`, "actions": ["Ingest"]`)},
		"larger ones":               {state: "Pending", pools: strings.Replace(pool(""), `"min_size": 0`, `"min_size": 11`, 1), want: []string{"no worker|takes an item of 10 bytes.|"}},
		"just its size":             {state: "Pending", pools: strings.Replace(pool(""), `"min_size": 0`, `"min_size": 10`, 1)},
		"smaller ones":              {state: "Pending", pools: strings.Replace(pool(""), `"max_size": 0`, `"max_size": 10`, 1), want: []string{"no worker|takes an item of 10 bytes.|"}},
		"its size and no more":      {state: "Pending", pools: strings.Replace(pool(""), `"max_size": 0`, `"max_size": 11`, 1)},
		"another option": {
			state: "Pending", pools: pool(`, "storage_options": ["Standard"]`), prepare: `UPDATE work_items SET storage_option = 'Glacier-VA'`,
			want: []string{"no worker|takes the storage option Glacier-VA.|"},
		},
		"an option not known yet":   {state: "Pending", pools: pool(`, "storage_options": ["Standard"]`)},
		"another institution":       {state: "Pending", pools: pool(`, "institutions": ["other.edu"]`), want: []string{"no worker|takes items of its institution.|"}},
		"its institution":           {state: "Pending", pools: pool(`, "institutions": ["other.edu", "test.edu"]`)},
		"one that is asked to stop": {state: "Pending", prepare: `SELECT drain_worker('w1')`, want: []string{"no worker|were asked to stop: w1.|"}},
		"one that has its hands full": {
			state: "Pending", pools: strings.Replace(pool(""), `"slots": 8`, `"slots": 1`, 1), other: hasW1,
			want: []string{"busy|have no free slot: w1.|"},
		},
		"one before it": {
			state: "Pending", other: `priority = -1`,
			want: []string{"behind others|1 item goes before it.|SELECT set_priority($, -10);"},
		},
		"one after it": {
			state: "Pending", other: `priority = 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.standing(tc.state)
			if tc.pools == "" {
				tc.pools = takesAll
			}
			a.worker("w1", tc.pools)
			if tc.other != "" {
				a.upload(etag1, time.Now(), "other.tar")
				a.exec(`UPDATE work_items SET claim_token = 9, stage = 'Store', ` + tc.other + ` WHERE name = 'other.tar'`)
			}
			if tc.prepare != "" {
				a.exec(strings.ReplaceAll(tc.prepare, "$", fmt.Sprint(id)))
			}
			obstacles := must.Get(a.WhyNot(context.Background(), id))(t)
			user := value[string](a, `SELECT session_user::text`)
			for _, want := range tc.want {
				parts := strings.SplitN(strings.ReplaceAll(strings.ReplaceAll(want, "$", fmt.Sprint(id)), "USER", user), "|", 3)
				if len(obstacles) != 1 || obstacles[0].Reason != parts[0] || !strings.Contains(obstacles[0].Detail, parts[1]) || !strings.Contains(obstacles[0].Remedy, parts[2]) {
					t.Errorf("why not: %+v, want %q", obstacles, parts)
				}
			}
			if len(tc.want) == 0 && len(obstacles) > 0 {
				t.Errorf("why not: %+v, want nothing", obstacles)
			}
		})
	}
}
