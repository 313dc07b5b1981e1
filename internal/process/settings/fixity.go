package settings

import (
	"time"

	"github.com/farol-preservation/farol/storage"
)

// Fixity is how copies are checked.
type Fixity struct {
	Days     int `env:"FAROL_FIXITY_DAYS" old:"MAX_DAYS_SINCE_LAST_FIXITY" envDefault:"90" min:"1" doc:"Days between two fixity checks of a copy, unless its target's policy sets another number (farol fixity policy)"`
	Slots    int `env:"FAROL_FIXITY_SLOTS" old:"APT_FIXITY_WORKERS" envDefault:"2" min:"0" doc:"Number of copies that a worker checks at once; 0 disables checks"`
	Batch    int `env:"FAROL_FIXITY_BATCH" old:"APT_FIXITY_BUFFER_SIZE" envDefault:"4" min:"0" doc:"Limit of small copies that a worker claims ahead"`
	Attempts int `env:"FAROL_FIXITY_ATTEMPTS" old:"APT_FIXITY_MAX_ATTEMPTS" envDefault:"3" min:"1" doc:"Attempts to read a copy, with exponential backoff, before it is retried only once a day"`
}

// Repair is how bad copies are repaired, and when that stops by itself.
type Repair struct {
	Quarantine  string        `env:"FAROL_QUARANTINE_BUCKET" envDefault:"quarantine" is:"a bucket name" doc:"Bucket of the S3 service for the bytes of bad copies that a repair replaces; created if missing"`
	MaxFailures int           `env:"FAROL_REPAIR_MAX_FAILURES" envDefault:"10" min:"0" doc:"Repair limit: more failed copies of one provider within an hour stop repairs there until an admin resumes them"`
	MaxShare    int           `env:"FAROL_REPAIR_MAX_SHARE" envDefault:"5" min:"1" doc:"Repair limit as a percentage of the copies checked within the hour, if at least 100 were"`
	Auto        string        `env:"FAROL_AUTO_REPAIR" envDefault:"off" is:"on or off" oneof:"on off" doc:"Repair of bad copies by workers, without a person"`
	After       time.Duration `env:"FAROL_REPAIR_AFTER" envDefault:"1h" doc:"Time between the discovery of a bad copy and its automatic repair: by then an incident shows"`
}

// quarantined refuses a bucket for bad copies in which something else is.
func (s *reader) quarantined(r Repair, c Storage) {
	others := map[string]string{c.Staging: "the staging bucket"}
	for _, t := range c.Targets {
		others[t.Bucket] = "the bucket of " + t.Name
	}
	if other, taken := others[r.Quarantine]; taken {
		s.wrong("FAROL_QUARANTINE_BUCKET", `is "`+r.Quarantine+`", which is `+other+`; bad copies need a bucket of their own`)
	}
}

// Audit is what farol fixity and farol repair read.
type Audit struct {
	Database Database
	Storage  Storage
	Log      Log
	Fixity   Fixity
	Repair   Repair
}

func (c *Audit) check(s *reader) { s.quarantined(c.Repair, c.Storage) }

// TargetOf finds a target by its name.
func (c Storage) TargetOf(name string) (storage.Target, bool) {
	for _, t := range c.Targets {
		if t.Name == name {
			return t, true
		}
	}
	return storage.Target{}, false
}
