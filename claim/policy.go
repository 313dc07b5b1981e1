package claim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// move is one transition as the statement takes it. Empty strings leave what the item has,
// where the statement says so.
type move struct {
	ID            int64
	Token         int64
	Stage         registry.Stage
	Status        registry.Status
	Delay         time.Duration
	Attempt       int
	Note          string
	Outcome       string
	ObjectID      *int64
	StorageOption string
	MemoryNeed    int64  // 0: as it was
	Topic         string // to append a message to; "": none
	Ended         string
	Code          string
	Error         string
	File          string // that was in progress
	Service       string // that failed

	list    List // that its stage leaves
	carried bool // its worker goes on with the item at once, if it may begin there
	capped  bool // there is a bound on how many run at the stage that it is carried to

	place cursor.Place   // that the item moves to
	frees registry.Stage // that it leaves and that is capped, so that another may run there; "": none
}

// decide is the policy: the transition of an item, given what its stage returned and the
// settings of its stage and of the next.
func decide(item Item, done Done, result error, of func(stage registry.Stage) stages.Settings) move {
	m := move{
		ID: item.ID, Token: item.Token,
		Stage: item.Stage, Status: registry.Pending, Attempt: item.Attempt, Code: Code(result),
	}
	if result == nil {
		return goOn(m, item, done, of)
	}
	e, ok := errors.AsType[*ending](result)
	if f := FaultIn(result); f != nil {
		e = &ending{kind: endHeld, code: f.Code(), service: f.Service, delay: heldDelay}
	} else if !ok {
		e = &ending{kind: endTransient, code: m.Code}
	}
	m.Note = registry.StorableText(result.Error())
	m.Error, m.Code = m.Note, e.code
	switch e.kind {
	case endHeld, endDoubt:
		m.Ended, m.Service, m.Delay, m.Attempt = "held", e.service, e.delay, item.Attempt-1
	case endSnooze:
		m.Ended, m.Delay, m.Attempt = "snoozed", e.delay, item.Attempt-1
	case endRelease:
		m.Ended, m.Attempt = "released", item.Attempt-1
	case endNeed:
		m.Ended, m.Attempt, m.MemoryNeed = "released", item.Attempt-1, e.need
	case endSendBack:
		m.Ended, m.Stage, m.Attempt, m.Topic = "sent back", e.stage, 0, of(e.stage).Topic
	case endCancel:
		m.Ended, m.Status = "cancelled", registry.Cancelled
	case endSuspend:
		m.Ended, m.Status = "fatal", registry.Suspended
	case endFatal:
		m.Ended, m.Status = "fatal", registry.Failed
		m.Outcome = string(item.Action) + " failed due to fatal error."
	case endTransient, endPanic:
		m.Ended = "transient"
		if e.kind == endPanic {
			m.Ended = "panic"
		}
		m.Delay = of(item.Stage).Backoff(item.Attempt)
		if item.Attempt >= item.MaxAttempts {
			m.Status, m.Delay = registry.Suspended, 0
			m.Note += fmt.Sprintf(" Will not retry: failed %d times. Interim processing data persists.", item.Attempt)
		}
	}
	return m
}

// goOn moves an item whose stage is done to the next, or to its end.
func goOn(m move, item Item, done Done, of func(stage registry.Stage) stages.Settings) move {
	m.Ended, m.Note, m.Attempt, m.StorageOption = "done", registry.StorableText(done.Note), 0, done.StorageOption
	m.MemoryNeed, m.Error, m.list = done.MemoryNeed, registry.StorableText(done.Remark), done.List
	if done.Next != "" {
		m.Stage, m.Topic = done.Next, of(done.Next).Topic
		return m
	}
	m.Status, m.Outcome = registry.Success, done.Outcome
	if item.Action != registry.Ingest {
		m.Stage = registry.Resolve
	}
	if done.ObjectID != 0 {
		m.ObjectID = &done.ObjectID
	}
	return m
}

// done reports whether the item's stage is done: another follows, or it was the last.
func (m move) done() bool { return m.Ended == "done" }

// carriedOn is the item at the stage that its worker has begun with a move.
func (i Item) carriedOn(m move, l landing, st stages.Settings) Item {
	i.Entered, i.Token = i.Token+1, i.Token+2 // as a move and a claim
	i.Stage, i.Attempt = m.Stage, 1
	i.Topic, i.MaxAttempts, i.Timeout = st.Topic, st.MaxAttempts, st.Timeout
	i.StorageOption = cmp.Or(m.StorageOption, i.StorageOption)
	i.asked, i.Lease = l.asked, l.lease
	return i
}
