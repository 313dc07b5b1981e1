package main

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// exitOf runs a command to its end and returns what it said and its exit code.
func (s *site) exitOf(args ...string) (string, int) {
	s.t.Helper()
	p := startProcess(s.t, s.binary, s.t.TempDir(), s.settings, args...)
	var exit *exec.ExitError
	switch err := p.wait(); {
	case err == nil:
		return p.said(), 0
	case errors.As(err, &exit):
		return p.said(), exit.ExitCode()
	default:
		s.t.Fatal(err)
		return "", 0
	}
}

func (s *site) says(text string, lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line) {
			s.t.Errorf("it does not say %q:\n%s", line, text)
		}
	}
}

// Real bags and workers: a person who follows a bag sees how it ended, and why.
func TestWhatBecameOfBagsIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.deposit(bagtest.Spec{Name: "good"})
	good := ask[int64](t, s.db, `SELECT max(id) FROM work_items`)
	s.deposit(bagtest.Spec{Name: "bad", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}, Corrupt: []string{"data/a.txt"}})
	bad := ask[int64](t, s.db, `SELECT max(id) FROM work_items`)
	worker := s.worker()
	id := func(n int64) string { return fmt.Sprint(n) }

	said, code := s.exitOf("item", "watch", id(good))
	if code != 0 {
		t.Errorf("exit code %d of a bag that was ingested", code)
	}
	s.says(said, "Success at stage 9 of 9, Cleanup: done")
	said, code = s.exitOf("item", "watch", id(bad), "--json")
	if code != 1 {
		t.Errorf("exit code %d of a bag that failed", code)
	}
	s.says(said, `"status":"Failed"`, "farol item explain "+id(bad))
	const md5OfA = "0cc175b9c0f1b6a831c399e269772661" // RFC 1321, A.5
	said = s.farol("item", "explain", id(bad))
	s.says(said, "Whose fault: the bag's.", "data/a.txt: ", "expected md5:", "found    md5:", md5OfA, "digest-mismatch: ")
	s.says(s.farol("item", "explain", id(good)), "Success at stage 9 of 9", "Cleanup: done", "- Nothing.")

	worker.kill()
	s.exec(`UPDATE stage_settings SET max_attempts = 1, paused = true`)
	proxy := s.s3Proxy()
	worker = s.worker()
	for i := range 4 {
		s.deposit(bagtest.Spec{Name: fmt.Sprintf("away%d", i)})
	}
	away := ask[int64](t, s.db, `SELECT max(id) FROM work_items`)
	worker.eventually("the worker to live", func() bool { return ask[int](t, s.db, `SELECT count(*) FROM workers`) > 0 })
	proxy.Cut()
	s.exec(`UPDATE stage_settings SET paused = false`)
	worker.eventually("the bucket to be held", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM why_not($1) WHERE reason = 'held'`, away) > 0
	})
	said = s.farol("item", "explain", id(away))
	s.says(said, "It waits", "storage-unavailable", "Whose fault: the system's, at the storage", "farol services")
	proxy.Resume()
	if said, code = s.exitOf("item", "watch", id(away)); code != 0 {
		t.Errorf("exit code %d of a bag whose storage was away for a while: %s", code, said)
	}
}

// Who follows an item for a week is not thrown out by a server that restarts.
func TestWatchOutlivesOutages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.depositSample()
	s.exec(`UPDATE stage_settings SET paused = true`)
	through := func(name string) *injure.Proxy {
		u := must.Get(url.Parse(s.settings[name]))(t)
		proxy := testenv.NewProxy(t, u.Host)
		u.Host = proxy.Addr()
		s.settings[name] = u.String()
		return proxy
	}
	database, redis := through("FAROL_DATABASE_URL"), through("FAROL_REDIS_URL")
	watch := startProcess(t, s.binary, t.TempDir(), s.settings, "item", "watch", fmt.Sprint(id))
	said := func(what string) {
		t.Helper()
		watch.eventually(what, func() bool { return strings.Contains(watch.said(), what) })
	}
	said("Pending at stage 1 of 9, Receive")
	redis.Cut()
	said("The progress of files is not known:")
	redis.Resume()
	said("The progress of files is known again.")
	database.Cut()
	said("The database does not answer; trying again:")
	before := database.Refused()
	watch.eventually("more polls", func() bool { return database.Refused() >= before+20 }) // a poll may try several times
	database.Resume()
	said("The database answers again.")
	if n := strings.Count(watch.said(), "The database does not answer"); n != 1 {
		t.Errorf("the outage was reported %d times", n)
	}
	s.exec(`UPDATE work_items SET status = 'Cancelled'`)
	var exit *exec.ExitError
	if err := watch.wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("watch = %v\n%s", err, watch.said())
	}
	if n := strings.Count(watch.said(), "Pending at stage 1 of 9"); n != 1 {
		t.Errorf("what did not change was reported %d times:\n%s", n, watch.said())
	}
}
