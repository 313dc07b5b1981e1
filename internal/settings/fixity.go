package settings

import (
	"time"

	"github.com/farol-preservation/farol/storage"
)

// Fixity is how copies are checked.
type Fixity struct {
	Days     int `env:"FAROL_FIXITY_DAYS" old:"MAX_DAYS_SINCE_LAST_FIXITY" envDefault:"90" min:"1" doc:"days between two fixity checks of a copy, in storage targets whose policy leaves it open (farol fixity policy)"`
	Slots    int `env:"FAROL_FIXITY_SLOTS" old:"APT_FIXITY_WORKERS" envDefault:"2" min:"0" doc:"copies that a worker reads at once to check them; 0: none"`
	Batch    int `env:"FAROL_FIXITY_BATCH" old:"APT_FIXITY_BUFFER_SIZE" envDefault:"4" min:"0" doc:"copies that it claims beyond that while they are small, so that it need not wait for the next claim; at most"`
	Attempts int `env:"FAROL_FIXITY_ATTEMPTS" old:"APT_FIXITY_MAX_ATTEMPTS" envDefault:"3" min:"1" doc:"tries to read a copy, with growing pauses, after which it is tried once a day"`
}

// Repair is how bad copies are repaired, and when that stops by itself.
type Repair struct {
	Quarantine  string        `env:"FAROL_QUARANTINE_BUCKET" envDefault:"quarantine" is:"a bucket name" doc:"bucket of the S3 service for the bytes of bad copies that are replaced; made if it is missing"`
	MaxFailures int           `env:"FAROL_REPAIR_MAX_FAILURES" envDefault:"10" min:"0" doc:"copies of a provider that may fail within an hour; if there are more, nothing there is repaired until an admin says so"`
	MaxShare    int           `env:"FAROL_REPAIR_MAX_SHARE" envDefault:"5" min:"1" doc:"the same as a share, in per cent of the copies that were checked within that hour, once they are 100"`
	Auto        string        `env:"FAROL_AUTO_REPAIR" envDefault:"off" is:"on or off" oneof:"on off" doc:"whether workers repair bad copies by themselves"`
	After       time.Duration `env:"FAROL_REPAIR_AFTER" envDefault:"1h" doc:"how long a copy has to be known to be bad before workers repair it by themselves: until then it shows whether it is an incident"`
}

// readRepair refuses a bucket in which something else is.
func (s *Reader) readRepair(c Storage) (r Repair) {
	s.readBlock("", &r)
	others := map[string]string{c.Staging: "the staging bucket"}
	for _, t := range c.Targets {
		others[t.Bucket] = "the bucket of " + t.Name
	}
	if other, taken := others[r.Quarantine]; taken {
		s.wrong("FAROL_QUARANTINE_BUCKET", `is "`+r.Quarantine+`", which is `+other+`; what is bad needs a bucket of its own`)
	}
	return r
}

// Audit is what farol fixity and farol repair read.
type Audit struct {
	Database Database
	Storage  Storage
	Log      Log
	Fixity   Fixity
	Repair   Repair
}

func ReadAudit(s *Reader) (c Audit) {
	s.readDatabase(&c.Database)
	c.Storage = s.readStorage()
	s.readBlock("", &c.Log)
	s.readBlock("", &c.Fixity)
	c.Repair = s.readRepair(c.Storage)
	return c
}

// TargetOf finds a target by its name.
func (c Storage) TargetOf(name string) (storage.Target, bool) {
	for _, t := range c.Targets {
		if t.Name == name {
			return t, true
		}
	}
	return storage.Target{}, false
}

// FixityStatus is what farol fixity status, check and policy read.
type FixityStatus struct {
	Database Database
	Fixity   Fixity
}

func ReadFixityStatus(s *Reader) (c FixityStatus) {
	s.readDatabase(&c.Database)
	s.readBlock("", &c.Fixity)
	return c
}
