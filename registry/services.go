package registry

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Service is a service that work needs, as the view services has it.
type Service struct {
	Service        string     `json:"service"`
	State          string     `json:"state"` // ok; failing for some workers; held for all
	Since          *time.Time `json:"since"` // nil if it is ok
	Code           string     `json:"code"`
	Said           string     `json:"said"`   // by the service, in a few words
	Detail         string     `json:"detail"` // the error that was seen
	Failing        int64      `json:"workers_failing"`
	Workers        int64      `json:"workers"` // that use it
	FailingWorkers []string   `json:"failing_workers"`
	NextProbeAt    *time.Time `json:"next_probe_at"`
	HeldBy         *string    `json:"held_by"` // a person; nil if nobody holds it
	HeldReason     *string    `json:"held_reason"`
	OfProcess      bool       `json:"of_process"` // each process has its own; it is never held for all
	Waiting        int64      `json:"waiting"`    // items that wait for it; of more than 10000 so many are counted
	Text           string     `json:"text"`       // in a sentence; "" if it is ok
}

const serviceColumns = `s.service, s.state, s.since, s.code, s.said, s.detail, s.workers_failing AS failing, s.workers,
	coalesce(s.failing_workers, '{}') AS failing_workers, s.next_probe_at, s.held_by, s.held_reason, s.of_process,
	CASE WHEN s.state = 'ok' THEN 0 ELSE (SELECT count(*) FROM (
		SELECT FROM work_items w WHERE w.status = 'Pending' AND w.retry AND needs_service(w, s.scopes) LIMIT 10001) q) END AS waiting,
	CASE WHEN s.state = 'ok' THEN '' ELSE service_text(s) END AS text`

// Services lists the services that workers use, those that are not ok first.
func (r *Registry) Services(ctx context.Context) ([]Service, error) {
	return Collect[Service](ctx, r.db, "list the services", `SELECT `+serviceColumns+` FROM services s ORDER BY s.state = 'ok', s.service`, nil)
}

// HoldService stops claims of items that need a service, until it is released. What
// runs goes on. The reason may be "".
func (r *Registry) HoldService(ctx context.Context, service, reason string) ([]Service, error) {
	return Collect[Service](ctx, r.db, "hold a service", `SELECT `+serviceColumns+` FROM hold_service(@service, nullif(@reason, '')) s`, pgx.NamedArgs{"service": service, "reason": reason})
}

// ReleaseService ends a hold. Workers that see the service fail try one item at
// once.
func (r *Registry) ReleaseService(ctx context.Context, service string) ([]Service, error) {
	return Collect[Service](ctx, r.db, "release a service", `SELECT `+serviceColumns+` FROM release_service(@service) s`, pgx.NamedArgs{"service": service})
}
