package nsqcompat

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// MirrorOptions say where a mirror publishes and how it reads. All but the addresses
// have defaults: those of nsqd, or that of nsqlookupd.
type MirrorOptions struct {
	NSQDTCPAddr  string        // host:port of nsqd's protocol
	NSQDHTTPAddr string        // host:port of nsqd's HTTP API; "": it only publishes
	LookupdAddr  string        // host:port of the HTTP API of nsqlookupd, which knows where nsqd is
	MsgTimeout   time.Duration // after which messages in flight come back if the mirror is gone; 0 is 15 s
	Reader       string        // name of its position in topic_readers; "" is nsq-mirror
	Batch        int           // messages read at once; 0 is 500
	Poll         time.Duration // about how often an idle mirror polls; 0 is 250 ms
	FixityDays   int           // between two fixity checks, in targets whose policy leaves it open; 0 is 90
	NoOrders     bool          // nsqd shows the queue, and orders that are given there are refused
	Log          *slog.Logger  // nil discards
}

func (o MirrorOptions) withDefaults() MirrorOptions {
	if o.Reader == "" {
		o.Reader = "nsq-mirror"
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Poll <= 0 {
		o.Poll = 250 * time.Millisecond
	}
	if o.MsgTimeout <= 0 {
		o.MsgTimeout = 15 * time.Second
	}
	if o.FixityDays <= 0 {
		o.FixityDays = 90
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// keepsFigures reports whether nsqd's figures can be read, and so be corrected.
func (o MirrorOptions) keepsFigures() bool { return o.NSQDHTTPAddr != "" || o.LookupdAddr != "" }

// Stats are what a mirror has done since it was made.
type Stats struct {
	Leads     bool  // it publishes, and is not a standby
	Published int64 // messages that nsqd has taken
	Discarded int64 // messages skipped because nsqd can never take them
	Failures  int64 // attempts to publish that failed and are retried
}

// counters are the figures of a mirror, in all of its sessions. They are safe for
// concurrent use.
type counters struct {
	leads                          atomic.Bool
	published, discarded, failures atomic.Int64
	figures                        atomic.Pointer[[]TopicFigures]
}

func (c *counters) stats() Stats {
	return Stats{Leads: c.leads.Load(), Published: c.published.Load(), Discarded: c.discarded.Load(), Failures: c.failures.Load()}
}
