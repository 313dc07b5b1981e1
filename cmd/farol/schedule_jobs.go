package main

import (
	"slices"
	"time"

	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
)

// scheduleConfig is how often the recurring jobs are run that have no other
// settings, and how much they do.
type scheduleConfig struct {
	FixityEvery   time.Duration `env:"FAROL_FIXITY_FEED_INTERVAL" old:"QUEUE_FIXITY_INTERVAL" envDefault:"30m" min:"0" doc:"time between two feeds of fixity checks; 0: none"`
	FixityItems   int           `env:"FAROL_FIXITY_FEED" old:"MAX_FIXITY_ITEMS_PER_RUN" envDefault:"2500" min:"0" doc:"copies that may be checked from one feed to the next"`
	GlacierEvery  time.Duration `env:"FAROL_GLACIER_POLL_INTERVAL" envDefault:"15m" min:"0" doc:"time between two looks whether what items wait for from an archive class is ready; 0: none, and each waits for its own time"`
	SpotEvery     time.Duration `env:"FAROL_SPOT_INTERVAL" envDefault:"24h" min:"0" doc:"time between two looks for institutions that are due for a spot restoration; 0: none"`
	TopicLogEvery time.Duration `env:"FAROL_TOPIC_LOG_INTERVAL" envDefault:"1m" min:"0" doc:"time between two rounds that make partitions of the topic log and drop old ones; 0: none, and it is kept for ever"`
	TopicKeep     time.Duration `env:"FAROL_TOPIC_KEEP" envDefault:"168h" doc:"how long messages of the pipeline's topics are kept that all readers have passed; one that was not heard of for four times as long is not waited for"`
	QueueKeep     time.Duration `env:"FAROL_QUEUE_KEEP" envDefault:"0" min:"0" doc:"how long messages that people posted to queues are kept that all receivers have been given and answered, with their results; 0: for ever"`
	ReceiverKeep  time.Duration `env:"FAROL_RECEIVER_KEEP" envDefault:"2160h" min:"0" doc:"how long a receiver of a queue or topic is remembered that does not pull and has no answers on record; after that the same name begins at the first message; 0: never forgotten"`
	SpotMaxSize   int64         `env:"FAROL_SPOT_MAX_SIZE" envDefault:"10737418240" min:"10000" doc:"bytes of the largest object that is drawn for one"`
}

// schedulerConfig is what farol schedule reads: of the servers, those that its jobs
// need.
type schedulerConfig struct {
	scheduleConfig
	Read     readConfig
	Janitor  janitorConfig
	Database databaseConfig
	Redis    *redisConfig
	S3       *s3Config
	Storage  *storageConfig
	Log      logConfig
	HTTP     httpConfig
}

// readSchedulerConfig reads what some jobs need.
func readSchedulerConfig(chosen []string) func(*settings) schedulerConfig {
	return func(s *settings) (c schedulerConfig) {
		s.readDatabase(&c.Database)
		s.readBlock("", &c.scheduleConfig)
		s.readBlock("", &c.Read)
		s.readBlock("", &c.Log)
		s.readBlock("", &c.HTTP)
		some := func(needs func(job) bool) bool {
			return slices.ContainsFunc(jobs(), func(j job) bool { return slices.Contains(chosen, j.name) && needs(j) })
		}
		if some(func(j job) bool { return j.redis }) {
			c.Redis = &redisConfig{}
			s.readRedis(c.Redis)
			s.readBlock("", &c.Janitor)
		}
		switch {
		case some(func(j job) bool { return j.storage }):
			all := s.readStorage()
			c.Storage = &all
		case some(func(j job) bool { return j.s3 }):
			c.S3 = &s3Config{}
			s.readBlock("", c.S3)
		}
		return c
	}
}

// job is something that can be scheduled.
type job struct {
	name, does, setting string
	redis, s3, storage  bool // what it needs besides the database
	make                func(*scheduling) upkeep.Job
}

// jobs are all there are, in the order in which --once runs them.
func jobs() []job {
	return []job{
		{
			name: upkeep.ReadBucketsJob, does: "makes an item of each new bag", setting: "FAROL_READ_INTERVAL", s3: true,
			make: func(c *scheduling) upkeep.Job { return c.reader().Job(c.config.Read.Interval) },
		},
		{
			name: upkeep.FixityFeedJob, does: "lets copies be checked", setting: "FAROL_FIXITY_FEED_INTERVAL",
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().FixityFeed(c.config.FixityEvery, c.config.FixityItems)
			},
		},
		{
			name: upkeep.GlacierPollJob, does: "looks for retrievals that are ready", setting: "FAROL_GLACIER_POLL_INTERVAL", storage: true,
			make: func(c *scheduling) upkeep.Job { return c.recurring().GlacierPoll(c.config.GlacierEvery) },
		},
		{
			name: upkeep.SpotRestoreJob, does: "draws objects that are restored to see that they can be", setting: "FAROL_SPOT_INTERVAL", storage: true,
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().SpotRestore(c.config.SpotEvery, upkeep.Spot{Least: upkeep.LeastSpot, Most: c.config.SpotMaxSize})
			},
		},
		{
			name: upkeep.TopicLogJob, does: "keeps the topic log", setting: "FAROL_TOPIC_LOG_INTERVAL",
			make: func(c *scheduling) upkeep.Job {
				return c.recurring().KeepTopicLog(c.config.TopicLogEvery, registry.TopicLogKeep{Pipeline: c.config.TopicKeep, Posted: c.config.QueueKeep, Receivers: c.config.ReceiverKeep})
			},
		},
		{
			name: upkeep.JanitorJob, does: "removes what items leave behind", setting: "FAROL_JANITOR_INTERVAL", redis: true, storage: true,
			make: func(c *scheduling) upkeep.Job {
				return newJanitor(c.services, c.config.Janitor, c.Holder, c.Log).Job(c.config.Janitor.Interval, c.metrics.janitor.observe)
			},
		},
	}
}

func jobNames() (names []string) {
	for _, j := range jobs() {
		names = append(names, j.name)
	}
	return names
}

func (c *scheduling) recurring() upkeep.Jobs {
	return upkeep.Jobs{Registry: c.registry, Targets: c.targets, Log: c.Log}
}

func (c *scheduling) reader() *upkeep.BucketReader {
	return &upkeep.BucketReader{Registry: c.registry, Receiving: c.receiving, Log: c.Log}
}
