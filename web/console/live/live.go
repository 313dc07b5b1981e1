// Package live keeps pages up to date that are open. In comes what a page shows: items, or the
// queue; out go events (server-sent) when that has changed.
package live

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// How many pages are kept up to date at most. The others are loaded again now and then.
const (
	mostWatched   = 200    // items of one page
	mostStreams   = 500    // pages of a process
	mostOfSession = 3      // pages of a session
	mostItems     = 25_000 // items of all pages: one of fifty rows for each stream
	mostNews      = 100    // new items that are counted
)

const (
	tick         = time.Second
	lookTime     = 3 * time.Second  // for one look at what is watched
	figuresTime  = 5 * time.Second  // between two looks at the queue
	sessionsTime = 15 * time.Second // between two looks at the sessions
)

// Watched is what a page is kept up to date of.
type Watched struct {
	Items   []int64
	Open    int64 // the item whose progress is shown
	Newest  int64 // the newest item of a list that has all items; 0: it has not
	Figures bool  // of the queue
}

// Address is that of the stream for a page; "": it is not kept up to date.
func (w Watched) Address() string {
	var parts []string
	if len(w.Items) > 0 {
		var ids []string
		for _, id := range w.Items[:min(len(w.Items), mostWatched)] {
			ids = append(ids, strconv.FormatInt(id, 10))
		}
		parts = append(parts, "items="+strings.Join(ids, ","))
	}
	for name, n := range map[string]int64{"open": w.Open, "newest": w.Newest} {
		if n > 0 {
			parts = append(parts, name+"="+strconv.FormatInt(n, 10))
		}
	}
	if w.Figures {
		parts = append(parts, "figures=1")
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return "/events-stream?" + strings.Join(parts, "&")
}

// stream is a page that is kept up to date.
type stream struct {
	Watched

	scope registry.Scope

	session int64
	events  chan event
	sent    map[int64]browse.State // what the page knows of items
	told    int                    // how many new items
}

// event is a message to a page.
type event struct {
	name string
	data any
}

// Live keeps pages up to date. While there are any, one goroutine looks once a second at all
// items that they show: many pages cost the database no more than one.
type Live struct {
	api   *api.API
	table *ops.API
	log   *slog.Logger

	mu      sync.Mutex
	streams map[*stream]bool
	running bool
}

// New keeps the pages of a server up to date.
func New(a *api.API, t *ops.API) *Live {
	return &Live{api: a, table: t, log: a.Log, streams: map[*stream]bool{}}
}

// open adds a page; false: there are too many.
func (l *Live) open(s *stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	same, items := 0, len(s.Items)
	for other := range l.streams {
		items += len(other.Items)
		if other.session == s.session {
			same++
		}
	}
	if len(l.streams) >= mostStreams || same >= mostOfSession || items > mostItems {
		return false
	}
	l.streams[s] = true
	if !l.running {
		l.running = true
		go l.run()
	}
	return true
}

func (l *Live) close(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(s)
}

func (l *Live) remove(s *stream) {
	if l.streams[s] {
		delete(l.streams, s)
		close(s.events)
	}
}

// run looks until no page is left. It needs no context: nothing is lost when the process
// ends, and each look has a bound.
func (l *Live) run() {
	beat := time.NewTicker(tick)
	defer beat.Stop()
	var figures, sessions time.Time
	var queue string
	for at := range beat.C {
		l.mu.Lock()
		streams := slices.Collect(maps.Keys(l.streams))
		if len(streams) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		l.items(ctx, streams)
		l.progress(ctx, streams)
		if at.Sub(figures) >= figuresTime && slices.ContainsFunc(streams, func(s *stream) bool { return s.Figures }) {
			figures, queue = at, l.figures(ctx, streams, queue)
		}
		if at.Sub(sessions) >= sessionsTime {
			sessions = at
			l.sessions(ctx, streams)
		}
		cancel()
	}
}

// send gives a page an event. A page that does not read is closed: it opens another stream,
// and looks again.
func (l *Live) send(s *stream, e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.streams[s] {
		return
	}
	select {
	case s.events <- e:
	default:
		l.remove(s)
	}
}

// items sends the pages what has changed of their items, and how many are new.
func (l *Live) items(ctx context.Context, streams []*stream) {
	var ids []int64
	newest := int64(0)
	for _, s := range streams {
		ids = append(ids, s.Items...)
		if s.Newest > 0 && (newest == 0 || s.Newest < newest) {
			newest = s.Newest
		}
	}
	slices.Sort(ids)
	states, err := browse.TakeStates(ctx, l.api.Registry, slices.Compact(ids), newest, mostNews)
	if err != nil {
		l.log.DebugContext(ctx, "pages are not kept up to date for now; trying again", "err", err)
		return
	}
	for _, s := range streams {
		for _, id := range s.Items {
			now, found := states.Items[id]
			before, known := s.sent[id]
			switch {
			case found && s.scope.Has(now.InstitutionID) && (!known || before != now):
				s.sent[id] = now
				l.send(s, event{"item", now})
			case !found && known: // it has gone to the archive
				delete(s.sent, id)
				l.send(s, event{"item", map[string]any{"id": id, "ended": true}})
			}
		}
		if s.Newest > 0 {
			l.news(s, states.New)
		}
	}
}

// news sends a page how many items are newer than its newest.
func (l *Live) news(s *stream, added []browse.State) {
	n := 0
	for _, one := range added {
		if one.ID > s.Newest && s.scope.Has(one.InstitutionID) {
			n++
		}
	}
	if n != s.told {
		s.told = n
		l.send(s, event{"new", map[string]any{"count": n, "more": n >= mostNews}})
	}
}

// progress sends the pages of items in progress how far these are.
func (l *Live) progress(ctx context.Context, streams []*stream) {
	var ids []int64
	for _, s := range streams {
		if s.Open > 0 && s.sent[s.Open].Status == registry.Started {
			ids = append(ids, s.Open)
		}
	}
	if len(ids) == 0 || l.api.Interim.Progress == nil {
		return
	}
	store, err := l.api.Interim.Progress(ctx)
	var found []record.WorkItem
	if err == nil {
		slices.Sort(ids)
		found, err = browse.In(l.api.Registry, registry.Everything()).ItemsOf(ctx, slices.Compact(ids))
	}
	if err != nil {
		l.log.DebugContext(ctx, "the progress of items is not known for now; trying again", "err", err)
		return
	}
	source := explain.Source{Progress: store, Measures: l.api.Interim.Measures}
	for _, item := range found {
		stage, err := source.Stage(ctx, item)
		if err != nil {
			return
		}
		for _, s := range streams {
			if s.Open == item.ID && s.scope.Has(item.InstitutionID) {
				l.send(s, event{"progress", ProgressOf(stage)})
			}
		}
	}
}

// figures has the pages that show the queue look again, if it has changed.
func (l *Live) figures(ctx context.Context, streams []*stream, before string) string {
	now, err := l.api.QueueChanged(ctx)
	if err != nil || now == before {
		return before
	}
	for _, s := range streams {
		if s.Figures {
			l.send(s, event{"figures", map[string]any{}})
		}
	}
	return now
}

// sessions closes the streams of sessions that have ended.
func (l *Live) sessions(ctx context.Context, streams []*stream) {
	var ids []int64
	for _, s := range streams {
		ids = append(ids, s.session)
	}
	slices.Sort(ids)
	held, err := people.In(l.api.Registry).Holding(ctx, slices.Compact(ids))
	if err != nil {
		l.log.DebugContext(ctx, "the sessions of pages cannot be looked up for now; trying again", "err", err)
		return
	}
	for _, s := range streams {
		if !slices.Contains(held, s.session) {
			l.close(s)
		}
	}
}

// StateOf is how an item stands, as the stream says it: the page is fetched again when it has
// changed.
func StateOf(i record.WorkItem) string {
	return fmt.Sprintf("%s/%s/%d", i.Stage, i.Status, i.ClaimToken)
}
