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
	// code: how often this worker did, whether another did, and whether another live
	// worker takes the item and does not see the service fail.
	witnesses(ctx context.Context, item Item, code, service, worker string) (mine int, others, more bool, err error)
}

// doubts are resolved by what other workers report.
type doubts struct {
	*core

	store serviceStore
}

// believe is [Engine.Believe].
func (d *doubts) believe(ctx context.Context, item Item, result error) error {
	var doubt *ending
	if !errors.As(result, &doubt) || doubt.kind != endDoubt {
		return result
	}
	mine, others, more, err := d.store.witnesses(ctx, item, doubt.code, doubt.service, d.self.worker)
	switch {
	case err != nil:
		d.log.WarnContext(ctx, "cannot ask whether another worker saw the same failure; the item is held", "item", item.ID, "code", doubt.code, "err", err)
	case others || mine > 0 && !more:
		return doubt.err
	case !more:
		alone := *doubt
		alone.service = ""
		return &alone
	}
	return result
}

func (p *postgres) witnesses(ctx context.Context, item Item, code, service, worker string) (mine int, others, more bool, err error) {
	err = p.hot.QueryRow(ctx, witnessesSQL,
		item.ID, item.Entered, item.Token, code, worker, service).Scan(&mine, &others, &more)
	if err != nil {
		return 0, false, false, fmt.Errorf("ask who else has seen %s of item %d: %w", code, item.ID, err)
	}
	return mine, others, more, nil
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
	return nil
}
