package frame

import (
	"net/http"
	"sync"
	"time"

	"github.com/farol-preservation/farol/web/access"
)

// How long the first page of staff is kept for the time that the database is away, and of how
// many sessions.
const (
	seenTime = 15 * time.Minute
	mostSeen = 100
)

// nowPath is where staff sees how things stand.
const nowPath = "/"

// seen is the first page of the staff who looked last. While the database does not answer,
// nobody's session can be looked up; those who were signed in a moment ago see what they saw
// then. The zero value is ready for use.
type seen struct {
	mu    sync.Mutex
	pages map[string]seenPage // by the key of the session
}

type seenPage struct {
	caller access.Caller
	page   aging
	at     time.Time
}

// aging is what a page shows, as it can be shown when it is no longer as things stand.
type aging interface{ Aged() any }

// Keep keeps what the first page of staff shows, for the time that the database is away.
func (v *Visit) Keep(d aging) { v.Frame.seen.keep(v.Frame.Web.SessionKey(v.Request), v.Caller, d) }

// keep keeps the page of a session.
func (s *seen) keep(session string, c access.Caller, d aging) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := session
	for key, one := range s.pages {
		if time.Since(one.at) > seenTime {
			delete(s.pages, key)
		} else if o, found := s.pages[oldest]; !found || one.at.Before(o.at) {
			oldest = key
		}
	}
	if s.pages == nil {
		s.pages = map[string]seenPage{}
	}
	if _, known := s.pages[session]; !known && len(s.pages) >= mostSeen {
		delete(s.pages, oldest)
	}
	s.pages[session] = seenPage{c, d, time.Now()}
}

// of returns the page of a session, if it was kept a moment ago.
func (s *seen) of(session string) (seenPage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.pages[session]
	return one, found && session != "" && time.Since(one.at) <= seenTime
}

// lastNow answers with the first page of staff as it was last, if that is what is asked for
// while the database does not answer.
func (p *Frame) lastNow(v *Visit) bool {
	if v.Method != http.MethodGet && v.Method != http.MethodHead || v.URL.Path != nowPath {
		return false
	}
	last, found := p.seen.of(p.Web.SessionKey(v.Request))
	if !found {
		return false
	}
	v.Caller, v.Title = last.caller, "Now, as it was"
	v.Writer.Header().Set("Retry-After", "5")
	p.Show(v, http.StatusServiceUnavailable, "now.html", last.page.Aged())
	return true
}
