package console_test

import (
	"regexp"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// Depositors read how long their items take, as far as bags like them have ended; staff reads
// when a cell of the queue is empty.
func TestTimeLeftIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	testenv.Scene(t, s.db, `INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier, created_at, updated_at)
		SELECT 1, 'Ingest', 'Cleanup', 'Success', false, 'ended' || n || '.tar', 'b', 'e', n, now(), 'test.edu/ended' || n, now() - interval '2 hours', now() - interval '1 hour'
		FROM generate_series(1, 30) n;
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, ended_at, outcome)
		SELECT w.id, s.ordinal, s.stage, 1, 'n', 1, 'w', w.created_at + s.ordinal * interval '1 minute', w.created_at + (s.ordinal + 1) * interval '1 minute', 'done'
		FROM work_items w JOIN stage_settings s ON s.action = 'Ingest'`)
	s.worker("w1")
	s.exec(`UPDATE worker_processes SET pools = '[{"name": "all", "slots": 1, "max_size": 1073741824}]'`)
	s.item("small.tar", "")
	s.exec(`INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id) VALUES ('Ingest', 'Receive', 'large.tar', 'e', 'in', now(), 1::bigint << 40, $1)`, s.test.ID)
	page := s.in(registry.RoleInstitutionalUser, "test.edu").sees("/", "The time left holds in 8 of 10 cases", "small.tar", "large.tar")
	for _, want := range []string{`small\.tar Stage 1 of 9: Receive \d+ (min )?to \d+ min 2\.0 KiB`, `large\.tar Stage 1 of 9: Receive not known : \w`} {
		if !regexp.MustCompile(want).MatchString(wordsIn(page.text)) {
			t.Errorf("%s is not in %s", want, wordsIn(page.text))
		}
	}
	queue := wordsIn(s.in(registry.RoleOperator, "").sees("/queue", "Where no time is given, it is not known: ").text)
	if !regexp.MustCompile(`Receive 1 live empty in \d+ (s|min|to)`).MatchString(queue) {
		t.Error(queue)
	}
}
