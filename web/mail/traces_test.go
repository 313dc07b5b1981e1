package mail

import (
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/span"
)

// A mail about an item names its trace where there are traces, and no other mail does.
func TestMailNamesTheTraceOfItsItem(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.exec(`INSERT INTO institutions (id, name, identifier, receiving_bucket, restore_bucket) OVERRIDING SYSTEM VALUE VALUES (1001, 'Test', 'test.edu', 'receiving', 'restore')`)
	item := value[int64](p, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		VALUES (1001, 'Ingest', 'Receive', 'new.tar', 'receiving', 'etag', 1, now()) RETURNING id`)
	trace := span.TraceOf(item, value[time.Time](p, `SELECT created_at FROM work_items`)).String()
	failed := func() {
		p.exec(`INSERT INTO alerts (type, subject, content, work_item_id) VALUES ('Item Suspended', 'Item failed', 'A file is missing.', $1)`, item)
	}
	failed()
	p.lapse()
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	p.options.Traces = true
	failed()
	p.alert("Repair has stopped", "Nothing is repaired.")
	p.lapse()
	if _, err := p.run(); err != nil {
		t.Fatal(err)
	}
	letters := p.letters()
	if len(letters) != 3 {
		t.Fatalf("%d mails were sent", len(letters))
	}
	for i, want := range []bool{false, true, false} {
		if got := strings.Contains(letters[i].text, "Trace: "+trace); got != want || strings.Contains(letters[i].text, "Trace:") != want {
			t.Errorf("mail %d: %v: %s", i, got, letters[i].text)
		}
	}
}
