package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/storage"
)

// locked is a new bucket with Object Lock.
func locked(t *testing.T, name string) (storage.Target, *storage.Bucket) {
	t.Helper()
	at := target(t, name)
	testenv.S3(t).CreateLocked(t, at.Bucket)
	return at, open(t, at, storage.Options{})
}

// keptIn fails the test unless an error says that the store keeps something.
func keptIn(t *testing.T, err error) *storage.Kept {
	t.Helper()
	var k *storage.Kept
	if !errors.As(err, &k) || !errors.Is(err, storage.ErrKept) || fault.In(err) != nil {
		t.Fatalf("%v: want it kept by the store, which is nobody's failure", err)
	}
	return k
}

// A store that keeps one copy of many under Object Lock keeps them all from being removed: who
// deletes learns until when, from the version that is kept for longest, and removes nothing.
// Nothing asks the store to bypass the retention.
func TestEraseRemovesNothingWhileTheStoreKeepsSomething(t *testing.T) {
	t.Parallel()
	at, direct := locked(t, "kept")
	s := testenv.S3(t)
	for _, key := range []string{"a", "b", "c"} {
		put(t, direct, key, noise(1))
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	s.Retain(t, at.Bucket, "a", until.Add(-time.Minute))
	s.Retain(t, at.Bucket, "b", until)
	put(t, direct, "b", noise(2)) // and that is free
	g := newGate(t, at, nil)
	b := open(t, g.through(at), storage.Options{})

	err := b.Erase(t.Context(), "a", "b", "c")
	k := keptIn(t, err)
	want := "kept by the store until " + until.Format("2006-01-02 15:04:05") + " UTC"
	if !k.Until.Equal(until) || k.LegalHold || k.Mode != "GOVERNANCE" || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Erase = %v (%+v), want %s", err, k, want)
	}
	if n := len(versions(t, direct, "")); n != 4 {
		t.Errorf("%d versions are left, want all 4", n)
	}
	locks, err := b.Locks(t.Context(), "a", "b", "c", "never there")
	if err != nil || len(locks) != 2 || !locks["a"].Until.Equal(until.Add(-time.Minute)) || !locks["b"].Until.Equal(until) {
		t.Errorf("Locks = %v, %v", locks, err)
	}

	s.LegalHold(t, at.Bucket, "a", true)
	if k := keptIn(t, b.Erase(t.Context(), "a")); k.Error() != "kept by the store until "+until.Add(-time.Minute).Format("2006-01-02 15:04:05")+" UTC and under a legal hold" {
		t.Errorf("Erase = %v", k)
	}
	for _, key := range []string{"a", "b"} {
		s.Retain(t, at.Bucket, key, time.Now().Add(2*time.Second))
	}
	testenv.Eventually(t, "the retention to end", func() bool {
		locks, err := b.Locks(t.Context(), "a", "b")
		return err == nil && len(locks) == 1
	})
	// The store's clock is known to a second, and so is the end.
	testenv.Eventually(t, "nothing but the hold to keep them", func() bool {
		return keptIn(t, b.Erase(t.Context(), "a", "b")).Error() == "kept by the store under a legal hold"
	})
	s.LegalHold(t, at.Bucket, "a", false)
	testenv.Eventually(t, "what is free to go", func() bool { return b.Erase(t.Context(), "a", "b", "c") == nil })
	if left := versions(t, direct, ""); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if n := g.count(func(r *http.Request) bool { return r.Header.Get("X-Amz-Bypass-Governance-Retention") != "" }); n != 0 {
		t.Errorf("%d requests would bypass the retention", n)
	}
	if n := g.count(func(r *http.Request) bool { return r.URL.Query().Has("object-lock") }); n != 1 {
		t.Errorf("the bucket was asked %d times whether it has Object Lock, want once", n)
	}
}

// A locked bucket takes what a locked key allows: another version over it, and a delete marker.
func TestLockedKeyIsWrittenAndMarked(t *testing.T) {
	t.Parallel()
	at, b := locked(t, "over")
	put(t, b, "a", noise(1))
	testenv.S3(t).Retain(t, at.Bucket, "a", time.Now().Add(time.Hour))
	if put(t, b, "a", noise(3)); head(t, b, "a").Size != 3 {
		t.Error("the key has its old bytes")
	}
	remove(t, b, "a")
	if _, err := b.Head(t.Context(), "a"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Head of what is marked = %v", err)
	}
	if n := len(versions(t, b, "")); n != 3 {
		t.Errorf("%d versions and markers, want 3", n)
	}
	keptIn(t, b.DeleteVersions(t.Context(), versions(t, b, "")))
}

// Most buckets have no Object Lock, and pay one request for that in the life of a process. A
// server that does not know the question has none either; a failing one has not answered.
func TestBucketWithoutLockIsAskedOnce(t *testing.T) {
	t.Parallel()
	at, direct := versioned(t, "without")
	asks := func(r *http.Request) bool { return r.URL.Query().Has("object-lock") }
	for name, tc := range map[string]struct {
		status int // 0: the server's own answer
		code   string
		fails  bool
		asked  int // times
	}{
		"it says so":            {0, "", false, 1},
		"it does not know":      {http.StatusNotImplemented, "NotImplemented", false, 1},
		"it has no words":       {http.StatusNotImplemented, "", false, 1},
		"no such configuration": {http.StatusNotFound, "ObjectLockConfigurationNotFoundError", false, 1},
		"another 404":           {http.StatusNotFound, "", false, 1},
		"it fails":              {http.StatusInternalServerError, "InternalError", true, 9},
	} {
		put(t, direct, "a", noise(1))
		g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
			if tc.status == 0 || !asks(r) {
				return false
			}
			if tc.code == "" {
				w.WriteHeader(tc.status)
			} else {
				answer(w, tc.status, tc.code)
			}
			return true
		})
		b := open(t, g.through(at), storage.Options{})
		for range 2 {
			if locks, err := b.Locks(t.Context(), "a"); len(locks) != 0 || (err != nil) != tc.fails {
				t.Errorf("%s: Locks = %v, %v", name, locks, err)
			}
		}
		if err := b.Erase(t.Context(), "a"); (err != nil) != tc.fails {
			t.Errorf("%s: Erase = %v", name, err)
		}
		if n := g.count(asks); n != tc.asked {
			t.Errorf("%s: asked %d times, want %d", name, n, tc.asked)
		}
	}
}

// A key may lack the rights to see locks, and a server may not show them. Then the lock is asked
// for apart, or learnt from the refusal: in the words of each store, of one removal and of a
// batch. A refusal without a lock stays what it is.
func TestLockIsLearntFromTheRefusal(t *testing.T) {
	t.Parallel()
	s := testenv.S3(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	hides := func(h http.Header) {
		for name := range h {
			if strings.HasPrefix(name, "X-Amz-Object-Lock-") {
				h.Del(name)
			}
		}
	}
	for name, tc := range map[string]struct {
		lock     bool     // of the version
		closed   []string // questions that the key may not ask
		hidden   bool     // HEAD does not show the lock
		status   int      // of a refusal in place of the server's own
		refusal  string
		checksum storage.ChecksumMode
		want     string // "": it is not kept
	}{
		"the bucket does not tell": {lock: true, closed: []string{"object-lock"}, want: "until"},
		"HEAD does not show it":    {lock: true, hidden: true, want: "until"},
		"nothing shows it":         {lock: true, hidden: true, closed: []string{"object-lock", "retention", "legal-hold"}, want: "which does not say until when"},
		"nothing, one by one": {
			lock: true, hidden: true, closed: []string{"object-lock", "retention", "legal-hold"}, checksum: storage.ChecksumETag, want: "which does not say until when",
		},
		"MinIO": {
			lock: true, hidden: true, closed: []string{"object-lock", "retention", "legal-hold"}, checksum: storage.ChecksumETag,
			status: http.StatusBadRequest, refusal: "<Code>InvalidRequest</Code><Message>Object is WORM protected and cannot be overwritten</Message>",
			want: "which does not say until when",
		},
		"a code": {
			lock: true, hidden: true, closed: []string{"retention", "legal-hold"}, checksum: storage.ChecksumETag,
			status: http.StatusConflict, refusal: "<Code>ObjectLocked</Code>", want: "which does not say until when",
		},
		"the key may not remove": {
			checksum: storage.ChecksumETag, status: http.StatusForbidden, refusal: "<Code>AccessDenied</Code><Message>no</Message>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, direct := locked(t, "refusal"+fmt.Sprint(len(name)))
			for _, key := range []string{"a", "b"} {
				put(t, direct, key, noise(1))
				if tc.lock {
					s.Retain(t, at.Bucket, key, until)
				}
			}
			g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
				for _, question := range tc.closed {
					if r.URL.Query().Has(question) {
						answer(w, http.StatusForbidden, "AccessDenied")
						return true
					}
				}
				if tc.status != 0 && r.Method == http.MethodDelete {
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, "<Error>"+tc.refusal+"</Error>")
					return true
				}
				return false
			})
			g.forward.ModifyResponse = func(r *http.Response) error {
				if tc.hidden {
					hides(r.Header)
				}
				return nil
			}
			through := g.through(at)
			through.Checksum = tc.checksum
			err := open(t, through, storage.Options{}).Erase(t.Context(), "a", "b")
			if tc.want == "" {
				if errors.Is(err, storage.ErrKept) || !errors.Is(err, storage.ErrDenied) {
					t.Errorf("Erase = %v, want it denied", err)
				}
				return
			}
			k := keptIn(t, err)
			if !strings.Contains(k.Error(), tc.want) || tc.want == "until" && !k.Until.Equal(until) {
				t.Errorf("Erase = %v, want %s", err, tc.want)
			}
			if n := len(versions(t, direct, "")); n != 2 {
				t.Errorf("%d versions are left, want 2", n)
			}
		})
	}
}

// A bucket may get its lock while a process runs that has asked before.
func TestLockThatCameLaterIsSeen(t *testing.T) {
	t.Parallel()
	at, b := locked(t, "later")
	put(t, b, "a", noise(1))
	none := true
	g := newGate(t, at, func(w http.ResponseWriter, r *http.Request) bool {
		was := none && r.URL.Query().Has("object-lock")
		if was {
			answer(w, http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
		}
		return was
	})
	through := open(t, g.through(at), storage.Options{})
	if locks, err := through.Locks(t.Context(), "a"); err != nil || len(locks) != 0 {
		t.Fatalf("Locks = %v, %v", locks, err)
	}
	none = false
	testenv.S3(t).Retain(t, at.Bucket, "a", time.Now().Add(time.Hour))
	keptIn(t, through.Erase(context.Background(), "a"))
	if locks, err := through.Locks(t.Context(), "a"); err != nil || locks["a"] == nil {
		t.Errorf("Locks = %v, %v, want what the refusal has taught", locks, err)
	}
}
