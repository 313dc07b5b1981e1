package claim_test

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/claim"
)

// Heartbeats wait for no report of a service, however long others lock what that writes:
// leases of live work would lapse meanwhile.
func TestHeartbeatWaitsForNoReport(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	tx, err := q.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `LOCK TABLE services, service_reports`); err != nil {
		t.Fatal(err)
	}
	reported := make(chan error, 1)
	go func() {
		reported <- e.Report(t.Context(), claim.ServiceReport{Service: "staging", State: claim.ServiceFailing, Code: "unavailable"})
	}()
	eventually(t, "the report to wait for the lock", func() bool {
		return value[bool](q, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	if err := e.Beat(t.Context()); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	select {
	case err := <-reported:
		t.Errorf("the report did not wait for the lock: %v", err)
	default:
	}
	tx.Rollback(t.Context())
	if err := <-reported; err != nil {
		t.Errorf("report: %v", err)
	}
}
