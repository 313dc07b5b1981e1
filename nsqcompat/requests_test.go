package nsqcompat

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// pub publishes as an old script does.
func (q *queue) pub(topic, body string) {
	q.t.Helper()
	request := must.Get(http.NewRequestWithContext(q.t.Context(), http.MethodPost, "http://"+q.nsqd.HTTPAddr+"/pub?topic="+topic, strings.NewReader(body)))(q.t)
	response, err := http.DefaultClient.Do(request)
	must.Do(q.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		q.t.Fatalf("pub = %s", response.Status)
	}
}

// answers are those to requests, in the order of the requests.
func (q *queue) answers(n int) []TopicRequest {
	q.t.Helper()
	var list []TopicRequest
	testenv.Eventually(q.t, fmt.Sprint(n, " answers"), func() bool {
		var err error
		if list, err = NewMirror(q.db, MirrorOptions{}).Requests(q.t.Context(), 1000); err != nil {
			q.t.Fatal(err)
		}
		return len(list) >= n
	})
	if len(list) != n {
		q.t.Fatalf("answers = %+v, want %d", list, n)
	}
	for i := range n / 2 {
		list[i], list[n-1-i] = list[n-1-i], list[i]
	}
	return list
}

func (q *queue) value(sql string, args ...any) string {
	q.t.Helper()
	rows, _ := q.db.Query(q.t.Context(), sql, args...)
	text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	if err != nil {
		q.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// parked brings an item to Validate and has it fail there.
func (q *queue) parked() int64 {
	q.t.Helper()
	id := q.items(1)
	q.park(id)
	return id
}

func (q *queue) park(id int64) {
	q.t.Helper()
	q.exec(`UPDATE work_items SET stage = 'Validate', status = 'Failed', retry = false, needs_admin_review = true, claim_token = 5, entered_token = 4, updated_at = now() WHERE id = $1`, id)
}

func (q *queue) linked(o MirrorOptions) (stop func()) {
	q.t.Helper()
	m, stop := start(q.t, q.db, o)
	testenv.Eventually(q.t, "the link", func() bool { return len(m.Figures()) == 15 })
	return stop
}

// An old script's message is a request under the rules for a person's, wherever
// in the queue it lies, and however often it comes.
func TestPublishedIDIsARequestToRequeue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	id := q.parked()
	q.items(500) // nobody works
	q.shows(receiveTopic, 500, 0, 0)
	q.pub(receiveTopic, fmt.Sprint(id, "\n"))
	if a := q.answers(1)[0]; !a.Accepted || a.Item == nil || *a.Item != id || a.Body != fmt.Sprint(id) {
		t.Errorf("answer = %+v", a)
	}
	if got := q.value(`SELECT stage || ' ' || status FROM work_items WHERE id = $1`, id); got != "Receive Pending" {
		t.Errorf("the item is %s", got)
	}
	if got := q.value(`SELECT application_name FROM work_item_audit WHERE work_item_id = $1 AND refused IS NULL`, id); got != nsqName {
		t.Errorf("it was requeued by %q", got)
	}
	q.shows(receiveTopic, 501, 0, 0)
	q.pub(receiveTopic, fmt.Sprint(id))
	if a := q.answers(2)[1]; !a.Accepted {
		t.Errorf("answer = %+v", a)
	}
	q.shows(receiveTopic, 501, 0, 0)
	q.claim("Receive", 501)
	q.pub(receiveTopic, fmt.Sprint(id))
	if a := q.answers(3)[2]; !a.Accepted || !strings.Contains(a.Answer, "runs") {
		t.Errorf("answer = %+v", a)
	}
	q.shows(receiveTopic, 0, 501, 0)
	if f := q.shown(receiveTopic); f.Requeued > 2*502 { // what lay there was passed over once for each of the first two
		t.Errorf("%d messages were requeued in nsqd, want those of two rescans at most", f.Requeued)
	}
}

// What the rules do not allow is answered, and changes nothing.
func TestRequestThatIsRefusedIsAnswered(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	failed, over := q.parked(), q.parked()
	q.exec(`SELECT cancel($1)`, over)
	for i, tc := range []struct {
		topic, body, answer string
		item                bool
	}{
		{validateTopic, fmt.Sprint(over), "it cannot be changed", true},
		{"ingest06_storage", fmt.Sprint(failed), "it has only come to Validate", true},
		{"delete_item", fmt.Sprint(failed), "is of Ingest", true},
		{validateTopic, "31337", "there is no item 31337", false},
		{validateTopic, "99999999999999999999", "no id", false},
		{validateTopic, "-1", "no id", false},
		{validateTopic, "\x00\xff'; DROP TABLE work_items", "no id", false},
		{validateTopic, strings.Repeat("7", 900<<10), "no id", false},
		{topiclog.FixityTopic, "31337", "there is no file 31337", false},
	} {
		q.pub(tc.topic, tc.body)
		a := q.answers(i + 1)[i]
		if a.Accepted || !strings.Contains(a.Answer, tc.answer) || (a.Item != nil) != tc.item || len(a.Body) > 6*maxKept {
			t.Errorf("%q on %s is answered by %+v", tc.body[:min(40, len(tc.body))], tc.topic, a)
		}
	}
	if got := q.value(`SELECT string_agg(work_item_id || ' ' || (before = after), ', ' ORDER BY id) FROM work_item_audit WHERE refused IS NOT NULL`); got != fmt.Sprintf("%d true, %[2]d true, %[2]d true", over, failed) {
		t.Errorf("audit = %s", got)
	}
	q.shows(validateTopic, 0, 0, 0)
	q.shows(topiclog.FixityTopic, 0, 0, 0)
}

// A database that does not answer loses no request.
func TestRequestWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	config := q.db.Config()
	config.ConnConfig.RuntimeParams["lock_timeout"] = "100"
	impatient := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(impatient.Close)
	m, _ := start(t, impatient, q.options())
	testenv.Eventually(t, "the link", func() bool { return len(m.Figures()) == 15 })
	id := q.parked()
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	must.Get(tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, id))(t)
	q.pub(validateTopic, fmt.Sprint(id))
	testenv.Eventually(t, "that it was given back", func() bool {
		stats, err := at(q.nsqd).stats(t.Context())
		topic, _ := stats.topic(validateTopic)
		worker, _ := topic.channel(validateTopic + channelSuffix)
		return err == nil && worker.Requeued > 0
	})
	must.Do(t, tx.Rollback(t.Context()))
	if a := q.answers(1)[0]; !a.Accepted {
		t.Errorf("answer = %+v", a)
	}
}

// A mirror that begins cannot distinguish what it finds from what its predecessor had
// published, unless that ended in order. It requeues nothing by mistake.
func TestOldMessagesAreNoRequests(t *testing.T) {
	t.Parallel()
	for _, orderly := range []bool{true, false} {
		t.Run(fmt.Sprint("orderly=", orderly), func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			proxy := testenv.NewProxy(t, q.nsqd.TCPAddr)
			o := q.options()
			o.NSQDTCPAddr, o.MsgTimeout = proxy.Addr(), time.Second
			stop := q.linked(o)
			items := q.items(3) // their messages have come to Receive, and they go on to Validate
			q.shows(receiveTopic, 3, 0, 0)
			q.claim("Receive", 3)
			q.end("Receive", 3, done)
			q.shows(validateTopic, 3, 0, 0)
			if !orderly {
				proxy.Cut()
			}
			stop()
			q.exec(`UPDATE nsq_topics SET settled = settled AND $1`, orderly)
			parked := q.parked()
			for _, id := range []int64{items, items + 1, parked} { // as the predecessor's would be
				q.pub(receiveTopic, fmt.Sprint(id))
			}
			q.pub(receiveTopic, "31337")
			o.NSQDTCPAddr = q.nsqd.TCPAddr
			q.linked(o)
			if orderly {
				for _, a := range q.answers(4) {
					if a.Accepted != (a.Item != nil) {
						t.Errorf("answer = %+v", a)
					}
				}
				return
			}
			for _, a := range q.answers(2) {
				if a.Accepted || a.Item != nil && !strings.Contains(a.Answer, "publish it again") {
					t.Errorf("answer = %+v", a)
				}
			}
			if got := q.value(`SELECT string_agg(stage || ' ' || status, ', ' ORDER BY id) FROM work_items`); got != "Validate Pending, Validate Pending, Validate Pending, Validate Failed" {
				t.Errorf("items = %s", got)
			}
		})
	}
}

// A request to check a file goes before all other checks.
func TestPublishedFileIDIsARequestToCheckIt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.exec(`
		WITH object AS (
			INSERT INTO intellectual_objects (institution_id, identifier, bag_name, storage_option, title, source_organization, bagit_profile_identifier, etag)
			SELECT id, 'test.edu/bag', 'bag', 'Standard', 'T', '', '', 'e' FROM institutions RETURNING id, institution_id)
		INSERT INTO generic_files (intellectual_object_id, institution_id, identifier, uuid, size, storage_option, file_format, last_fixity_check)
		SELECT id, institution_id, 'test.edu/bag/data/a', gen_random_uuid(), 1, 'Standard', 'text/plain', now() FROM object`)
	q.exec(`INSERT INTO storage_records (generic_file_id, target, bucket, key, url, stored_at, verified_at) SELECT id, 'Standard-VA', 'b', 'k', 'https://b/k', now(), now() FROM generic_files`)
	q.pub(topiclog.FixityTopic, q.value(`SELECT id::text FROM generic_files`))
	if a := q.answers(1)[0]; !a.Accepted {
		t.Errorf("answer = %+v", a)
	}
	if got := q.value(`SELECT string_agg(target || ' ' || requested, ', ') FROM fixity_checks`); got != "Standard-VA true" {
		t.Errorf("checks = %s", got)
	}
}
