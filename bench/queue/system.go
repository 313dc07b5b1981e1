package queue

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// stages are how many an item goes through; a hop leaves one behind.
const stages = 9

// load is how hard a system is driven.
type load struct {
	Workers int  `json:"workers"`
	Batch   int  `json:"batch"` // items a claim; 0: the client has no say in it
	Drain   bool `json:"drain"` // an item leaves with its ninth hop; otherwise a new one takes its place
}

// A system is a queue under test. Its methods are called one after the other,
// but for put, which is also called while run runs.
type system interface {
	// start makes ready what the others need and says which version is measured.
	// errMissing says that this machine cannot run the system.
	start(ctx context.Context, s *servers) (version string, err error)
	// fill throws away what is in the queue and loads n items, by the quickest way
	// that there is, evenly over the first stages. Items are numbered from 0.
	fill(ctx context.Context, n, stages int) error
	// put adds n items at the first stage as a client would.
	put(ctx context.Context, n int) error
	// run works, and tells t, until ctx is done or t is over.
	run(ctx context.Context, l load, t *tally) error
	stop(ctx context.Context) error
}

// verifier is a system that can tell by its own records whether n items were
// drained as they should have been.
type verifier interface {
	verify(ctx context.Context, n int) error
}

// errMissing says that a peer is not installed.
var errMissing = errors.New("not on this machine")

// contender is a system as it stands in the tables.
type contender struct {
	system

	name    string // the part before the first dash is common to its variants
	hop     string // what is counted as a hop
	durable string // "yes", or what is lost when the power fails
	batches bool   // a client chooses how many items it claims
	widest  int    // a number of workers that suits it best, measured in addition to those asked for
	// burns is set of a system whose jobs end when they are worked. Nothing takes
	// their place, so that many a second are loaded before they are measured.
	burns    int
	most     int  // the largest backlog that it is measured at; 0: as peers are
	postgres bool // hops end in the database of the run
	pinned   bool // measured with a pinned snapshot, too
	steady   bool // measured by steady alone
	version  string
}

func (c contender) hopsPerItem() int {
	if c.burns > 0 {
		return 1
	}
	return stages
}

// yes says that nothing is lost when the power fails.
const yes = "yes"

// contenders are all systems, Farol first.
func contenders(c config) []contender {
	list := []contender{
		{
			name: "farol", hop: "claim, ledger, settle to the next stage, topic message", durable: yes,
			batches: true, most: math.MaxInt, postgres: true, pinned: true, system: &farol{conns: c.conns},
		},
		{
			name: "farol-carried", hop: "as farol; a worker goes on with an item to the next stage, in the same statement", durable: yes,
			batches: true, postgres: true, system: &farol{conns: c.conns, carried: true},
		},
		{
			name: "farol-intake", hop: "as farol; new items come as the bucket reader brings them, through all triggers", durable: yes,
			batches: true, most: 10_000, steady: true, postgres: true, system: &farol{conns: c.conns, intake: true},
		},
	}
	if c.against != "" {
		list = append(list, contender{
			name: "farol-before", hop: "as farol, of an earlier commit and on a server of its own", durable: yes,
			batches: true, most: math.MaxInt, system: &before{rev: c.against},
		})
	}
	return append(list, peers()...)
}

// peers are public queues. One that can do less than a whole hop for the price of
// its best is there twice: as it is at its best, and with hops.
func peers() []contender {
	return []contender{
		{
			name: "river", hop: "work a no-op job; nothing follows", durable: yes,
			widest: 2000, burns: 45_000, postgres: true, pinned: true, system: &riverQueue{},
		},
		{
			name: "river-next", hop: "work a job that inserts the next and completes in one transaction", durable: yes,
			postgres: true, system: &riverQueue{next: true},
		},
		{
			name: "graphile", hop: "work a no-op job, local queue and batched completion; nothing follows", durable: yes,
			widest: 48, burns: 90_000, postgres: true, system: &graphile{batched: true},
		},
		{
			name: "graphile-default", hop: "work a no-op job; nothing follows", durable: yes,
			burns: 8_000, postgres: true, system: &graphile{},
		},
		{
			name: "graphile-next", hop: "as graphile, and the job adds the next", durable: yes,
			postgres: true, system: &graphile{batched: true, next: true},
		},
		{
			name: "nsq", hop: "publish to the next topic, FIN", durable: "no: in memory",
			widest: 512, system: &nsqQueue{},
		},
		{
			name: "nats", hop: "publish to the next subject, acknowledged ack", durable: "no: file, fsync every 2 min",
			batches: true, system: &natsQueue{},
		},
		{
			name: "nats-always", hop: "as nats", durable: yes,
			batches: true, most: 10_000, system: &natsQueue{always: true},
		},
		{
			name: "rmq", hop: "push to the next queue", durable: "yes: appendfsync always",
			system: &rmqQueue{durable: true},
		},
		{
			name: "rmq-memory", hop: "as rmq", durable: "no: in memory",
			system: &rmqQueue{},
		},
	}
}

// choose returns those that were asked for, each by its name or its family's.
func choose(all []contender, names []string) []contender {
	if len(names) == 0 {
		return all
	}
	var list []contender
	for _, c := range all {
		family, _, _ := strings.Cut(c.name, "-")
		if slices.Contains(names, c.name) || slices.Contains(names, family) {
			list = append(list, c)
		}
	}
	return list
}

// moduleVersion is the version of a library that is linked in.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "(unknown)"
}

// pause paces what must not go faster. It returns false if ctx ended it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
