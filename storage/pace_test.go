package storage_test

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// spells notes what a client tells of the spells of its stores.
type spells struct {
	mu   sync.Mutex
	told []storage.Spell
}

func (s *spells) tell(one storage.Spell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, one)
}

func (s *spells) all() []storage.Spell {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]storage.Spell(nil), s.told...)
}

// A store that takes so many requests a second refuses the others while it splits a partition. All get
// through, and what it refuses becomes little: the process sends about as many as it takes.
func TestRequestsSlowDownToWhatAStoreTakes(t *testing.T) {
	t.Parallel()
	at := target(t, "pace")
	put(t, create(t, at), "key", noise(10))
	const takes, workers, each = 30, 60, 4
	var mu sync.Mutex
	var taken []time.Time
	var refused int
	g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		for len(taken) > 0 && now.Sub(taken[0]) > time.Second {
			taken = taken[1:]
		}
		if len(taken) >= takes {
			refused++
			answer(w, http.StatusServiceUnavailable, "SlowDown")
			return true
		}
		taken = append(taken, now)
		return false
	})
	var said spells
	b := open(t, g.through(at), storage.Options{Patience: time.Minute, Slow: said.tell})
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for range each {
				r, err := b.Get(t.Context(), "key", storage.Range{Length: -1})
				if err != nil {
					return err
				}
				_ = r.Close() // it was answered, which is all
			}
			return nil
		})
	}
	must.Do(t, group.Wait())
	t.Logf("%d of %d requests were refused", refused, refused+workers*each)
	if refused > workers*each/3 {
		t.Errorf("%d requests were refused to have %d taken", refused, workers*each)
	}
	if told := said.all(); len(told) != 1 || told[0].Service != b.Service() || told[0].Began.IsZero() {
		t.Errorf("the spells are %+v", told)
	}
}

// While a store refuses everything for a moment, nothing fails that can be sent again: not even a body
// that can be read only once, as long as none of it has left.
func TestNothingFailsWhileAStoreAsksForPatience(t *testing.T) {
	t.Parallel()
	at := target(t, "pace")
	put(t, create(t, at), "key", noise(10))
	const refuses = 4 // which is more than other failures are tried again
	puts := func(size int) func(*storage.Bucket) error {
		content := noise(size)
		return func(b *storage.Bucket) error {
			_, err := b.Put(t.Context(), "stream", onlyReader{bytes.NewReader(content)}, describe(content))
			return err
		}
	}
	for name, do := range map[string]func(*storage.Bucket) error{
		"List": func(b *storage.Bucket) (err error) {
			for _, err = range b.List(t.Context(), "", "") {
				if err != nil {
					break
				}
			}
			return err
		},
		"Head":         func(b *storage.Bucket) error { return b.HeadAlone(t.Context(), "key") },
		"a large body": puts(3 << 20),
		"a small body": puts(100 << 10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				switch n := asked.Add(1); {
				case n > refuses:
					return false
				case r.Method == http.MethodHead: // which has no words but those of the status
					raw("HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")(w, r)
				case n%2 == 0:
					answer(w, http.StatusTooManyRequests, "TooManyRequests")
				default:
					answer(w, http.StatusServiceUnavailable, "SlowDown")
				}
				return true
			})
			client := storage.NewClient(storage.Options{Patience: time.Minute})
			t.Cleanup(client.Close)
			b := must.Get(client.Bucket(g.through(at)))(t)
			if name == "a small body" { // in a spell, the store is asked first whether it wants a body
				must.Do(t, b.HeadAlone(t.Context(), "key"))
				asked.Store(0)
			}
			if err := do(b); err != nil || asked.Load() <= refuses {
				t.Errorf("after %d requests: %v", asked.Load(), err)
			}
			if n := client.Slowdowns()[b.Service()]; n%refuses != 0 || n == 0 {
				t.Errorf("%d answers were counted", n)
			}
		})
	}
}

// People hear of a spell once, and that it is over when the store has taken all requests for a while.
func TestASpellIsToldWhenItBeginsAndWhenItIsOver(t *testing.T) {
	t.Parallel()
	at := target(t, "pace")
	put(t, create(t, at), "key", noise(10))
	var asked atomic.Int32
	g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 2 {
			return false
		}
		answer(w, http.StatusServiceUnavailable, "SlowDown")
		return true
	})
	var said spells
	b := open(t, g.through(at), storage.Options{Patience: 3 * time.Second, Slow: said.tell})
	testenv.Eventually(t, "the spell to end", func() bool {
		get(t, b, "key")
		told := said.all()
		return !told[len(told)-1].Ended.IsZero()
	})
	if told := said.all(); len(told) != 2 || told[0].Said != "SlowDown" || told[0].Service != b.Service() || told[1].Answers != 2 {
		t.Errorf("the spells are %+v", told)
	}
}

// A bucket is noted for the work that it answered, also that it has no such key; and not where it did
// not answer.
func TestAnswersOfBucketsAreNoted(t *testing.T) {
	t.Parallel()
	at := target(t, "answers")
	put(t, create(t, at), "key", noise(10))
	var away atomic.Bool
	g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			answer(w, http.StatusInternalServerError, "InternalError")
		}
		return away.Load()
	})
	b := open(t, g.through(at), storage.Options{})
	for name, ask := range map[string]func(ctx context.Context) error{
		"a head":    func(ctx context.Context) error { _, err := b.Head(ctx, "key"); return err },
		"no key":    func(ctx context.Context) error { _, err := b.Get(ctx, "none", storage.Range{Length: -1}); return err },
		"a listing": func(ctx context.Context) error { _, err := b.KeepsVersions(ctx); return err },
	} {
		for _, gone := range []bool{false, true} {
			var noted fault.Answers
			away.Store(gone)
			err := ask(fault.WithAnswers(t.Context(), &noted))
			if noted.Has(b.Service()) == gone {
				t.Errorf("%s, the bucket is away: %t: noted %t, %v", name, gone, noted.Has(b.Service()), err)
			}
		}
	}
}
