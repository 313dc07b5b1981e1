package people

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Reading says which alerts a person has read. What the person does not see is not marked,
// and not counted.
type Reading struct {
	IDs    []int64   // these
	Before time.Time // or all that are older; zero: none
	Staff  bool      // of those without a person only what is for the archive's staff
}

// markSQL finds alerts by alerts_pkey, or by alerts_institution, alerts_user and alerts_staff.
const markSQL = `
INSERT INTO alert_reads (user_id, alert_id)
SELECT @user, a.id FROM alerts a
WHERE (a.id = ANY (@ids) OR a.created_at < @before)
	AND (a.user_id = @user OR a.user_id IS NULL AND (@all OR a.institution_id = @institution) AND (a.institution_id IS NULL OR NOT @staff))
	AND NOT EXISTS (SELECT FROM alert_reads r WHERE r.user_id = @user AND r.alert_id = a.id)
ON CONFLICT DO NOTHING`

// MarkAlerts notes that a person has read alerts within a scope, and returns how many were
// new to the person.
func (r Records) MarkAlerts(ctx context.Context, user int64, s registry.Scope, of Reading) (int64, error) {
	args := scoped(s)
	for k, v := range (pgx.NamedArgs{"user": user, "ids": append([]int64{}, of.IDs...), "before": nil, "staff": of.Staff}) {
		args[k] = v
	}
	if !of.Before.IsZero() {
		args["before"] = of.Before
	}
	tag, err := r.db.Exec(ctx, markSQL, args)
	if err != nil {
		return 0, fmt.Errorf("mark alerts as read: %w", registry.Refusal(err))
	}
	return tag.RowsAffected(), nil
}
