package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Settings returns the settings of requests. All three tables have a few rows.
func (r Records) Settings(ctx context.Context) (s record.Settings, err error) {
	if err := r.db.QueryRow(ctx, `SELECT retrieval_cap::text, extract(epoch FROM deletion_wait)::float8 / 3600 FROM request_settings`).Scan(&s.Cap, &s.Wait); err != nil {
		return s, fmt.Errorf("read the settings of requests: %w", err)
	}
	s.Options, err = registry.Collect[record.StorageOption](ctx, r.db, "list storage options", `SELECT name, retention_days FROM storage_options ORDER BY name`, pgx.NamedArgs{})
	if err != nil {
		return s, err
	}
	s.Prices, err = registry.Collect[record.RetrievalPrice](ctx, r.db, "list prices", `
		SELECT storage_class AS class, tier, per_gib::text AS per_gib, per_1000_requests::text AS per_thousand,
			extract(epoch FROM takes)::float8 AS takes, extract(epoch FROM poll)::float8 AS poll
		FROM retrieval_prices ORDER BY storage_class, takes, tier`, pgx.NamedArgs{})
	return s, err
}

// LockSettings returns the settings, and keeps others from changing them until the
// transaction ends. version is the one that a change was decided on; "" is any, and another
// one is ErrChanged.
func (r Records) LockSettings(ctx context.Context, version string) error {
	if _, err := r.db.Exec(ctx, `SELECT FROM request_settings FOR UPDATE`); err != nil {
		return fmt.Errorf("lock the settings of requests: %w", registry.Refusal(err))
	}
	s, err := r.Settings(ctx)
	if err == nil && version != "" && version != s.Version() {
		err = fmt.Errorf("change the settings of requests: %w", registry.ErrChanged)
	}
	return err
}

// SetRetention sets how long files of a storage option must be kept. An option that there is
// not is ErrNotFound.
func (r Records) SetRetention(ctx context.Context, option string, days int) error {
	return r.set(ctx, "set the retention of a storage option", `UPDATE storage_options SET retention_days = $2 WHERE name = $1`, option, days)
}

// SetRequests sets the price above which a person has to approve a retrieval, and the hours that
// an approved deletion waits; nil leaves it. Requests that are approved keep their time.
func (r Records) SetRequests(ctx context.Context, dollars *string, hours *float64) error {
	return r.set(ctx, "set how requests are approved", `UPDATE request_settings SET retrieval_cap = coalesce($1::text::numeric, retrieval_cap),
		deletion_wait = coalesce($2::float8 * interval '1 hour', deletion_wait)`, dollars, hours)
}

// DeleteAtOnce has approved deletions wait for nothing, unless a person has set a time: for
// installations in which nothing is worth keeping.
func (r Records) DeleteAtOnce(ctx context.Context) error {
	return registry.Do(ctx, r.db, "set the wait of deletions", `UPDATE request_settings SET deletion_wait = '0' WHERE deletion_wait = '24 hours'`)
}

// PriceChanges are what is set of a price; nil leaves it.
type PriceChanges struct {
	PerGiB      *string
	PerThousand *string
	Takes       *time.Duration
	Poll        *time.Duration
}

// SetPrice changes the price of a storage class and tier. One that there is not is
// ErrNotFound: a storage class is added with its targets, by a person who has the provider's
// list.
func (r Records) SetPrice(ctx context.Context, class, tier string, c PriceChanges) error {
	return r.set(ctx, "set a price", `
		UPDATE retrieval_prices SET per_gib = coalesce($3::text::numeric, per_gib), per_1000_requests = coalesce($4::text::numeric, per_1000_requests),
			takes = coalesce($5::interval, takes), poll = coalesce($6::interval, poll)
		WHERE storage_class = $1 AND tier = $2`, class, tier, c.PerGiB, c.PerThousand, c.Takes, c.Poll)
}

func (r Records) set(ctx context.Context, what, sql string, args ...any) error {
	tag, err := r.db.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = registry.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, registry.Refusal(err))
	}
	return nil
}
