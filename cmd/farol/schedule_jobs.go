package main

import (
	"slices"
	"time"

	"github.com/farol-preservation/farol/pipeline"
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

// jobNeeds says which servers some jobs need besides the database.
type jobNeeds struct{ Redis, S3, Storage bool }

// readSchedulerConfig reads what jobs with these needs read.
func readSchedulerConfig(needs jobNeeds) func(*settings) schedulerConfig {
	return func(s *settings) (c schedulerConfig) {
		s.readDatabase(&c.Database)
		s.readBlock("", &c.scheduleConfig)
		s.readBlock("", &c.Read)
		s.readBlock("", &c.Log)
		s.readBlock("", &c.HTTP)
		if needs.Redis {
			c.Redis = &redisConfig{}
			s.readRedis(c.Redis)
			s.readBlock("", &c.Janitor)
		}
		switch {
		case needs.Storage:
			all := s.readStorage()
			c.Storage = &all
		case needs.S3:
			c.S3 = &s3Config{}
			s.readBlock("", c.S3)
		}
		return c
	}
}

// job is something that can be scheduled.
type job struct {
	name, does, setting string
	needs               jobNeeds
	make                func(*scheduling) pipeline.Job
}

// jobs are all there are, in the order in which --once runs them.
func jobs() []job {
	return []job{
		{
			name: pipeline.ReadBucketsJob, does: "makes an item of each new bag", setting: "FAROL_READ_INTERVAL", needs: jobNeeds{S3: true},
			make: func(c *scheduling) pipeline.Job { return c.reader().Job(c.config.Read.Interval) },
		},
		{
			name: pipeline.FixityFeedJob, does: "lets copies be checked", setting: "FAROL_FIXITY_FEED_INTERVAL",
			make: func(c *scheduling) pipeline.Job {
				return c.deps().FixityFeed(c.config.FixityEvery, c.config.FixityItems)
			},
		},
		{
			name: pipeline.GlacierPollJob, does: "looks for retrievals that are ready", setting: "FAROL_GLACIER_POLL_INTERVAL", needs: jobNeeds{Storage: true},
			make: func(c *scheduling) pipeline.Job { return c.deps().GlacierPoll(c.config.GlacierEvery) },
		},
		{
			name: pipeline.SpotRestoreJob, does: "draws objects that are restored to see that they can be", setting: "FAROL_SPOT_INTERVAL", needs: jobNeeds{Storage: true},
			make: func(c *scheduling) pipeline.Job {
				return c.deps().SpotRestore(c.config.SpotEvery, pipeline.Spot{Least: pipeline.LeastSpot, Most: c.config.SpotMaxSize})
			},
		},
		{
			name: pipeline.TopicLogJob, does: "keeps the topic log", setting: "FAROL_TOPIC_LOG_INTERVAL",
			make: func(c *scheduling) pipeline.Job {
				return c.deps().KeepTopicLog(c.config.TopicLogEvery, registry.TopicLogKeep{Pipeline: c.config.TopicKeep, Posted: c.config.QueueKeep, Receivers: c.config.ReceiverKeep})
			},
		},
		{
			name: pipeline.JanitorJob, does: "removes what items leave behind", setting: "FAROL_JANITOR_INTERVAL", needs: jobNeeds{Redis: true, Storage: true},
			make: func(c *scheduling) pipeline.Job {
				return newJanitor(c.services, c.config.Janitor, c.Holder, c.Log).Job(c.config.Janitor.Interval, c.metrics.janitor.observe)
			},
		},
	}
}

// needsOf are the needs of some jobs together.
func needsOf(chosen []string) (n jobNeeds) {
	for _, j := range jobs() {
		if slices.Contains(chosen, j.name) {
			n = jobNeeds{Redis: n.Redis || j.needs.Redis, S3: n.S3 || j.needs.S3, Storage: n.Storage || j.needs.Storage}
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
	return pipeline.Deps{Registry: c.registry, Targets: c.targets, Log: c.Log}
}

func (c *scheduling) reader() *pipeline.BucketReader {
	return &pipeline.BucketReader{Registry: c.registry, Receiving: c.receiving, Log: c.Log}
}
