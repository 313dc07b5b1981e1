package settings

import (
	"time"
)

// Schedule is how often the recurring jobs are run that have no other
// settings, and how much they do.
type Schedule struct {
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

// Scheduler is what farol schedule reads: of the servers, those that its jobs
// need.
type Scheduler struct {
	Schedule
	Read     Read
	Janitor  Janitor
	Database Database
	Redis    *Redis
	S3       *S3
	Storage  *Storage
	Log      Log
	HTTP     HTTP
}

// JobNeeds says which servers some jobs need besides the database.
type JobNeeds struct{ Redis, S3, Storage bool }

// ReadScheduler reads what jobs with these needs read.
func ReadScheduler(needs JobNeeds) func(*Reader) Scheduler {
	return func(s *Reader) (c Scheduler) {
		s.readDatabase(&c.Database)
		s.readBlock("", &c.Schedule)
		s.readBlock("", &c.Read)
		s.readBlock("", &c.Log)
		s.readBlock("", &c.HTTP)
		if needs.Redis {
			c.Redis = &Redis{}
			s.readRedis(c.Redis)
			s.readBlock("", &c.Janitor)
		}
		switch {
		case needs.Storage:
			all := s.readStorage()
			c.Storage = &all
		case needs.S3:
			c.S3 = &S3{}
			s.readBlock("", c.S3)
		}
		return c
	}
}
