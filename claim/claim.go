// Package claim is the queue: it hands out work items from the registry's own
// table, each to one worker at a time.
//
// A claim is a lease. A process renews all of its leases in one statement every
// heartbeat. A lease that lapses is ended by any process, and the item goes to the next
// worker that claims. Work therefore survives its worker, and must be safe to repeat.
//
// A worker may not notice that its lease has lapsed. So an item carries a token that
// grows with every transition, and every write names the token it was claimed with: the
// write of a stale claim changes nothing and is [ErrLost].
//
// A transition is one statement: it moves the item, ends the attempt in the ledger, and
// appends the topic message. The only clock is the database's.
//
// The slots of a process meet in its [Engine]: claims that arrive while another one runs
// go into the next transaction together, whatever they take and for whom, and so do ends of
// claims. Callers have a call for each item and pay the price of a batch.
//
// Calls between files go one way. From the bottom up: words (claim, filter, service, outcome,
// options, observe); the database (sql, postgres); what all parts share (core); ends of claims
// (policy, settle); leases (hold, beat); news of work (notices); claims (scan,
// share, claimer, fairness); workers that are gone (reap); upkeep; and [Engine], which puts the
// parts together (engine, doubt).
//
// What can do without an item and its lease is in packages below: how stages are treated
// (stages), where scans begin (cursor), who is woken (wake) and notified (line), what is sent
// together (batch) and over which connections (lane), whether the database's clock was set (clock),
// how far back reaping looks (rounds), and what became of a process (process). Workers of other programs are above, in package remote.
package claim

import (
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// ErrLost says that an item is no longer this worker's to change: its lease
// lapsed, a person requeued or cancelled it, or a newer version replaced it.
var ErrLost = registry.ErrLost

// Item is one claimed piece of work.
type Item struct {
	ID               int64
	Token            int64
	Entered          int64 // token with which the item came to this stage: the same for all attempts since
	Action           registry.Action
	Stage            registry.Stage
	Topic            string // of this stage
	Attempt          int    // claims of this stage that count, this one included
	MaxAttempts      int
	Timeout          time.Duration // how long the stage may take; 0: as long as it needs
	Name             string        // key of the tar in the receiving bucket
	Bucket           string
	ETag             string
	Size             int64
	BagDate          time.Time
	CreatedAt        time.Time
	ObjectIdentifier string
	InstitutionID    int64
	Institution      string // identifier
	StorageOption    string // "" until the bag has been read
	Request          Request

	Band  int16           // size band
	At    cursor.Position // in its queue partition
	Lease time.Duration   // as it was granted

	asked time.Time // when the claim was sent, by this process's monotonic clock
}

// Step is [stages.StepOf] the item.
func (i Item) Step() string { return stages.StepOf(i.Action, i.Stage) }

// Request is what only items have that are no ingests.
type Request struct {
	ObjectID   int64
	FileID     int64 // 0: the whole object
	User       string
	Approver   string // of a deletion
	DeletionID int64  // deletion request
	CreatedAt  time.Time
}
