package nsqcompat

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// files puts n files on record that were checked long ago, each with a copy in
// Standard-VA, and another in the targets named.
func (q *queue) files(n int, targets ...string) {
	q.t.Helper()
	q.exec(`
		WITH object AS (
			INSERT INTO intellectual_objects (institution_id, identifier, bag_name, storage_option, title, source_organization, bagit_profile_identifier, etag)
			SELECT id, 'test.edu/bag', 'bag', 'Standard', 'T', '', '', 'e' FROM institutions RETURNING id, institution_id)
		INSERT INTO generic_files (intellectual_object_id, institution_id, identifier, uuid, size, storage_option, file_format, last_fixity_check)
		SELECT id, institution_id, 'test.edu/bag/data/' || i, gen_random_uuid(), 1, 'Standard', 'text/plain', now() FROM object, generate_series(1, $1) i`, n)
	q.exec(`INSERT INTO storage_records (generic_file_id, target, bucket, key, url, stored_at, verified_at, last_fixity_at)
		SELECT id, t, 'b', id || t, 'https://b/' || id || t, now(), now(), now() - interval '100 days' FROM generic_files, unnest('{Standard-VA}'::text[] || $1) t`, targets)
}

func (q *queue) feed(n int) {
	q.t.Helper()
	must.Get(fixity.In(registry.New(q.db)).Feed(q.t.Context(), n, time.Hour))(q.t)
}

// check has a worker take n copies.
func (q *queue) check(n int) []fixity.Copy {
	q.t.Helper()
	return must.Get(fixity.In(registry.New(q.db)).Claim(q.t.Context(), fixity.Claim{
		Worker: "w", Targets: []string{"Standard-VA", "Standard-OR", "Glacier-VA"}, Most: n, Days: 90, Lease: time.Hour,
	}))(q.t)
}

// The depth of the topic is what a worker would take: due by its policy, as far as
// the allowance goes, and nothing that is archived.
func TestDepthOfFixityChecksIsWhatIsDueAndAllowed(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.files(7, "Standard-OR", "Glacier-VA")
	q.shows(topiclog.FixityTopic, 0, 0, 0) // nothing is allowed
	q.feed(5)
	q.shows(topiclog.FixityTopic, 5, 0, 0)
	q.feed(100)
	q.shows(topiclog.FixityTopic, 7, 0, 0)
	took := q.check(3)
	q.shows(topiclog.FixityTopic, 4, 3, 0)
	for _, c := range took {
		must.Do(t, fixity.In(registry.New(q.db)).Drop(t.Context(), fixity.Hold{ID: c.ID, Token: c.Token}))
	}
	q.exec(`UPDATE storage_records SET last_fixity_at = now() WHERE id = ANY ($1)`, []int64{took[0].ID, took[1].ID, took[2].ID})
	q.shows(topiclog.FixityTopic, 4, 0, 0)
	q.exec(`UPDATE fixity_policies SET paused_until = now() + interval '1 hour' WHERE target = 'Standard-VA'`) // its provider is out
	q.shows(topiclog.FixityTopic, 0, 0, 0)
	q.exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	q.shows(topiclog.FixityTopic, 7, 0, 0)
	q.exec(`UPDATE fixity_policies SET interval_days = 365 WHERE target = 'Standard-OR'`)
	q.shows(topiclog.FixityTopic, 0, 0, 0)
	if got := q.orders(topiclog.FixityTopic); got != "" {
		t.Errorf("orders = %s, and nobody gave one", got)
	}
}

// Other channels get each file once, although it is published when it is due and
// announced when its check begins.
func TestCheckOfAFileIsPublishedOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	s := subscribe(t, q.nsqd.TCPAddr, topiclog.FixityTopic)
	q.files(5)
	q.feed(3)
	q.shows(topiclog.FixityTopic, 3, 0, 0)
	q.check(3)
	q.shows(topiclog.FixityTopic, 0, 3, 0)
	q.feed(10)
	q.check(1)
	q.shows(topiclog.FixityTopic, 1, 4, 0)
	got := map[string]int{}
	for _, body := range s.take(t, 5) {
		got[body]++
	}
	if len(got) != 5 {
		t.Errorf("published = %v, want each of 5 files once", got)
	}
	if rest := s.end(t, q.nsqd.TCPAddr); len(rest) > 0 {
		t.Errorf("then %v", rest)
	}
}

// A pause of the topic stops the checks, and one of the checks pauses the topic.
func TestFixityChecksFollowTheirTopic(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.files(4)
	q.feed(10)
	q.shows(topiclog.FixityTopic, 4, 0, 0)
	is := func(want string) {
		t.Helper()
		testenv.Eventually(t, want, func() bool {
			f := q.shown(topiclog.FixityTopic)
			return want == q.value(`SELECT concat(paused, ' ', pause_reason) FROM fixity_feed`)+fmt.Sprint(" ", f.PausedInNSQ)
		})
	}
	order := func(path string) {
		t.Helper()
		must.Do(t, at(q.nsqd).post(t.Context(), path, url.Values{"topic": {topiclog.FixityTopic}}))
	}
	order("/topic/pause")
	is("t paused in NSQ true")
	if list := q.check(4); len(list) > 0 {
		t.Errorf("%d copies were claimed", len(list))
	}
	order("/topic/unpause")
	is("f  false")
	if list := q.check(1); len(list) != 1 {
		t.Errorf("%d copies were claimed, want 1", len(list))
	}
	q.exec(`SELECT pause_all('Upgrade')`)
	is("t Upgrade true")
	order("/topic/unpause")
	q.answers(3)
	is("t Upgrade true")
	q.exec(`SELECT resume_stage('Fixity Check')`)
	is("f  false")
	if got := q.value(`SELECT string_agg(application_name || ' ' || (after->>'paused'), ', ' ORDER BY id) FROM stage_settings_audit WHERE stage = 'Fixity Check'`); strings.Count(got, "nsq ") != 2 || strings.Count(got, ",") != 3 {
		t.Errorf("audit = %s", got)
	}
}

// Who empties a topic is answered: nothing was changed by it.
func TestEmptyingIsAnswered(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(20)
	q.files(5)
	q.feed(10)
	q.shows(receiveTopic, 20, 0, 0)
	q.shows(topiclog.FixityTopic, 5, 0, 0)
	for i, topic := range []string{receiveTopic, topiclog.FixityTopic} {
		must.Do(t, at(q.nsqd).post(t.Context(), "/channel/empty", url.Values{"topic": {topic}, "channel": {topic + channelSuffix}}))
		a := q.answers(i + 1)[i]
		if a.Accepted || a.Topic != topic || a.Body != "empty" || !strings.Contains(a.Answer, "nothing was changed in Farol") {
			t.Errorf("answer = %+v", a)
		}
	}
	q.shows(receiveTopic, 20, 0, 0)
	q.shows(topiclog.FixityTopic, 5, 0, 0)
	if got := q.value(`SELECT count(*)::text FROM work_items WHERE status = 'Pending'`); got != "20" {
		t.Errorf("%s items are left", got)
	}
	q.answers(2)
}

// A stage that is added or removed leaves the figures of other topics alone, which
// count from when the mirror connected.
func TestAddedStageResetsNoFigures(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(3)
	q.claim("Receive", 3)
	q.shows(receiveTopic, 0, 3, 0)
	q.end("Receive", 3, done)
	q.shows(receiveTopic, 0, 0, 0)
	before := q.shown(receiveTopic).Finished
	q.exec(`SELECT add_stage('OCR', 'Receive')`)
	q.items(2)
	q.claim("Receive", 2)
	q.end("Receive", 2, `status = 'Pending', stage = 'OCR', attempt = 0, run_at = now()`)
	q.shows("ingest_ocr", 2, 0, 0)
	q.shows(receiveTopic, 0, 0, 0)
	if now := q.shown(receiveTopic).Finished; before != 3 || now != 5 {
		t.Errorf("finished = %d, then %d; want 3 and 5", before, now)
	}
	if got := q.value(`SELECT count(*)::text FROM topic_requests`); got != "0" {
		t.Errorf("%s messages of the mirror's were taken for orders", got)
	}
	q.claim("OCR", 2)
	q.end("OCR", 2, done)
	q.exec(`SELECT remove_stage('OCR')`)
	q.items(1)
	q.shows(receiveTopic, 1, 0, 0)
	q.exec(`SELECT add_stage('OCR', 'Receive')`)
	q.claim("Receive", 1)
	q.end("Receive", 1, `status = 'Pending', stage = 'OCR', attempt = 0, run_at = now()`)
	q.shows("ingest_ocr", 1, 0, 0)
	q.shows(receiveTopic, 0, 0, 0)
	if now := q.shown(receiveTopic).Finished; now != 6 {
		t.Errorf("finished = %d in the end, want 6", now)
	}
}
