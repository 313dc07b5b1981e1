package claim_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
)

// An object at which a bucket always fails, while it serves others, costs its item no attempt,
// and is shown to a person after as many attempts as the stage allows: whichever processes made
// them, since the ledger counts. An outage of the bucket parks nothing, however long it lasts.
func TestServiceThatFailsOneItemAloneParksIt(t *testing.T) {
	t.Parallel()
	const code, said = "storage-overloaded", "get Standard-OR/x: 503 SlowDown"
	const since = time.Hour // others were served, and not since the attempt before
	probed := []claim.Alone{{Probed: true}}
	for name, tc := range map[string]struct {
		alone  []claim.Alone // attempt by attempt
		aged   time.Duration // by which the attempts lie further back, after each
		ledger string
		status string
	}{
		"it serves others":             {[]claim.Alone{{Served: 1}, {Served: 1}, {Served: 1}}, 0, code + " serves-others " + code, "Suspended 1"},
		"it served others long ago":    {[]claim.Alone{{Served: 1}, {Served: since}, {Served: since}, {Served: since}}, 0, code + " " + code + " " + code + " " + code, "Pending 0"},
		"nobody knows":                 {[]claim.Alone{{}, {}, {}, {}}, 0, code + " " + code + " " + code + " " + code, "Pending 0"},
		"it answers probes":            {[]claim.Alone{{Probed: true}, {Probed: true}, {Probed: true}}, 0, "answers-probes answers-probes answers-probes", "Pending 0"},
		"it answers them for an hour":  {slices.Repeat(probed, 11), 6 * time.Minute, strings.Repeat("answers-probes ", 10) + code, "Suspended 1"},
		"not for quite an hour":        {slices.Repeat(probed, 10), 6 * time.Minute, strings.Repeat("answers-probes ", 9) + "answers-probes", "Pending 0"},
		"the clock is set by hours":    {slices.Repeat(probed, 3), 2 * time.Hour, "answers-probes answers-probes answers-probes", "Pending 0"},
		"it is set back by hours":      {slices.Repeat(probed, 3), -2 * time.Hour, "answers-probes answers-probes answers-probes", "Pending 0"},
		"it seems to serve others":     {[]claim.Alone{{}, {Served: since}}, 2 * time.Hour, code + " serves-others", "Pending 0"},
		"nobody knows it for an hour":  {[]claim.Alone{{}, {}}, 2 * time.Hour, code + " " + code, "Pending 0"},
		"an outage, and then no other": {[]claim.Alone{{}, {}, {}, {Served: 1}}, 0, code + " " + code + " " + code + " serves-others", "Pending 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			if name == "it seems to serve others" {
				q.exec(`UPDATE stage_settings SET max_attempts = 2 WHERE stage = 'Store'`)
			}
			id := q.put("Store", 1)
			f := &fault.Error{Service: "s3:Standard-OR", Kind: fault.Overloaded, Err: errors.New(said)}
			for _, alone := range tc.alone {
				e := q.engine() // another process each time
				h := q.claimOne(e, "Store")
				q.settle(h, claim.Done{}, e.Believe(context.Background(), h.Item, claim.HeldAlone(f, alone, 0, f, claim.Suspend(f.Code(), said))))
				if tc.aged != 0 {
					q.exec(`ALTER TABLE work_item_attempts DISABLE TRIGGER USER`) // which keeps what has ended
					q.exec(`UPDATE work_item_attempts SET claimed_at = claimed_at - $1::interval, heartbeat_at = heartbeat_at - $1::interval, ended_at = ended_at - $1::interval`, tc.aged)
				}
			}
			if got := value[string](q, `SELECT string_agg(error_code, ' ' ORDER BY claim_token) FROM work_item_attempts`); got != tc.ledger {
				t.Errorf("the ledger has %q, want %q", got, tc.ledger)
			}
			if got := value[string](q, `SELECT status || ' ' || attempt FROM work_items`); got != tc.status {
				t.Errorf("the item is %q, want %q", got, tc.status)
			}
			if r := q.row(id); !strings.Contains(r.Note, said) || r.Review != (r.Status == "Suspended") {
				t.Errorf("item = %+v, want it to name the object", r)
			}
		})
	}
}

// If another worker takes the item and sees nothing wrong, it has to fail there as well.
func TestServiceThatFailsOneWorkerAloneParksNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Store", 1)
	e, other := q.engine(), q.engine()
	q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat)
		VALUES ($1, 'n', 1, 'h', 1, '[{"name": "all", "slots": 1}]', '1 hour'), ($2, 'n', 2, 'h', 1, '[{"name": "all", "slots": 1}]', '1 hour')`, e.Worker(), other.Worker())
	f := &fault.Error{Service: "s3:Standard-OR", Kind: fault.Unavailable, Err: errors.New("get Standard-OR/x: 500")}
	fails := func(e *claim.Engine) string {
		q.exec(`UPDATE work_items SET run_at = now()`)
		h := q.claimOne(e, "Store")
		q.settle(h, claim.Done{}, e.Believe(context.Background(), h.Item, claim.HeldAlone(f, claim.Alone{Served: 1}, 0, f, claim.Suspend(f.Code(), "it fails alone"))))
		return value[string](q, `SELECT status FROM work_items`)
	}
	for range 5 {
		if got := fails(e); got != "Pending" {
			t.Fatalf("the item is %s by the word of one of two workers", got)
		}
	}
	got := fails(other)
	if got == "Pending" {
		got = fails(e)
	}
	if got != "Suspended" {
		t.Errorf("the item is %s though both have seen it", got)
	}
}
