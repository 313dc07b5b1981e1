package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/commands/archive"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/storage"
)

// Whatever happens to copies without Farol is found, reported and repaired,
// by workers that get killed on the way.
func TestCopiesThatGoBadAreFoundAndPutRight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settings["FAROL_TARGET_STANDARD_OR_STORAGE_CLASS"] = "STANDARD" // so that it can be read at once
	s.settings["FAROL_QUARANTINE_BUCKET"] = s.s3.Prefix + "quarantine"
	w := s.worker()
	s.deposit(bagtest.Spec{Name: "kept", Files: []bagtest.File{
		{Path: "data/altered", Content: "altered"}, {Path: "data/missing", Content: "missing"}, {Path: "data/good", Size: 20 << 20, Seed: 1},
	}})
	s.atRest(w)
	key := func(path string) string {
		return ask[string](t, s.db, `SELECT uuid::text FROM generic_files WHERE identifier = 'test.edu/kept/data/`+path+`'`)
	}
	first := s.targets["Standard-VA"]
	must.Get(first.Put(t.Context(), key("altered"), bytes.NewReader([]byte("Altered")), storage.Upload{Size: 7}))(t)
	must.Do(t, first.Delete(t.Context(), key("missing")))
	// A person sets the last check back; nothing is checked before the scheduler allows it.
	s.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '100 days'`)
	s.farol("schedule", "run", "fixity-feed")
	w.eventually("a check to begin", func() bool {
		return ask[bool](t, s.db, `SELECT EXISTS (SELECT FROM topic_messages WHERE topic = 'fixity_check')`)
	})
	w.kill()

	s.settings["FAROL_AUTO_REPAIR"], s.settings["FAROL_REPAIR_AFTER"] = "on", "1s"
	w = s.worker()
	w.eventually("both to be found", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`) == 2
	})
	w.eventually("both to be repaired", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM premis_events WHERE event_type = 'replication' AND detail LIKE 'Replaced a % copy from a verified one'`) == 2
	})
	w.eventually("all to be checked", func() bool {
		return ask[int](t, s.db, `SELECT count(*) FROM storage_records WHERE target = 'Standard-VA' AND fixity_from < now() - interval '1 day'`) == 0
	})
	for _, path := range []string{"altered", "missing"} {
		if got := string(s.content(first.Name(), key(path))); got != path {
			t.Errorf("%s is %q now", path, got)
		}
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`:                            2,
		`SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome_information LIKE 'Fixity matches at %'`: 3,
		`SELECT count(*) FROM fixity_failures WHERE state = 'repaired'`:                                                           2,
		`SELECT count(*) FROM bad_copies`: 0,
		`SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE s.target = 'Standard-VA' AND f.last_fixity_check < now() - interval '1 day'`: 0,
	} {
		if n := ask[int](t, s.db, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	var status archive.FixityReport
	must.Do(t, json.Unmarshal([]byte(s.farol("fixity", "status", "--json")), &status))
	if status.Bad != 0 || status.Overdue != 0 || status.Copies != 5 || status.Checks24h != 5 {
		t.Errorf("status %+v", status)
	}
	s.farol("repair", "--all")
}

// The exit code shows whether there are bad copies.
func TestStatusTellsOfBadCopiesByItsExitCode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.worker()
	s.deposit(bagtest.Spec{Name: "kept", Files: []bagtest.File{{Path: "data/a", Content: "content"}}})
	s.atRest(w)
	first := s.targets["Standard-VA"]
	key := ask[string](t, s.db, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/a'`)
	must.Get(first.Put(t.Context(), key, bytes.NewReader([]byte("Content")), storage.Upload{Size: 7}))(t)
	s.farol("fixity", "status")
	s.farol("fixity", "check", "test.edu/kept")
	w.eventually("it to be found", func() bool { return ask[int](t, s.db, `SELECT count(*) FROM bad_copies`) == 1 })
	for _, args := range [][]string{{"fixity", "status"}, {"repair", "--all"}} { // of which the other copy is archived
		p := startProcess(t, s.binary, t.TempDir(), s.settings, args...)
		var exit *exec.ExitError
		if err := p.wait(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitFailed || !strings.Contains(p.said(), "test.edu/kept/data/a") {
			t.Errorf("farol %v: %v\n%s", args, err, p.said())
		}
	}
}
