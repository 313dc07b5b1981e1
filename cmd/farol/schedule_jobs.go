package main

import (
	"slices"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// job is something that can be scheduled.
type job struct {
	name, does, setting string
	needs               func(*settings.Scheduler) // names what it needs in addition to the database; nil: nothing
	make                func(*scheduling) upkeep.Job
}

// jobs are all there are, in the order in which --once runs them.
func jobs() []job {
	return []job{
		{
			name: upkeep.ReadBucketsJob, does: "create a work item for each new bag", setting: "FAROL_READ_INTERVAL", needs: func(c *settings.Scheduler) { c.S3 = &settings.S3{} },
			make: func(c *scheduling) upkeep.Job { return c.reader().Job(c.config.Read.Interval) },
		},
		{
			name: upkeep.FixityFeedJob, does: "schedule fixity checks of copies that are due", setting: "FAROL_FIXITY_FEED_INTERVAL",
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().FixityFeed(c.config.FixityEvery, c.config.FixityItems, c.config.Fixity.Days)
			},
		},
		{
			name: upkeep.InventoryJob, does: "compare the records with the S3 Inventory of each target", setting: "FAROL_INVENTORY_INTERVAL", needs: needsStorage,
			make: func(c *scheduling) upkeep.Job { return c.recurring().CompareInventories(c.config.InventoryEvery) },
		},
		{
			name: upkeep.GlacierPollJob, does: "poll archived objects that are being made readable", setting: "FAROL_GLACIER_POLL_INTERVAL", needs: needsStorage,
			make: func(c *scheduling) upkeep.Job { return c.recurring().GlacierPoll(c.config.GlacierEvery) },
		},
		{
			name: upkeep.SpotRestoreJob, does: "restore random objects as a test", setting: "FAROL_SPOT_INTERVAL", needs: needsStorage,
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().SpotRestore(c.config.SpotEvery, upkeep.Spot{Least: upkeep.LeastSpot, Most: int64(c.config.SpotMaxSize)})
			},
		},
		{
			name: upkeep.TopicLogJob, does: "add partitions to the topic log and drop old ones", setting: "FAROL_TOPIC_LOG_INTERVAL",
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().KeepTopicLog(c.config.TopicLogEvery, topiclog.Retention{Pipeline: c.config.TopicKeep, Posted: c.config.QueueKeep, Receivers: c.config.ReceiverKeep})
			},
		},
		{
			name: upkeep.RaiseAlertsJob, does: "alert people to approvals that wait, lost workers and broken promises", setting: "FAROL_ALERT_INTERVAL",
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().RaiseAlerts(c.config.AlertEvery, c.config.Fixity.Days)
			},
		},
		{
			name: upkeep.CountJob, does: "count what each institution has in storage, for reports", setting: "FAROL_REPORT_INTERVAL",
			make: func(c *scheduling) upkeep.Job { return c.recurring().CountHoldings(c.config.ReportEvery) },
		},
		{
			name: upkeep.SendMailJob, does: "send alerts by mail", setting: "FAROL_MAIL_INTERVAL",
			make: func(c *scheduling) upkeep.Job { return c.sendMail() },
		},
		{
			name: upkeep.JanitorJob, does: "remove leftovers of ended and failed items", setting: "FAROL_JANITOR_INTERVAL", needs: needsStores,
			make: func(c *scheduling) upkeep.Job {
				return newJanitor(c.Services, *c.config.Janitor, c.Holder, c.Log).Job(c.config.Janitor.Interval, c.metrics.Janitor.Observe)
			},
		},
	}
}

func needsStorage(c *settings.Scheduler) { c.Storage = &settings.Storage{} }

func needsStores(c *settings.Scheduler) {
	c.Redis, c.Storage, c.Janitor = &settings.Redis{}, &settings.Storage{}, &settings.Janitor{}
}

// settingsOf has the blocks of settings that some jobs need together.
func settingsOf(chosen []string) (c settings.Scheduler) {
	for _, j := range jobs() {
		if slices.Contains(chosen, j.name) && j.needs != nil {
			j.needs(&c)
		}
	}
	return c
}

func jobNames() (names []string) {
	for _, j := range jobs() {
		names = append(names, j.name)
	}
	return names
}

func (c *scheduling) recurring() upkeep.Jobs {
	return upkeep.Jobs{Registry: c.Services.Registry, Targets: c.Targets, Log: c.Log, Inventories: c.Inventories}
}

func (c *scheduling) reader() *upkeep.BucketReader {
	return &upkeep.BucketReader{Registry: c.Services.Registry, Receiving: c.Receiving, Log: c.Log}
}
