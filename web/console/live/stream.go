package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

// heartbeat is how often a page hears that the server is there.
const heartbeat = 15 * time.Second

// ServeHTTP keeps a page up to date by server-sent events (WHATWG HTML, section 9.2). A page
// that has lost some looks again: events say what is, not what happened.
func (l *Live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, refused := l.openStream(w, r)
	if refused != nil {
		reply.Refuse(w, *refused)
		return
	}
	defer l.close(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass it on at once
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	text := "retry: 5000\n\n"
	for {
		out.SetWriteDeadline(time.Now().Add(2 * heartbeat)) //nolint:errcheck // where there is none to set, none is needed
		if _, err := fmt.Fprint(w, text); err != nil || out.Flush() != nil {
			return
		}
		select {
		case e, open := <-s.events:
			if !open {
				return
			}
			data, err := json.Marshal(e.data)
			if err != nil {
				return
			}
			text = fmt.Sprintf("event: %s\ndata: %s\n\n", e.name, data)
		case <-beat.C:
			text = ": here\n\n"
		case <-r.Context().Done():
			return
		case <-l.api.Stops:
			return
		}
	}
}

// openStream adds a page to those that are kept up to date, or says why not.
func (l *Live) openStream(w http.ResponseWriter, r *http.Request) (*stream, *reply.Problem) {
	c, err := l.api.Web.Caller(r)
	switch {
	case r.Context().Err() != nil: // the page was left
		return nil, ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, "the page was left")
	case err != nil:
		l.log.WarnContext(r.Context(), "cannot find out who asks for a stream; the page tries again", "err", err)
		return nil, ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, "Farol cannot answer now; try again in a moment")
	case !c.Browser() || !c.Full() || !c.Holds(permission.ItemsRead):
		return nil, ops.Problem(http.StatusUnauthorized, ops.CodeNotSignedIn, "sign in")
	case l.table.Limit(w, c) != nil:
		return nil, ops.Problem(http.StatusTooManyRequests, ops.CodeRateLimited, "you ask too often; try again in a moment")
	}
	s := &stream{Watched: watchedOf(r), scope: c.Scope, session: c.Session.ID, events: make(chan event, 2*mostWatched), sent: map[int64]browse.State{}}
	if !l.open(s) {
		return nil, ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, "too many pages are kept up to date; this one is loaded again now and then")
	}
	return s, nil
}

// watchedOf is what a page asks to be kept up to date of.
func watchedOf(r *http.Request) (w Watched) {
	q := r.URL.Query()
	for text := range strings.SplitSeq(q.Get("items"), ",") {
		if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 && len(w.Items) < mostWatched {
			w.Items = append(w.Items, id)
		}
	}
	of := func(name string) int64 {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	w.Open, w.Newest, w.Figures = of("open"), of("newest"), q.Get("figures") != ""
	if w.Open > 0 && len(w.Items) < mostWatched {
		w.Items = append(w.Items, w.Open)
	}
	return w
}

// Shown is how far an item is, as a page shows it.
type Shown struct {
	Files   string   `json:"files"`
	Bytes   string   `json:"bytes"`
	Rate    string   `json:"rate"`
	Left    string   `json:"left"`
	Percent int      `json:"percent"` // -1: not known
	Current []string `json:"current"` // files in progress
}

// ProgressOf has the same words for pages and for events.
func ProgressOf(s explain.Stage) Shown {
	v := Shown{Files: "not known", Bytes: "not known", Rate: "not known", Left: "not known", Percent: -1, Current: []string{}}
	of := func(done, total *int64, word func(int64) string) string {
		switch {
		case done == nil:
			return "not known"
		case total == nil:
			return word(*done)
		}
		return word(*done) + " of " + word(*total)
	}
	v.Files = of(s.FilesDone, s.FilesTotal, words.Number)
	v.Bytes = of(s.BytesDone, s.BytesTotal, func(n int64) string { return words.Bytes(n).Short() })
	if s.BytesPerSecond != nil {
		v.Rate = words.Bytes(int64(*s.BytesPerSecond)).Short() + "/s"
	}
	if s.SecondsLeft != nil {
		v.Left = "about " + words.Rough(time.Duration(*s.SecondsLeft*float64(time.Second)))
	}
	if share, known := s.Share(); known {
		v.Percent = int(share * 100)
	}
	for _, f := range s.Files {
		v.Current = append(v.Current, words.Cut(f.Path).Short())
	}
	return v
}
