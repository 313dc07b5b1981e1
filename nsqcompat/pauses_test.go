package nsqcompat

import (
	"net/url"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// paused waits until both sides have a pause of Receive, or none, and makes sure
// that they keep it for some comparisons.
func (q *queue) paused(want bool, reason string) {
	q.t.Helper()
	ok := func() bool {
		f := q.shown(receiveTopic)
		return f.Drift >= 0 && f.PausedInNSQ == want &&
			q.value(`SELECT paused || ' ' || coalesce(pause_reason, '-') FROM stage_settings WHERE stage = 'Receive'`) == map[bool]string{true: "true ", false: "false "}[want]+reason
	}
	testenv.Eventually(q.t, "a pause", ok)
	until := time.Now().Add(2 * compareEvery)
	testenv.Eventually(q.t, "two comparisons", func() bool {
		if !ok() {
			q.t.Fatalf("it does not stay: nsqd %t, Farol %s", q.shown(receiveTopic).PausedInNSQ, q.value(`SELECT paused::text FROM stage_settings WHERE stage = 'Receive'`))
		}
		return time.Now().After(until)
	})
}

func (q *queue) post(path string, channel string) {
	q.t.Helper()
	query := url.Values{"topic": {receiveTopic}}
	if channel != "" {
		query.Set("channel", channel)
	}
	must.Do(q.t, at(q.nsqd).post(q.t.Context(), path, query))
}

// A pause holds on both sides, and ends on both when it is ended where it was made,
// or in Farol.
func TestPausesHoldOnBothSides(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	stop := q.linked(q.options())
	q.items(3)
	q.claim("Receive", 1)
	q.shows(receiveTopic, 2, 1, 0)

	q.exec(`SELECT pause_stage('Receive', 'Trouble')`)
	q.paused(true, "Trouble")
	q.items(2)
	q.shows(receiveTopic, 4, 1, 0) // two of them in the topic
	q.end("Receive", 1, done)
	q.shows(receiveTopic, 4, 0, 0)
	q.post("/topic/unpause", "")
	q.paused(true, "Trouble")
	q.exec(`SELECT resume_stage('Receive')`)
	q.paused(false, "-")
	q.shows(receiveTopic, 4, 0, 0)

	q.post("/topic/pause", "")
	q.paused(true, "paused in NSQ")
	q.exec(`SELECT resume_stage('Receive')`)
	q.paused(false, "-")

	q.post("/channel/pause", receiveTopic+channelSuffix)
	q.paused(true, "paused in NSQ")
	q.post("/channel/unpause", receiveTopic+channelSuffix)
	q.paused(false, "-")
	q.post("/channel/pause", receiveTopic+channelSuffix)
	q.paused(true, "paused in NSQ")
	q.exec(`SELECT resume_stage('Receive')`)
	q.paused(false, "-")

	stop() // what changes in the meantime is found
	q.post("/topic/pause", "")
	stop = q.linked(q.options())
	q.paused(true, "paused in NSQ")
	stop()
	q.exec(`SELECT resume_stage('Receive')`)
	q.linked(q.options())
	q.paused(false, "-")
	if got := q.value(`SELECT count(*)::text FROM stage_settings_audit WHERE application_name = 'nsq'`); got != "5" {
		t.Errorf("%s changes came from nsqd, want 5", got)
	}
}

// nsqd keeps its pauses over a restart. One that has lost all gets Farol's.
func TestPausesOutliveNSQD(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.exec(`SELECT pause_stage('Receive', 'Trouble')`)
	q.paused(true, "Trouble")
	q.nsqd.Stop(t)
	q.nsqd.Start(t)
	q.paused(true, "Trouble")
	q.nsqd.Stop(t)
	q.nsqd.Wipe(t)
	q.nsqd.Start(t)
	q.paused(true, "Trouble")
	q.nsqd.Stop(t)
	q.nsqd.Wipe(t)
	q.exec(`SELECT resume_stage('Receive')`)
	q.nsqd.Start(t)
	q.paused(false, "-")
}

// Nobody can take a message out of a topic that is paused: an item that leaves its
// stage in the meantime shows, as a drift, until the topic goes on.
func TestWhatLeavesAPausedStageGoesWhenItIsResumed(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	m, _ := start(t, q.db, q.options())
	q.items(2)
	q.shows(receiveTopic, 2, 0, 0)
	q.exec(`SELECT pause_stage('Receive', 'Trouble')`)
	q.paused(true, "Trouble")
	q.items(1)
	q.shows(receiveTopic, 3, 0, 0)
	q.exec(`SELECT cancel(id) FROM work_items WHERE id IN (SELECT id FROM work_items ORDER BY id LIMIT 2)`)
	q.shows(receiveTopic, 1, 0, 0) // those two were in the channel
	q.exec(`SELECT cancel(id) FROM work_items WHERE status = 'Pending'`)
	drifts(t, m, 1)
	q.exec(`SELECT resume_stage('Receive')`)
	q.shows(receiveTopic, 0, 0, 0)
}
