package main

import (
	"slices"

	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
)

// job is something that can be scheduled.
type job struct {
	name, does, setting string
	needs               settings.JobNeeds
	make                func(*scheduling) pipeline.Job
}

// jobs are all there are, in the order in which --once runs them.
func jobs() []job {
	return []job{
		{
			name: pipeline.ReadBucketsJob, does: "makes an item of each new bag", setting: "FAROL_READ_INTERVAL", needs: settings.JobNeeds{S3: true},
			make: func(c *scheduling) pipeline.Job { return c.reader().Job(c.config.Read.Interval) },
		},
		{
			name: pipeline.FixityFeedJob, does: "lets copies be checked", setting: "FAROL_FIXITY_FEED_INTERVAL",
			make: func(c *scheduling) pipeline.Job {
				return c.deps().FixityFeed(c.config.FixityEvery, c.config.FixityItems)
			},
		},
		{
			name: pipeline.GlacierPollJob, does: "looks for retrievals that are ready", setting: "FAROL_GLACIER_POLL_INTERVAL", needs: settings.JobNeeds{Storage: true},
			make: func(c *scheduling) pipeline.Job { return c.deps().GlacierPoll(c.config.GlacierEvery) },
		},
		{
			name: pipeline.SpotRestoreJob, does: "draws objects that are restored to see that they can be", setting: "FAROL_SPOT_INTERVAL", needs: settings.JobNeeds{Storage: true},
			make: func(c *scheduling) pipeline.Job {
				return c.deps().SpotRestore(c.config.SpotEvery, pipeline.Spot{Least: pipeline.LeastSpot, Most: int64(c.config.SpotMaxSize)})
			},
		},
		{
			name: pipeline.TopicLogJob, does: "keeps the topic log", setting: "FAROL_TOPIC_LOG_INTERVAL",
			make: func(c *scheduling) pipeline.Job {
				return c.deps().KeepTopicLog(c.config.TopicLogEvery, registry.TopicLogKeep{Pipeline: c.config.TopicKeep, Posted: c.config.QueueKeep, Receivers: c.config.ReceiverKeep})
			},
		},
		{
			name: pipeline.JanitorJob, does: "removes what items leave behind", setting: "FAROL_JANITOR_INTERVAL", needs: settings.JobNeeds{Redis: true, Storage: true},
			make: func(c *scheduling) pipeline.Job {
				return newJanitor(c.Services, c.config.Janitor, c.Holder, c.Log).Job(c.config.Janitor.Interval, c.metrics.Janitor.Observe)
			},
		},
	}
}

// needsOf are the needs of some jobs together.
func needsOf(chosen []string) (n settings.JobNeeds) {
	for _, j := range jobs() {
		if slices.Contains(chosen, j.name) {
			n = settings.JobNeeds{Redis: n.Redis || j.needs.Redis, S3: n.S3 || j.needs.S3, Storage: n.Storage || j.needs.Storage}
		}
	}
	return n
}

func jobNames() (names []string) {
	for _, j := range jobs() {
		names = append(names, j.name)
	}
	return names
}

func (c *scheduling) deps() pipeline.Deps {
	return pipeline.Deps{Registry: c.Services.Registry, Targets: c.Targets, Log: c.Log}
}

func (c *scheduling) reader() *pipeline.BucketReader {
	return &pipeline.BucketReader{Registry: c.Services.Registry, Receiving: c.Receiving, Log: c.Log}
}
