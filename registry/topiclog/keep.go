package topiclog

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// Retention is how long messages are kept that everybody has passed.
type Retention struct {
	Pipeline time.Duration // those of the pipeline's topics
	Posted   time.Duration // those that people posted to queues; 0: permanently

	Receivers time.Duration // receivers that have not called, and have no answers on record; 0: kept
}

// The parts of the topic log, each with partitions of its own.
const (
	pipelineMessages = "pipeline_messages"
	postedMessages   = "posted_messages"
)

// Keep makes the partitions of the topic log that are needed next, and drops
// those that are old enough and that no reader needs. It returns the names of what
// it dropped. It holds up nobody: what is locked is left to the next call.
func Keep(ctx context.Context, r *registry.Registry, keep Retention) (dropped []string, err error) {
	for part, span := range map[string]time.Duration{pipelineMessages: keep.Pipeline, postedMessages: keep.Posted} {
		width := span / 7 // so that what is dropped at once is not much older than it has to be
		if span == 0 {
			width = 30 * 24 * time.Hour // none is dropped, and a person may yet want to
		}
		if _, err := r.DB().Exec(ctx, `SELECT rotate_log_partitions($1, $2)`, part, width); err != nil {
			return dropped, fmt.Errorf("make partitions of %s: %w", part, err)
		}
		for span > 0 {
			var name *string
			if err := r.DB().QueryRow(ctx, `SELECT trim_log($1, $2)`, part, span).Scan(&name); err != nil {
				return dropped, fmt.Errorf("drop partitions of %s: %w", part, err)
			}
			if name == nil {
				break
			}
			dropped = append(dropped, *name)
		}
	}
	return dropped, trimReceivers(ctx, r.DB(), keep.Receivers)
}

// trimReceivers deletes receivers that have not called for so long.
func trimReceivers(ctx context.Context, db registry.Database, keep time.Duration) error {
	for n := int64(1); n > 0 && keep > 0; {
		if err := db.QueryRow(ctx, `SELECT trim_receivers($1)`, keep).Scan(&n); err != nil {
			return fmt.Errorf("delete idle receivers: %w", err)
		}
	}
	return nil
}
