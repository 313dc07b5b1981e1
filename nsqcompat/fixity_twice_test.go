package nsqcompat

import (
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// An id that is published again on the topic of fixity checks, when its file was just
// checked, is answered, and nothing is checked.
func TestFileJustCheckedIsAnsweredAndNotChecked(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.files(1)
	q.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT id, 'sha256', repeat('a', 64), now() FROM generic_files`)
	file := q.value(`SELECT id::text FROM generic_files`)
	for n, want := range []string{"in 1 targets will be checked next", "were recently checked, and are good"} {
		q.pub(topiclog.FixityTopic, file)
		if a := q.answers(n + 1)[n]; !a.Accepted || !strings.Contains(a.Answer, want) {
			t.Errorf("answer %d is %+v, want %q", n, a, want)
		}
		for _, c := range q.check(5) {
			if n > 0 {
				t.Errorf("%s is checked again", c.Identifier)
			}
			must.Get(fixity.In(registry.New(q.db)).Record(t.Context(), fixity.Result{
				Hold: fixity.Hold{ID: c.ID, Token: c.Token}, Key: c.Key, Algorithm: "sha256", Expected: c.SHA256, Found: c.SHA256,
			}))(t)
		}
		q.shows(topiclog.FixityTopic, 0, 0, 0)
	}
}
