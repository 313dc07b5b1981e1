package api

import (
	"context"
	"time"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// MirrorView is what nsqd shows of the queue, with what the registry has.
type MirrorView struct {
	Known   bool          `json:"known" doc:"false: nsqd's figures could not be read"`
	Note    string        `json:"note" doc:"Why they could not; empty: there is nothing to say"`
	Age     float64       `json:"age_seconds"`
	NSQD    string        `json:"nsqd" doc:"Address of nsqd's HTTP API"`
	Running *bool         `json:"running" doc:"Whether a mirror runs; null: not known"`
	Since   *time.Time    `json:"since" doc:"Since when it has run; null: not known"`
	Moved   *time.Time    `json:"moved_at" doc:"When a mirror published last; null: never, or not known"`
	Admin   string        `json:"nsqadmin" doc:"URL of nsqadmin; empty: the server does not know it"`
	Behind  int           `json:"behind" doc:"Messages that are not published yet"`
	Oldest  float64       `json:"behind_seconds" doc:"Age of the first of them"`
	Topics  []MirrorTopic `json:"topics"`
}

// MirrorTopic is a topic in the registry and in nsqd.
type MirrorTopic struct {
	Topic         string `json:"topic"`
	Due           int64  `json:"due" doc:"Items that are due"`
	Running       int64  `json:"running" doc:"Items that run, or files that are checked"`
	Later         int64  `json:"later" doc:"Items that wait for a time or for another item"`
	Depth         int64  `json:"depth" doc:"Messages that nsqd has queued"`
	InFlight      int64  `json:"in_flight"`
	Deferred      int64  `json:"deferred"`
	Drift         int64  `json:"drift" doc:"By how many messages depth and in_flight are off, together"`
	PausedInFarol bool   `json:"paused_in_farol"`
	PausedInNSQ   bool   `json:"paused_in_nsq"`
}

// Drift is by how many messages all topics are off.
func (v MirrorView) Drift() (n int64) {
	for _, t := range v.Topics {
		n += t.Drift
	}
	return n
}

// Stands reports whether it is known that no mirror runs.
func (v MirrorView) Stands() bool { return v.Running != nil && !*v.Running }

// mirror compares the queue with what nsqd shows of it. The figures are kept for all who ask:
// nsqd is asked over its HTTP API.
func (a *API) mirror(t *ops.API) {
	ops.Register(t, reads("mirror.show", "/api/v1/mirror", "Compare the queue with what nsqd shows of it",
		"The same as `farol mirror status`. A server that does not know nsqd's address, or does not reach it, answers that the figures are not known, and why.", permission.ItemsWorkers),
		func(ctx context.Context, _ access.Caller, _ *empty) (*body[MirrorView], error) {
			if a.Mirror == nil {
				return &body[MirrorView]{MirrorView{
					Topics: []MirrorTopic{}, Note: "This server does not know where nsqd is: its administrator sets FAROL_NSQD_HTTP_ADDR or FAROL_NSQLOOKUPD_HTTP_ADDR. Without a mirror there is nothing to compare.",
				}}, nil
			}
			v, age, err := a.figures.mirror.glance(ctx, queueAge, a.Mirror)
			v.Age = age.Seconds()
			return &body[MirrorView]{v}, err
		})
}
