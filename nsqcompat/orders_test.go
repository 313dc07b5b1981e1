package nsqcompat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// orders are what is on record of those on a topic, one a line.
func (q *queue) orders(topic string) string {
	q.t.Helper()
	return q.value(`SELECT coalesce(string_agg(body || ' ' || accepted, ', ' ORDER BY id), '') FROM topic_requests WHERE topic = $1`, topic)
}

// NSQ ends the pauses that it has made, and no other: a person's is made again there.
func TestUnpauseInNSQEndsNoPauseOfFarol(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	stop := q.linked(q.options())
	q.exec(`SELECT pause_stage('Receive', 'Legal hold.')`)
	q.paused(true, "Legal hold.")
	q.post("/topic/unpause", "")
	q.answers(1)
	q.paused(true, "Legal hold.")
	stop() // nor while no mirror runs
	q.post("/topic/unpause", "")
	stop = q.linked(q.options())
	a := q.answers(2)
	q.paused(true, "Legal hold.")
	if last := a[1]; last.Accepted || last.Body != "unpause" || !strings.Contains(last.Answer, "Legal hold") || strings.Contains(last.Answer, "farol ") {
		t.Errorf("answer = %+v", last)
	}
	q.exec(`SELECT resume_stage('Receive')`)
	q.paused(false, "-")

	q.post("/topic/pause", "")
	q.paused(true, "paused in NSQ")
	q.post("/topic/unpause", "")
	q.paused(false, "-")
	if got, want := q.orders(receiveTopic), "unpause false, unpause false, pause true, unpause true"; got != want {
		t.Errorf("orders = %s, want %s", got, want)
	}
	stop()
}

// A person who pauses what NSQ has paused already has paused it, too: what ends the pause of
// NSQ does not end theirs.
func TestPauseOfNSQAndOfAPerson(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]struct{ sql, both, left string }{
		"pause_stage": {`SELECT pause_stage('Receive', 'Legal hold.')`, "paused in NSQ; Legal hold.", "Legal hold."},
		"pause_all":   {`SELECT pause_all()`, "paused in NSQ", "-"},
		"update":      {`UPDATE stage_settings SET paused = true, pause_reason = 'By hand' WHERE stage = 'Receive'`, "paused in NSQ; By hand", "By hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.linked(q.options())
			q.post("/topic/pause", "")
			q.paused(true, "paused in NSQ")
			at := q.value(`SELECT paused_at::text FROM stage_settings WHERE stage = 'Receive'`)
			q.exec(take.sql)
			q.paused(true, take.both)
			q.post("/topic/unpause", "")
			q.answers(2)
			q.paused(true, take.left)
			if now := q.value(`SELECT paused_at::text FROM stage_settings WHERE stage = 'Receive'`); now == at {
				t.Errorf("it is paused since %s still, when NSQ did", now)
			}
		})
	}
}

// Of a topic with several stages NSQ lets go on what it has paused.
func TestUnpauseOfATopicThatIsPausedInParts(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET topic = 'ingest01_prefetch' WHERE action = 'Delete'`)
	m, _ := start(t, q.db, q.options())
	testenv.Eventually(t, "the link", func() bool { return len(m.Figures()) == 14 })
	q.exec(`SELECT pause_stage('Requested', 'Legal hold.', 'Delete')`)
	q.post("/topic/pause", "")
	q.paused(true, "paused in NSQ")
	q.post("/topic/unpause", "")
	q.paused(false, "-")
	if got := q.value(`SELECT paused || ' ' || pause_reason FROM stage_settings WHERE action = 'Delete'`); got != "true Legal hold." {
		t.Errorf("Delete is %s", got)
	}
}

// With orders off nsqd shows the queue, and nothing that is done there changes it.
func TestNoOrdersAreTaken(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	o := q.options()
	o.NoOrders = true
	q.linked(o)
	q.items(2)
	q.shows(receiveTopic, 2, 0, 0)
	id := q.parked()
	q.pub(receiveTopic, fmt.Sprint(id))
	q.pub(receiveTopic, "nonsense")
	q.pub(topiclog.FixityTopic, "1")
	for _, a := range q.answers(3) {
		if a.Accepted || a.Answer != noOrders || (a.Item != nil) != (a.Body == fmt.Sprint(id)) {
			t.Errorf("answer = %+v", a)
		}
	}
	if got := q.value(`SELECT stage || ' ' || status FROM work_items WHERE id = $1`, id); got != "Validate Failed" {
		t.Errorf("the item is %s", got)
	}
	if got := q.value(`SELECT count(*)::text FROM work_item_audit WHERE work_item_id = $1 AND application_name = 'nsq' AND refused LIKE '%FAROL_NSQ_ORDERS%'`, id); got != "1" {
		t.Errorf("%s lines of the audit are about it", got)
	}
	q.post("/topic/pause", "")
	q.answers(4)
	q.paused(false, "-")
	q.post("/channel/pause", receiveTopic+channelSuffix)
	q.answers(5)
	q.paused(false, "-")
	q.exec(`SELECT pause_stage('Receive', 'Trouble')`)
	q.paused(true, "Trouble")
	q.post("/topic/unpause", "")
	q.answers(6)
	q.paused(true, "Trouble")
	q.exec(`SELECT resume_stage('Receive')`)
	q.paused(false, "-")
	q.shows(receiveTopic, 2, 0, 0)
}
