package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// serviceStore is what workers report to each other of services.
type serviceStore interface {
	// reportService writes how this process sees a service.
	reportService(ctx context.Context, worker string, r ServiceReport) error
	// witnesses says who has ended an attempt of the item at its stage as held with a
	// code, and what else is known of such attempts.
	witnesses(ctx context.Context, item Item, code, service, worker string) (witnesses, error)
}

// witnesses are the attempts of an item at its stage that ended as held.
type witnesses struct {
	mine   int            // of this worker, with a code
	others int            // of other workers, likewise
	more   bool           // another live worker takes the item and does not see the service fail
	last   *time.Duration // how long ago the last was that the service failed; nil: there was none
	alone  *time.Duration // for how long it has failed alone; likewise
}

// Believe makes a [Doubt] the ending that it is about, if another process has come
// to the same, or this one before and there is no other to ask. Any other result,
// and a doubt that nobody can resolve now, is returned as it is.
func (e *Engine) Believe(ctx context.Context, item Item, result error) error {
	doubt, ok := errors.AsType[*ending](result)
	if !ok || doubt.kind != endDoubt {
		return result
	}
	code := doubt.code
	if doubt.alone != nil {
		code = codeServesOthers
	}
	seen, err := e.reports.witnesses(ctx, item, code, doubt.service, e.self.worker)
	switch {
	case err != nil:
		e.log.WarnContext(ctx, "cannot ask whether another worker saw the same failure; the item is held", "item", item.ID, "code", doubt.code, "err", err)
	case doubt.alone != nil:
		return doubt.failsAlone(item, seen)
	case seen.others > 0 || seen.mine > 0 && !seen.more:
		return doubt.err
	case !seen.more:
		alone := *doubt
		alone.service = ""
		return &alone
	}
	return result
}

// aloneMost is how long a service may fail an item alone, whatever else is known.
const aloneMost = time.Hour

// failsAlone says what a [HeldAlone] comes to. The first attempt that the service failed has
// nothing to be compared with, but is one of those that the stage allows. One comparison decides
// nothing: the database's clock may have been set between the two.
func (e *ending) failsAlone(item Item, seen witnesses) error {
	held := &ending{kind: endHeld, code: e.code, service: e.service, delay: e.delay, err: e.err}
	served := e.alone.Served > 0 && seen.last != nil && e.alone.Served < *seen.last
	switch {
	case served:
		held.code = codeServesOthers
	case e.alone.Probed:
		held.code = codeAnswersProbes
	default:
		return held
	}
	lasts := seen.alone != nil && *seen.alone >= aloneMost
	enough := served && seen.mine+seen.others >= max(item.MaxAttempts-2, 1) && (seen.others > 0 || !seen.more)
	if lasts || enough {
		return e.suspended
	}
	return held
}

func (p *postgres) witnesses(ctx context.Context, item Item, code, service, worker string) (w witnesses, err error) {
	err = p.hot.QueryRow(ctx, witnessesSQL,
		item.ID, item.Entered, item.Token, code, worker, service).Scan(&w.mine, &w.others, &w.more, &w.last, &w.alone)
	if err != nil {
		return witnesses{}, fmt.Errorf("ask who else has seen %s of item %d: %w", code, item.ID, err)
	}
	return w, nil
}

func (p *postgres) reportService(ctx context.Context, worker string, r ServiceReport) error {
	scopes, err := json.Marshal(append([]Scope{}, r.Scopes...))
	if err != nil {
		return fmt.Errorf("describe the work that needs %s: %w", r.Service, err)
	}
	var next *time.Duration
	if r.NextProbe > 0 {
		next = &r.NextProbe
	}
	_, err = p.upkeep.Exec(ctx, `SELECT report_service($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		worker, r.Service, string(r.State), r.Code, registry.StorableText(r.Said), registry.StorableText(r.Detail), next, r.OfProcess, scopes, r.Place)
	if err != nil {
		return fmt.Errorf("report the service %s: %w", r.Service, err)
	}
	if r.Refusal == nil {
		return nil
	}
	// However many items and workers meet it, people get one alert of it in a day.
	_, err = p.upkeep.Exec(ctx, `SELECT alert_staff('Service Held', $1, $2, $3, $4, '1 day')`,
		"Refuses a request: "+r.Service, registry.StorableText(r.Refusal.Error())+refusalText, r.Service, registry.StorableText(r.Refusal.Said))
	if err != nil {
		return fmt.Errorf("alert people to a refusal of %s: %w", r.Service, err)
	}
	return nil
}

// refusalText says what a refusal means for the items.
const refusalText = "\n\nIt does not take a request as Farol makes it, whatever the content is. Items that need it wait and cost no attempt." +
	" docs/runbook.md#service-held says what to do."
