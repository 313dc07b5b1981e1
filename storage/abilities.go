package storage

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/storage/wire"
)

// A Way is something that one store does and another does not. Without it, Farol takes
// another way that proves no less.
type Way string

// The ways. Those that are not known yet are taken, and what becomes of that is remembered.
const (
	SHA256       Way = "sha256"             // it checks the SHA-256 of an object as it comes, and keeps it
	PartSHA256   Way = "part-sha256"        // that of a part of an upload
	CopiedSHA256 Way = "copied-part-sha256" // it computes that of a part that it copies itself
	Trailers     Way = "trailing-sha256"    // it takes one that follows the bytes
	ETagMD5      Way = "etag-md5"           // its ETag of an object or part is the MD5
	CompleteETag Way = "complete-etag"      // it names the ETag of an object that it has put together
	ServerCopy   Way = "copy"               // it copies between its buckets by itself
	CopyPart     Way = "copy-part"          // it makes a part of an upload of a range of an object
	CopyIfMatch  Way = "copy-if-match"      // only if the source still has an ETag, that of an upload in parts too
	ReadIfMatch  Way = "read-if-match"      // likewise when it is read
	CreateOnly   Way = "if-none-match"      // it writes an object only if there is none
	Batch        Way = "batch-deletion"     // it deletes many objects by one request
	Metadata     Way = "metadata"           // it keeps the metadata that an object is written with
	LongMetadata Way = "metadata-2k"        // a value of metadata may be longer than 256 bytes
	MediaType    Way = "content-type"       // it keeps the content type that an object is written with
	Archive      Way = "restore-archived"   // it makes archived objects readable
)

// Ways lists all of them, in the order in which people read of them.
func Ways() []Way {
	return []Way{
		SHA256, PartSHA256, CopiedSHA256, Trailers, ETagMD5, CompleteETag, ServerCopy, CopyPart, CopyIfMatch, ReadIfMatch, CreateOnly, Batch, Metadata, LongMetadata, MediaType, Archive,
	}
}

// Instead says what Farol does where a store does not go a way, for people.
func (w Way) Instead() string {
	return map[Way]string{
		SHA256:       "compares ETags with the MD5, and else reads each object back and hashes it",
		PartSHA256:   "compares the ETag of each part with its MD5, and else reads the object back and hashes it",
		CopiedSHA256: "has parts copied without a checksum; compares their ETags, and else reads the object back and hashes it",
		Trailers:     "compares the ETag of each part with its MD5",
		ETagMD5:      "compares checksums, and else reads each object back and hashes it",
		CompleteETag: "asks for the object once more after each upload in parts",
		ServerCopy:   "sends the bytes through the worker",
		CopyPart:     "sends the bytes of files in a bag through the worker",
		CopyIfMatch:  "sends the bytes through the worker where the source was uploaded in parts",
		ReadIfMatch:  "reads without a condition, and compares the ETag of the answer",
		CreateOnly:   "asks whether there is an object before it writes one",
		Batch:        "deletes one by one",
		Metadata:     "keeps names and digests of files in its own database alone",
		LongMetadata: "keeps the first 256 bytes of each value of metadata",
		MediaType:    "keeps the formats of files in its own database alone",
		Archive:      "cannot restore archived copies from it",
	}[w]
}

// Seen is what was seen of a way.
type Seen struct {
	Can  bool      `json:"can"`
	At   time.Time `json:"at"`             // when it was seen
	Said string    `json:"said,omitempty"` // the refusal, in a few words
}

// BucketFacts is what a store says of a bucket.
type BucketFacts struct {
	Versions bool      `json:"versions"`       // it keeps versions, or has kept some
	Lock     string    `json:"lock,omitempty"` // its Object Lock, such as "on" or "GOVERNANCE, 30 days"; "" is none
	At       time.Time `json:"at"`
}

// Abilities are what is known of a store: one service, at one endpoint.
type Abilities struct {
	Endpoint string                 `json:"endpoint"`
	Server   string                 `json:"server"`      // as its answers name it; "": they do not
	Measured time.Time              `json:"measured_at"` // when all was tried; zero: not yet
	Ways     map[Way]Seen           `json:"ways"`
	Buckets  map[string]BucketFacts `json:"buckets"` // by name
}

// believedNo is how long a way is not tried again that a store did not go: a proxy may have
// stood between, and servers are upgraded.
const believedNo = 24 * time.Hour

// A store is what the buckets of an endpoint know in common.
type store struct {
	mu      sync.Mutex
	known   Abilities
	changes int          // how often known has changed
	looking sync.Mutex   // of the first upload in parts, at its object
	bytes   atomic.Int64 // that were read a second time, to hash them
	detours atomic.Int64 // requests that a store with all abilities would not have needed
}

// storeOf returns what is known of an endpoint.
func (c *Client) storeOf(endpoint string) *store {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stores[endpoint]
	if s == nil {
		s = &store{known: Abilities{Endpoint: endpoint, Ways: map[Way]Seen{}, Buckets: map[string]BucketFacts{}}}
		c.stores[endpoint] = s
	}
	return s
}

// Abilities returns what is known of all stores, and a number that grows with each change.
func (c *Client) Abilities() (all []Abilities, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		s.mu.Lock()
		a := s.known
		a.Ways, a.Buckets = maps.Clone(a.Ways), maps.Clone(a.Buckets)
		changes += s.changes
		s.mu.Unlock()
		all = append(all, a)
	}
	return all, changes
}

// Learn takes over what others know of a store, where that is newer.
func (c *Client) Learn(a Abilities) {
	s := c.storeOf(a.Endpoint)
	s.mu.Lock()
	defer s.mu.Unlock()
	for way, seen := range a.Ways {
		if seen.At.After(s.known.Ways[way].At) {
			s.known.Ways[way] = seen
		}
	}
	for name, facts := range a.Buckets {
		if facts.At.After(s.known.Buckets[name].At) {
			s.known.Buckets[name] = facts
		}
	}
	if a.Measured.After(s.known.Measured) {
		s.known.Measured, s.known.Server = a.Measured, a.Server
	}
}

// Detours is what the stores' missing abilities have cost so far: bytes that were read back
// to be hashed, and requests more.
func (c *Client) Detours() (bytes, requests int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		bytes, requests = bytes+s.bytes.Load(), requests+s.detours.Load()
	}
	return bytes, requests
}

// Can tells whether the bucket's store goes a way, as far as is known; known is false
// before that was seen. A [ChecksumMode] that was set decides for it.
func (b *Bucket) Can(w Way) (can, known bool) {
	if m := b.conn.Target.Checksum; !m.Measured() && slices.Contains([]Way{SHA256, PartSHA256, CopiedSHA256, Trailers}, w) {
		return m == ChecksumSHA256, true
	}
	if w == ETagMD5 && b.conn.Target.Checksum == ChecksumETag {
		return true, true
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.known.Ways[w]
	if known && !seen.Can && time.Since(seen.At) > believedNo {
		return true, false
	}
	return seen.Can || !known, known
}

// can is [Bucket.Can] for a caller that takes what is not known for given.
func (b *Bucket) can(w Way) bool {
	can, _ := b.Can(w)
	return can
}

// Lacks tells whether the bucket's store is known not to go a way.
func (b *Bucket) Lacks(w Way) bool { return !b.can(w) }

// learn notes what was seen of a way: why is nil if the store goes it.
func (b *Bucket) learn(w Way, why error) {
	seen := Seen{Can: why == nil, At: time.Now().UTC()}
	if why != nil {
		seen.Said = inShort(why)
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, known := s.known.Ways[w]; known && was.Can == seen.Can && time.Since(was.At) < believedNo/2 {
		return // which most answers say
	}
	s.known.Ways[w] = seen
	s.changes++
}

// learnKept notes whether the answer to something that was sent with a SHA-256 has one.
func (b *Bucket) learnKept(w Way, checksum string) {
	var why error
	if checksum == "" {
		why = errors.New("no checksum in its answers")
	}
	b.learn(w, why)
}

// Described compares how an object is described with how it was written, and learns whether its
// store keeps that. The object must have been written a moment before, and by nobody else.
func (b *Bucket) Described(o Object, up Upload) {
	var changed, lost error
	if o.ContentType != up.ContentType {
		changed = fmt.Errorf("content type %q, written was %q", o.ContentType, up.ContentType)
	}
	b.learn(MediaType, changed)
	if len(up.Metadata) == 0 {
		return // which tells nothing
	}
	if len(o.Metadata) == 0 {
		lost = errors.New("no metadata in its answers")
	}
	b.learn(Metadata, lost)
}

// note keeps the name of the server that answers, if it is the first to give one: a proxy
// may answer now and then.
func (s *store) note(h http.Header) {
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

// noteBucket keeps what the store says of a bucket.
func (s *store) noteBucket(name string, change func(*BucketFacts)) {
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

// inShort is an error in a line.
func inShort(err error) string {
	const most = 200
	text := strings.Join(strings.Fields(Redact(err.Error())), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
