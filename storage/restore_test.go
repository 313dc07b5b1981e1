package storage_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// What an archived object goes through until it can be read.
func TestRestoreBringsAnObjectBack(t *testing.T) {
	t.Parallel()
	at := target(t, "restore")
	warm := create(t, at)
	put(t, warm, "warm", noise(10))
	at.StorageClass = "GLACIER"
	b := open(t, at, storage.Options{})
	put(t, b, "cold", noise(10))
	restore := func(key string, days int) storage.RetrievalState {
		t.Helper()
		return must.Get(b.Restore(t.Context(), key, storage.Retrieval{Days: days, Tier: "Bulk"}))(t)
	}
	if o := head(t, b, "cold"); o.Readable(time.Now()) || o.Restoration != (storage.Restoration{}) {
		t.Errorf("before it is asked for: %+v", o.Restoration)
	}
	began := time.Now()
	early := func() bool { return time.Since(began) < testenv.RestoreDelay } // else this machine is too slow to see it
	if got := restore("cold", 2); got != storage.RetrievalStarted {
		t.Errorf("Restore = %s, want it started", got)
	}
	if o := head(t, b, "cold"); early() && (o.Readable(time.Now()) || !o.Restoration.Ongoing) {
		t.Errorf("when it was asked for: %+v", o.Restoration)
	}
	if got := restore("cold", 2); early() && got != storage.RetrievalOngoing {
		t.Errorf("Restore while it is under way = %s", got)
	}
	testenv.Eventually(t, "the copy to become readable", func() bool { return head(t, b, "cold").Readable(time.Now()) })
	get(t, b, "cold")
	first := head(t, b, "cold").Restoration.Expires
	if days := time.Until(first).Hours() / 24; days < 1.9 || days > 2.1 {
		t.Errorf("it can be read until %s", first)
	}
	if got := restore("cold", 5); got != storage.RetrievalDone {
		t.Errorf("Restore of what is restored = %s", got)
	}
	if later := head(t, b, "cold").Restoration.Expires; later.Sub(first) < 70*time.Hour {
		t.Errorf("it can be read until %s, and before that until %s", later, first)
	}
	if got := restore("warm", 1); got != storage.RetrievalDone {
		t.Errorf("Restore of what is not archived = %s", got)
	}
}

// Tries are for what may change in a moment.
func TestRestoreTellsWhyItCannotBe(t *testing.T) {
	t.Parallel()
	at := target(t, "restore")
	put(t, create(t, at), "key", noise(10))
	for name, tt := range map[string]struct {
		status int
		code   string
		state  storage.RetrievalState
		want   error // nil with no state: transient
		tries  int
	}{
		"under way":      {409, "RestoreAlreadyInProgress", storage.RetrievalOngoing, nil, 1},
		"not archived":   {403, "InvalidObjectState", storage.RetrievalDone, nil, 1},
		"active tier":    {403, "ObjectAlreadyInActiveTierError", storage.RetrievalDone, nil, 1},
		"no capacity":    {503, "GlacierExpeditedRetrievalNotAvailable", storage.RetrievalBusy, nil, 1},
		"denied":         {403, "AccessDenied", "", storage.ErrDenied, 1},
		"no such key":    {404, "NoSuchKey", "", storage.ErrNotFound, 1},
		"no such bucket": {404, "NoSuchBucket", "", storage.ErrDenied, 1},
		"busy":           {503, "SlowDown", "", nil, 3},
		"its own error":  {500, "InternalError", "", nil, 3},
		"wrong question": {400, "MalformedXML", "", nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), "<Days>7</Days>") || !strings.Contains(string(body), "<Tier>Expedited</Tier>") {
					t.Errorf("it was asked for %s", body)
				}
				answer(w, tt.status, tt.code)
				return true
			})
			state, err := open(t, g.through(at), storage.Options{}).Restore(t.Context(), "key", storage.Retrieval{Days: 7, Tier: "Expedited"})
			switch {
			case state != tt.state, (err == nil) != (tt.state != ""):
				t.Errorf("Restore = %q, %v, want %q", state, err, tt.state)
			case tt.want != nil && !errors.Is(err, tt.want), tt.want == nil && isFinal(err):
				t.Errorf("Restore = %v, want %v", err, tt.want)
			}
			if n := g.count(func(*http.Request) bool { return true }); n != tt.tries {
				t.Errorf("%d requests, want %d", n, tt.tries)
			}
		})
	}
	b := open(t, at, storage.Options{})
	if _, err := b.Restore(t.Context(), "nothing", storage.Retrieval{Days: 1}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Restore of nothing = %v, want ErrNotFound", err)
	}
}

// Whether a store restores anything is learnt by asking.
func TestRestoreTellsWhetherTheStoreHasAnArchive(t *testing.T) {
	t.Parallel()
	at := target(t, "restore")
	put(t, create(t, at), "key", noise(10))
	for _, tt := range []struct {
		status     int
		code       string
		can, known bool
	}{{202, "", true, true}, {501, "NotImplemented", false, true}, {409, "RestoreAlreadyInProgress", true, false}, {503, "SlowDown", true, false}} {
		g := newGate(t, at, func(w http.ResponseWriter, _ *http.Request) bool {
			if tt.code == "" {
				w.WriteHeader(tt.status)
				return true
			}
			answer(w, tt.status, tt.code)
			return true
		})
		b := open(t, g.through(at), storage.Options{})
		_, _ = b.Restore(t.Context(), "key", storage.Retrieval{Days: 1})
		if can, known := b.Can(ability.Archive); can != tt.can || known != tt.known {
			t.Errorf("after %d %s Can = %t, %t, want %t, %t", tt.status, tt.code, can, known, tt.can, tt.known)
		}
	}
}

// Whatever a server says of a restoration, an object is not taken for readable that
// is not said to be.
func TestHeadTellsHowARestorationStands(t *testing.T) {
	t.Parallel()
	at := target(t, "restore")
	at.StorageClass = "DEEP_ARCHIVE"
	put(t, create(t, at), "key", noise(10))
	header := ""
	g := newGate(t, at, nil)
	g.forward.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("X-Amz-Restore", header)
		return nil
	}
	b := open(t, g.through(at), storage.Options{})
	expires := time.Date(2026, 12, 21, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		header string
		want   storage.Restoration
	}{
		{``, storage.Restoration{}},
		{`ongoing-request="true"`, storage.Restoration{Ongoing: true}},
		{`ongoing-request="false", expiry-date="Mon, 21 Dec 2026 00:00:00 GMT"`, storage.Restoration{Expires: expires}},
		{`expiry-date="Mon, 21 Dec 2026 00:00:00 GMT",ongoing-request="false"`, storage.Restoration{Expires: expires}},
		{`ongoing-request="true", expiry-date="Mon, 21 Dec 2026 00:00:00 GMT"`, storage.Restoration{Ongoing: true}},
		{`ongoing-request="false"`, storage.Restoration{}},
		{`ongoing-request="false", expiry-date="`, storage.Restoration{}},
		{`ongoing-request="false", expiry-date="Mon, 21 Dec 2026 00:00:00 GMT`, storage.Restoration{Expires: expires}},
		{`ongoing-request="false", expiry-date="tomorrow"`, storage.Restoration{}},
		{`ongoing-request="false", expiry-date="Thu, 99 Dec 9999 99:00:00 GMT"`, storage.Restoration{}},
		{`ongoing-request=false, expiry-date=Mon, 21 Dec 2026 00:00:00 GMT`, storage.Restoration{}},
		{`expiry-date="Mon, 21 Dec 2026 00:00:00 GMT"`, storage.Restoration{}},
		{`"""=,expiry-date="ongoing-request="`, storage.Restoration{}},
		{"\xff\xfe", storage.Restoration{}},
	} {
		header = tt.header
		o := head(t, b, "key")
		if o.Restoration != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.header, o.Restoration, tt.want)
		}
		if got := o.Readable(expires.Add(-time.Second)); got != !tt.want.Expires.IsZero() {
			t.Errorf("%s: readable before its end: %t", tt.header, got)
		}
		if o.Readable(expires) {
			t.Errorf("%s: readable when it has run out", tt.header)
		}
		o.StorageClass = "GLACIER_IR"
		if !o.Readable(expires) {
			t.Errorf("%s: an object that is not archived is not readable", tt.header)
		}
	}
}
