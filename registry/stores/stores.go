// Package stores keeps what is known of the S3 stores that a Farol uses. What comes in is what a
// process has seen of a store, as JSON of package storage's; what goes out is what all have seen.
package stores

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Records are the stores of a registry.
type Records struct{ db registry.Database }

// In returns the stores of a registry.
func In(r *registry.Registry) Records { return Records{r.DB()} }

// Store is a service with buckets, at one endpoint, and what was seen of it.
type Store struct {
	Endpoint   string            `json:"endpoint"`
	Server     string            `json:"server" doc:"As its answers name it; empty: they do not"`
	MeasuredAt *time.Time        `json:"measured_at" doc:"When all was tried by farol check --write; null: it was not"`
	SeenAt     time.Time         `json:"seen_at" doc:"When something of it was last seen to be otherwise"`
	Ways       map[string]Seen   `json:"ways" doc:"What it can do, by name; what was not seen yet is left out"`
	Buckets    map[string]Bucket `json:"buckets" doc:"By name"`
}

// Seen is what was seen of one thing that a store can do or not.
type Seen struct {
	Can  bool      `json:"can"`
	At   time.Time `json:"at" doc:"When that was seen"`
	Said string    `json:"said,omitempty" doc:"The refusal, in a few words"`
}

// Bucket is what a store says of a bucket.
type Bucket struct {
	Versions bool      `json:"versions" doc:"It keeps versions"`
	Lock     string    `json:"lock,omitempty" doc:"Its Object Lock; empty: it has none"`
	At       time.Time `json:"at" doc:"When that was seen"`
}

// Save adds what a process has seen of a store: an object with endpoint, server, measured_at,
// ways and buckets. Of each way and bucket the newest counts.
func (r Records) Save(ctx context.Context, seen json.RawMessage) error {
	// Index: stores_pkey
	const sql = `
INSERT INTO stores AS s (endpoint, server, measured_at, ways, buckets)
SELECT a->>'endpoint', a->>'server', nullif((a->>'measured_at')::timestamptz, '0001-01-01Z'), a->'ways', a->'buckets' FROM (SELECT $1::jsonb) v (a)
ON CONFLICT (endpoint) DO UPDATE SET
	server = coalesce(nullif(excluded.server, ''), s.server), measured_at = greatest(s.measured_at, excluded.measured_at), seen_at = now(),
	ways = newest_of(s.ways, excluded.ways), buckets = newest_of(s.buckets, excluded.buckets)`
	return registry.Do(ctx, r.db, "keep what is known of a store", sql, []byte(seen))
}

// List returns all stores, by endpoint.
func (r Records) List(ctx context.Context) ([]Store, error) {
	rows, err := r.db.Query(ctx, `SELECT endpoint, server, measured_at, seen_at, ways, buckets FROM stores ORDER BY endpoint LIMIT 1000`)
	if err != nil {
		return nil, fmt.Errorf("list stores: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Store])
	if err != nil {
		return nil, fmt.Errorf("list stores: %w", err)
	}
	return list, nil
}
