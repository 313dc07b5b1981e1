package registry

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

const serviceColumns = `s.service, s.state, s.since, s.code, s.said, s.detail, s.workers_failing AS failing, s.workers,
	coalesce(s.failing_workers, '{}') AS failing_workers, s.next_probe_at, s.held_by, s.held_reason, s.of_process,
	CASE WHEN s.state = 'ok' THEN 0 ELSE (SELECT count(*) FROM (
		SELECT FROM work_items w WHERE w.status = 'Pending' AND w.retry AND needs_service(w, s.scopes) LIMIT 10001) q) END AS waiting,
	CASE WHEN s.state = 'ok' THEN '' ELSE service_text(s) END AS text`

// Services lists the services that workers use, those that are not ok first.
func (r *Registry) Services(ctx context.Context) ([]record.Service, error) {
	return Collect[record.Service](ctx, r.db, "list the services", `SELECT `+serviceColumns+` FROM services s ORDER BY s.state = 'ok', s.service`)
}

// HoldService stops claims of items that need a service, until it is released. What
// runs goes on. The reason may be "".
func (r *Registry) HoldService(ctx context.Context, service, reason string) ([]record.Service, error) {
	return Collect[record.Service](ctx, r.db, "hold a service", `SELECT `+serviceColumns+` FROM hold_service(@service, nullif(@reason, '')) s`, pgx.NamedArgs{"service": service, "reason": reason})
}

// ReleaseService ends a hold. Workers that see the service fail try one item at
// once.
func (r *Registry) ReleaseService(ctx context.Context, service string) ([]record.Service, error) {
	return Collect[record.Service](ctx, r.db, "release a service", `SELECT `+serviceColumns+` FROM release_service(@service) s`, pgx.NamedArgs{"service": service})
}
