package claim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/claim"
)

// Who gives up on an item says so in one ERROR line, unless its caller does, who is told what was
// written. Its number, and that in the note, is that of the failures in the ledger: an attempt
// that was released, snoozed, not counted, or lost to a clock or to the network is none.
func TestGivingUpAgreesWithTheLedger(t *testing.T) {
	t.Parallel()
	fail := func(q *queue, _ *claim.Engine, h *claim.Hold) {
		q.settle(h, claim.Done{}, errors.New("the tape is torn"))
	}
	die := func(q *queue, e *claim.Engine, h *claim.Hold) {
		h.Abandon()
		q.lapse()
		q.reap(e)
	}
	free := map[string]func(q *queue, e *claim.Engine, h *claim.Hold){
		"nothing": nil,
		"released": func(q *queue, _ *claim.Engine, h *claim.Hold) {
			q.settle(h, claim.Done{}, claim.Release("the node goes"))
		},
		"snoozed": func(q *queue, _ *claim.Engine, h *claim.Hold) { q.settle(h, claim.Done{}, claim.Snooze(1, "later")) },
		"lost to a clock": func(q *queue, e *claim.Engine, h *claim.Hold) {
			die(q, e, h)
			q.exec(`UPDATE work_item_attempts SET error_code = 'clock-set' WHERE claim_token = $1`, h.Item.Token)
		},
		"cut off from the database": func(q *queue, e *claim.Engine, h *claim.Hold) {
			die(q, e, h)
			q.exec(`UPDATE work_item_attempts SET error_code = 'unreachable' WHERE claim_token = $1`, h.Item.Token)
		},
	}
	for name, between := range free {
		for last, end := range map[string]func(*queue, *claim.Engine, *claim.Hold){"fails": fail, "dies": die, "is ended by its number": func(q *queue, e *claim.Engine, h *claim.Hold) {
			if err := e.Settle(q.t.Context(), []claim.Ending{{Item: h.Item, Result: errors.New("the tape is torn")}})[0]; err != nil {
				q.t.Error(err)
			}
			h.Abandon()
		}} {
			t.Run(name+", then "+last, func(t *testing.T) {
				t.Parallel()
				q := newQueue(t)
				id := q.put("Store", 1)
				var log bytes.Buffer
				e := q.engine(func(o *claim.Options) { o.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
				due := func() *claim.Hold {
					q.exec(`UPDATE work_items SET run_at = now() WHERE run_at > now()`)
					return q.claimOne(e, "Store")
				}
				fail(q, e, due())
				if between != nil {
					between(q, e, due())
				}
				die(q, e, due())
				if r := q.row(id); r.Status != "Pending" {
					t.Fatalf("after two failures it is %+v", r)
				}
				h := due()
				end(q, e, h)
				if r := q.row(id); r.Status != "Suspended" || r.Attempt != 3 || !strings.Contains(r.Note, "failed 3 times") {
					t.Errorf("after three failures it is %+v", r)
				}
				var said []map[string]any
				for line := range strings.Lines(log.String()) {
					var entry map[string]any
					if json.Unmarshal([]byte(line), &entry) == nil && entry["level"] == "ERROR" {
						said = append(said, entry)
					}
				}
				if last == "fails" {
					if e := h.Ended(); len(said) != 0 || !e.GaveUp() || e.Attempt != 3 || e.Code != "transient" {
						t.Errorf("the caller is told %+v, and the log says %v", e, said)
					}
					return
				}
				if len(said) != 1 || said[0]["item"] != float64(id) || said[0]["stage"] != "Store" || said[0]["attempts"] != 3. ||
					said[0]["code"] == "" {
					t.Errorf("the log says %v", said)
				}
			})
		}
	}
}
