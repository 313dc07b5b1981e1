package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// listener reads the stream of a page.
type listener struct {
	t      *testing.T
	status int
	events chan [2]string // name and data; closed at the end of the stream
	heard  [][2]string
	stop   context.CancelFunc
}

// listens opens the stream of a page.
func (b *browser) listens(query string) *listener {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, b.s.url+"/events-stream?"+query, nil))(b.t)
	client := *b.client
	client.Timeout = 0
	a, err := client.Do(r) //nolint:bodyclose // it is closed at the end of the stream
	if err != nil {
		b.t.Fatal(err)
	}
	l := &listener{t: b.t, status: a.StatusCode, events: make(chan [2]string, 1000), stop: stop}
	go func() {
		defer close(l.events)
		defer a.Body.Close() //nolint:errcheck // it was read
		name := ""
		for lines := bufio.NewScanner(a.Body); lines.Scan(); {
			text := lines.Text()
			if after, ok := strings.CutPrefix(text, "event: "); ok {
				name = after
			}
			if after, ok := strings.CutPrefix(text, "data: "); ok {
				l.events <- [2]string{name, after}
			}
		}
	}()
	b.t.Cleanup(stop)
	return l
}

// hears waits for an event of a name for which the check holds.
func (l *listener) hears(name string, check func(map[string]any) bool) {
	l.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, open := <-l.events:
			if !open {
				l.t.Fatalf("the stream ended before %s", name)
			}
			l.heard = append(l.heard, e)
			var data map[string]any
			if err := json.Unmarshal([]byte(e[1]), &data); err != nil {
				l.t.Fatalf("%v: %v", e, err)
			}
			if e[0] == name && check(data) {
				return
			}
		case <-late:
			l.t.Fatalf("no event %s", name)
		}
	}
}

// ends waits for the end of the stream.
func (l *listener) ends() {
	l.t.Helper()
	late := time.After(25 * time.Second)
	for {
		select {
		case _, open := <-l.events:
			if !open {
				return
			}
		case <-late:
			l.t.Fatal("the stream goes on")
		}
	}
}

func of(id int64, status registry.Status) func(map[string]any) bool {
	return func(e map[string]any) bool { return e["id"] == float64(id) && e["status"] == string(status) }
}

// A page hears what becomes of its items, of new ones, and of nothing that is another
// institution's.
func TestPagesAreKeptUpToDate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	mine := s.item("mine.tar", "")
	s.exec(`INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id, object_identifier)
		VALUES ('Ingest', 'Receive', 'theirs.tar', 'x', 'in', now(), 1, $1, 'other.edu/theirs')`, s.other.ID)
	theirs := ask[int64](s, `SELECT max(id) FROM work_items`)
	member, staff := s.in(registry.RoleInstitutionalUser, "test.edu"), s.in(registry.RoleAdmin, "")
	of2 := fmt.Sprintf("items=%d,%d&newest=%d", mine, theirs, theirs)
	a, b := member.listens(of2), staff.listens(of2)
	a.hears("item", of(mine, registry.Pending))
	b.hears("item", of(theirs, registry.Pending))
	s.exec(`UPDATE work_items SET priority = 5, status = 'Suspended' WHERE id IN ($1, $2)`, mine, theirs)
	s.exec(`INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id, object_identifier)
		VALUES ('Ingest', 'Receive', 'theirs-2.tar', 'x', 'in', now(), 1, $1, 'other.edu/theirs-2')`, s.other.ID)
	b.hears("item", of(theirs, registry.Suspended))
	b.hears("new", func(e map[string]any) bool { return e["count"] == 1.0 })
	s.item("newer.tar", "")
	b.hears("new", func(e map[string]any) bool { return e["count"] == 2.0 })
	s.exec(`UPDATE work_items SET status = 'Pending' WHERE id = $1`, mine)
	a.hears("item", of(mine, registry.Pending))
	added := 0
	for _, e := range a.heard {
		if strings.Contains(e[1], fmt.Sprintf(`"id":%d`, theirs)) {
			t.Errorf("a page hears of another institution's item: %s", e[1])
		}
		if e[0] == "new" {
			added++
		}
	}
	if added != 1 {
		t.Errorf("a page hears %d times of new items, and there is one: %v", added, a.heard)
	}
}

// Many pages ask the database no more than one, and are limited.
func TestManyPagesAskOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("one.tar", "")
	const people = 40
	var all sync.WaitGroup
	pages := make([]*listener, 3*people)
	for n := range people {
		b := s.in(registry.RoleInstitutionalUser, "test.edu")
		all.Go(func() {
			for k := range 3 {
				pages[3*n+k] = b.listens(fmt.Sprintf("items=%d", id))
			}
			if fourth := b.listens("items=1"); fourth.status != http.StatusServiceUnavailable {
				t.Errorf("a fourth page of a session: %d", fourth.status)
			}
		})
	}
	all.Wait()
	for _, p := range pages {
		p.hears("item", of(id, registry.Pending))
	}
	const looks = "claim_token, updated_at FROM work_items"
	before, began := s.asked.with(looks), time.Now()
	s.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, id)
	for _, p := range pages {
		p.hears("item", of(id, registry.Suspended))
	}
	if n, most := s.asked.with(looks)-before, int(time.Since(began)/time.Second)+2; n > most {
		t.Errorf("%d pages asked %d times, want %d at most", len(pages), n, most)
	}
}

// A stream ends with the session.
func TestAStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("one.tar", "")
	b := s.in(registry.RoleInstitutionalUser, "test.edu")
	l := b.listens(fmt.Sprintf("items=%d", id))
	l.hears("item", of(id, registry.Pending))
	other := s.in(registry.RoleInstitutionalUser, "other.edu").listens(fmt.Sprintf("items=%d", id))
	s.exec(`UPDATE users SET deactivated_at = now() WHERE id = $1`, b.person.ID)
	s.exec(`UPDATE institutions SET state = 'D' WHERE id = $1`, s.other.ID)
	l.ends()
	other.ends()
	if again := b.listens("items=1"); again.status != http.StatusUnauthorized {
		t.Errorf("a deactivated person gets a stream: %d", again.status)
	}
}
