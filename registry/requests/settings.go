package requests

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Settings are what requests go by: how long files are kept, how long an approved deletion
// waits, and what retrievals cost.
type Settings struct {
	Wait    float64          `json:"deletion_wait_hours"` // before anything is removed, unless an institution has its own
	Cap     string           `json:"retrieval_cap_usd"`   // exact, such as 100.00: above it a person has to approve
	Options []StorageOption  `json:"storage_options"`
	Prices  []RetrievalPrice `json:"retrieval_prices"`
}

// StorageOption is a storage option, and how long its files must be kept.
type StorageOption struct {
	Name          string `json:"name"`
	RetentionDays int    `json:"retention_days"`
}

// RetrievalPrice is what it costs to make archived copies readable, in US dollars, and how
// long that takes.
type RetrievalPrice struct {
	Class       string  `json:"storage_class"`
	Tier        string  `json:"tier"`
	PerGiB      string  `json:"per_gib_usd" db:"per_gib"`
	PerThousand string  `json:"per_1000_requests_usd"`
	Takes       float64 `json:"takes_seconds"` // at most, as the provider says
	Poll        float64 `json:"poll_seconds"`  // between two polls of the provider
}

// Version changes with the settings.
func (s Settings) Version() string {
	text, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Settings returns the settings of requests. All three tables have a few rows.
func (r Records) Settings(ctx context.Context) (s Settings, err error) {
	if err := r.db.QueryRow(ctx, `SELECT retrieval_cap::text, extract(epoch FROM deletion_wait)::float8 / 3600 FROM request_settings`).Scan(&s.Cap, &s.Wait); err != nil {
		return s, fmt.Errorf("read the settings of requests: %w", err)
	}
	s.Options, err = registry.Collect[StorageOption](ctx, r.db, "list storage options", `SELECT name, retention_days FROM storage_options ORDER BY name`, pgx.NamedArgs{})
	if err != nil {
		return s, err
	}
	s.Prices, err = registry.Collect[RetrievalPrice](ctx, r.db, "list prices", `
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
	if _, err := r.db.Exec(ctx, `UPDATE request_settings SET deletion_wait = '0' WHERE deletion_wait = '24 hours'`); err != nil {
		return fmt.Errorf("set the wait of deletions: %w", registry.Refusal(err))
	}
	return nil
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
