package settings

import (
	"time"
)

// Schedule is how often the recurring jobs are run that have no other
// settings, and how much they do.
type Schedule struct {
	FixityEvery    time.Duration `env:"FAROL_FIXITY_FEED_INTERVAL" old:"QUEUE_FIXITY_INTERVAL" envDefault:"30m" min:"0" doc:"Time between two releases of copies for fixity checks; 0 disables them"`
	FixityItems    int           `env:"FAROL_FIXITY_FEED" old:"MAX_FIXITY_ITEMS_PER_RUN" envDefault:"0" min:"0" doc:"Limit of copies in one release; 0 releases four times as many as come due by the policies, and at least 2500"`
	InventoryEvery time.Duration `env:"FAROL_INVENTORY_INTERVAL" envDefault:"24h" min:"0" doc:"Time between two comparisons of the records with the S3 Inventory of each target that has one; 0 disables them"`
	GlacierEvery   time.Duration `env:"FAROL_GLACIER_POLL_INTERVAL" envDefault:"15m" min:"0" doc:"Time between two polls of all pending retrievals from archive classes; 0 disables them, and each item polls on its own schedule"`
	SpotEvery      time.Duration `env:"FAROL_SPOT_INTERVAL" envDefault:"24h" min:"0" doc:"Time between two searches for institutions that are due for a spot restoration; 0 disables them"`
	TopicLogEvery  time.Duration `env:"FAROL_TOPIC_LOG_INTERVAL" envDefault:"1m" min:"0" doc:"Time between two rounds that create and drop partitions of the topic log; 0 disables them, and the log grows without limit"`
	TopicKeep      time.Duration `env:"FAROL_TOPIC_KEEP" envDefault:"168h" doc:"Retention of messages that every reader has consumed. A reader silent for four times this long no longer holds messages back"`
	QueueKeep      time.Duration `env:"FAROL_QUEUE_KEEP" envDefault:"0" min:"0" doc:"Retention of posted messages that every receiver has answered, with their results; 0 keeps them"`
	ReceiverKeep   time.Duration `env:"FAROL_RECEIVER_KEEP" envDefault:"2160h" min:"0" doc:"Time after which an idle receiver without answers on record is forgotten; the same name then starts at the first message. 0 keeps it"`
	AlertEvery     time.Duration `env:"FAROL_ALERT_INTERVAL" envDefault:"5m" min:"0" doc:"Time between two searches for states that people are alerted to, such as an approval that waits; 0 disables them"`
	ReportEvery    time.Duration `env:"FAROL_REPORT_INTERVAL" envDefault:"1h" min:"0" doc:"Time between two counts of the storage in use and of items that ended, for reports; 0 disables them"`
	SpotMaxSize    Size          `env:"FAROL_SPOT_MAX_SIZE" envDefault:"10GiB" min:"10000" doc:"Largest object that a spot restoration may choose"`
}

// Scheduler is what farol schedule reads: of the servers and the janitor, what its jobs need.
type Scheduler struct {
	Database Database
	Schedule
	Read    Read
	Mail    Mail
	Fixity  Fixity
	Log     Log
	Traces  Traces
	HTTP    HTTP
	Redis   *Redis
	Janitor *Janitor
	S3      *S3
	Storage *Storage
}
