package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/restore"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/outbox"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/registry/reports"
	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage/inventory"
)

// The recurring jobs by their names.
const (
	ReadBucketsJob = "read-buckets"
	FixityFeedJob  = "fixity-feed"
	InventoryJob   = "inventories"
	GlacierPollJob = "glacier-poll"
	JanitorJob     = upkeep.JanitorJob
	RaiseAlertsJob = "raise-alerts"
	CountJob       = "count-holdings"
	SendMailJob    = "send-mail"
	SpotRestoreJob = "spot-restore"
	TopicLogJob    = "topic-log"
)

// Job reads the receiving buckets.
func (r *BucketReader) Job(every time.Duration) Job {
	return Job{ReadBucketsJob, every, func(ctx context.Context) (string, error) {
		created, err := r.ReadAll(ctx)
		return fmt.Sprintf("items made: %d", created), err
	}}
}

// Jobs are the recurring jobs that need no more than this.
type Jobs struct {
	Registry *registry.Registry
	Targets  copies.Targets
	Log      *slog.Logger

	Inventories map[string]inventory.Source // by target
}

// FixityFeed lets copies be checked from each run to the next: up to n, or, if that is 0, as many
// as the policies need. days is the time between two checks where a policy has none.
func (d Jobs) FixityFeed(every time.Duration, n, days int) Job {
	return Job{FixityFeedJob, every, func(ctx context.Context) (string, error) {
		records, n := fixity.In(d.Registry), n
		if n == 0 {
			var err error
			if n, err = records.Follow(ctx, every, days); err != nil {
				return "", err
			}
		}
		left, err := records.Feed(ctx, n, every)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d copies released for checks; %d were left of the last feed", n, left), nil
	}}
}

// GlacierPoll is [restore.Poll.Run].
func (d Jobs) GlacierPoll(every time.Duration) Job {
	return Job{GlacierPollJob, every, restore.Poll{Registry: d.Registry, Targets: d.Targets}.Run}
}

// KeepTopicLog makes space for messages in the topic log and for actions of people, and drops
// old messages and sessions that have ended.
func (d Jobs) KeepTopicLog(every time.Duration, keep topiclog.Retention) Job {
	return Job{TopicLogJob, every, func(ctx context.Context) (string, error) {
		dropped, err := topiclog.Keep(ctx, d.Registry, keep)
		if err == nil {
			err = people.In(d.Registry).Tidy(ctx)
		}
		if len(dropped) == 0 {
			return "nothing to drop", err
		}
		return "dropped: " + strings.Join(dropped, ", "), err
	}}
}

// RaiseAlerts alerts people to states that time brings about. fixityDays is the time
// between two fixity checks of a copy where its target's policy has none.
func (d Jobs) RaiseAlerts(every time.Duration, fixityDays int) Job {
	return Job{RaiseAlertsJob, every, func(ctx context.Context) (string, error) {
		made, err := outbox.In(d.Registry).RaiseAlerts(ctx, fixityDays)
		return fmt.Sprintf("alerts made: %d", made), err
	}}
}

// CountHoldings is [reports.Records.Count] of what has changed.
func (d Jobs) CountHoldings(every time.Duration) Job {
	return Job{CountJob, every, func(ctx context.Context) (string, error) {
		counted, err := reports.In(d.Registry).Count(ctx, false)
		if err != nil {
			return "", err
		}
		return counted.String(), nil
	}}
}
