// Package ability keeps what S3 stores were seen to do.
//
// What comes in is what an answer shows: that its store goes a [Way], or refuses it, and what a bucket
// has. What goes out is whether a way is open, and what processes share of it as [Known]. Nothing is
// assumed of a store by its name.
package ability

import (
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/storage/wire"
)

// Seen is what was seen of a way.
type Seen struct {
	Can  bool      `json:"can"`
	At   time.Time `json:"at"`             // when it was seen
	Said string    `json:"said,omitempty"` // the refusal, in a few words
}

// Facts are what a store says of a bucket.
type Facts struct {
	Versions bool      `json:"versions"`       // it keeps versions, or has kept some
	Lock     string    `json:"lock,omitempty"` // its Object Lock, such as "on" or "GOVERNANCE, 30 days"; "" is none
	At       time.Time `json:"at"`
}

// Known is what is known of a store: one service, at one endpoint.
type Known struct {
	Endpoint string           `json:"endpoint"`
	Server   string           `json:"server"`      // as its answers name it; "": they do not
	Measured time.Time        `json:"measured_at"` // when all was tried; zero: not yet
	Ways     map[Way]Seen     `json:"ways"`
	Buckets  map[string]Facts `json:"buckets"` // by name
}

// believedNo is how long a way is not tried again that a store did not go: a proxy may have
// stood between, and servers are upgraded.
const believedNo = 24 * time.Hour

// A Store is what the buckets of an endpoint know in common.
type Store struct {
	Looking sync.Mutex // of the first upload in parts, at its object

	mu      sync.Mutex
	known   Known
	changes int          // how often known has changed
	bytes   atomic.Int64 // that were read a second time, to hash them
	detours atomic.Int64 // requests that a store with all abilities would not have needed
}

// Can tells whether the store goes a way, as far as is known; known is false before that was seen.
func (s *Store) Can(w Way) (can, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.known.Ways[w]
	if known && !seen.Can && time.Since(seen.At) > believedNo {
		return true, false
	}
	return seen.Can || !known, known
}

// Learn notes what was seen of a way; refusal is in a few words why the store does not go it.
func (s *Store) Learn(w Way, can bool, refusal string) {
	seen := Seen{Can: can, At: time.Now().UTC(), Said: refusal}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, known := s.known.Ways[w]; known && was.Can == seen.Can && time.Since(was.At) < believedNo/2 {
		return // which most answers say
	}
	s.known.Ways[w] = seen
	s.changes++
}

// Heard keeps the name of the server that answers, if it is the first to give one: a proxy
// may answer now and then.
func (s *Store) Heard(h http.Header) {
	name := h.Get("Server")
	if name == "" || len(name) > 100 || !wire.Plain(name) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.Server == "" {
		s.known.Server = name
		s.changes++
	}
}

// Bucket is what is known of a bucket.
func (s *Store) Bucket(name string) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Buckets[name]
}

// Note keeps what the store says of a bucket.
func (s *Store) Note(name string, change func(*Facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.known.Buckets[name]
	now := was
	change(&now)
	if now == was && time.Since(was.At) < believedNo/2 {
		return
	}
	now.At = time.Now().UTC()
	s.known.Buckets[name] = now
	s.changes++
}

// Detour counts a request that a store with all abilities would not have needed.
func (s *Store) Detour() { s.detours.Add(1) }

// ReadBack counts such a request, with the bytes that were read to be hashed.
func (s *Store) ReadBack(bytes int64) {
	s.bytes.Add(bytes)
	s.Detour()
}

// Stores are all that a process speaks to.
type Stores struct {
	mu     sync.Mutex
	stores map[string]*Store // by endpoint
}

// At returns the store of an endpoint.
func (all *Stores) At(endpoint string) *Store {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.stores == nil {
		all.stores = map[string]*Store{}
	}
	s := all.stores[endpoint]
	if s == nil {
		s = &Store{known: Known{Endpoint: endpoint, Ways: map[Way]Seen{}, Buckets: map[string]Facts{}}}
		all.stores[endpoint] = s
	}
	return s
}

// Abilities returns what is known of all stores, and a number that grows with each change.
func (all *Stores) Abilities() (list []Known, changes int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.stores {
		s.mu.Lock()
		k := s.known
		k.Ways, k.Buckets = maps.Clone(k.Ways), maps.Clone(k.Buckets)
		changes += s.changes
		s.mu.Unlock()
		list = append(list, k)
	}
	return list, changes
}

// Learn takes over what others know of a store, where that is newer.
func (all *Stores) Learn(k Known) {
	s := all.At(k.Endpoint)
	s.mu.Lock()
	defer s.mu.Unlock()
	for way, seen := range k.Ways {
		if seen.At.After(s.known.Ways[way].At) {
			s.known.Ways[way] = seen
		}
	}
	for name, facts := range k.Buckets {
		if facts.At.After(s.known.Buckets[name].At) {
			s.known.Buckets[name] = facts
		}
	}
	if k.Measured.After(s.known.Measured) {
		s.known.Measured, s.known.Server = k.Measured, k.Server
	}
}

// Detours is what the stores' missing abilities have cost so far: bytes that were read back
// to be hashed, and requests more.
func (all *Stores) Detours() (bytes, requests int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.stores {
		bytes, requests = bytes+s.bytes.Load(), requests+s.detours.Load()
	}
	return bytes, requests
}
