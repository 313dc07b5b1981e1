package settings

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// oldNames are the settings of the predecessor's fourteen workers, as its own
// table has them, and one prefix that its programs spell otherwise.
func oldNames() (names []string) {
	for _, worker := range []string{
		"APT_DELETE", "APT_FIXITY", "BAG_RESTORER", "FILE_RESTORER", "GLACIER_RESTORER", "INGEST_CLEANUP", "INGEST_FORMAT_IDENTIFIER",
		"INGEST_PRE_FETCH", "INGEST_PRESERVATION_UPLOADER", "INGEST_PRESERVATION_VERIFIER", "INGEST_RECORDER", "INGEST_STAGING_UPLOADER",
		"INGEST_VALIDATOR", "REINGEST_MANAGER", "STAGING_UPLOADER",
	} {
		for _, suffix := range []string{"_BUFFER_SIZE", "_WORKERS", "_MAX_ATTEMPTS"} {
			names = append(names, worker+suffix)
		}
	}
	return names
}

// Each of the 42 names takes effect or is reported to have none, and none is taken
// with a value that it cannot have.
func TestEveryOldNameIsAccepted(t *testing.T) {
	t.Parallel()
	if n := len(oldNames()); n != 42+3 {
		t.Fatalf("%d names", n)
	}
	for i, name := range oldNames() {
		value := 100 + i
		c := parsed(t, map[string]string{name: fmt.Sprint(value)})
		effects := len(c.Idle)
		checks := map[string]int{"slots": c.Fixity.Slots, "batch": c.Fixity.Batch, "attempts": c.Fixity.Attempts}
		for _, into := range []map[string]int{c.StageSlots, c.ClaimCeiling, c.MaxAttempts, checks} {
			for _, v := range into {
				if v == value {
					effects++
				}
			}
		}
		if effects != 1 || len(c.Idle) > 0 {
			t.Errorf("%s has %d effects, and idle are %v", name, effects, c.Idle)
		}
	}
	environ := enough(nil)
	for _, name := range oldNames() {
		environ[name] = "0"
	}
	_, err := Load(environ, Worker{})
	for _, name := range oldNames() {
		if strings.HasPrefix(name, "APT_FIXITY_") { // whose workers may be none
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "\n  "+name+` is "0"; it must be a whole number from 1 on`) {
			t.Errorf("%s may not be 0: %v", name, err)
		}
	}
}

// Of two spellings one counts, and the other is reported to have no effect.
func TestTwoSpellingsOfOneSetting(t *testing.T) {
	t.Parallel()
	c := parsed(t, map[string]string{
		"STAGING_UPLOADER_WORKERS": "1", "INGEST_STAGING_UPLOADER_WORKERS": "2",
		"STAGING_UPLOADER_LEASE": "1m", "INGEST_STAGING_UPLOADER_LEASE": "1m",
		"STAGING_UPLOADER_BUFFER_SIZE": "1", "APT_FIXITY_TIMEOUT": "1h",
	})
	if c.StageSlots["Copy To Staging"] != 2 || c.Leases["Copy To Staging"] != time.Minute || c.ClaimCeiling["Copy To Staging"] != 1 {
		t.Errorf("%v %v %v", c.StageSlots, c.Leases, c.ClaimCeiling)
	}
	if diff := cmp.Diff([]string{"APT_FIXITY_TIMEOUT", "STAGING_UPLOADER_WORKERS"}, c.Idle); diff != "" {
		t.Errorf("without effect:\n%s", diff)
	}
}

// The seven workers that move bytes take few items at once, the others more.
func TestHeavyWorkersTakeFewItemsAtOnce(t *testing.T) {
	t.Parallel()
	heavy := 0
	for _, w := range OldWorkers() {
		switch buffer := w.uses.byDefault().Buffer; {
		case buffer >= 3 && buffer <= 5:
			heavy++
		case buffer < 10:
			t.Errorf("%s: %d items in one claim", w.names[0], buffer)
		}
	}
	if heavy != 7 {
		t.Errorf("%d of the workers are heavy, want 7", heavy)
	}
	c := parsed(t, nil)
	for stage, want := range map[string]int{"Receive": 4, "Copy To Staging": 4, "Format Identification": 4, "Store": 4, "Validate": 20, "Record": 20} {
		if got := c.ClaimCeiling[stage]; got != want {
			t.Errorf("%s: %d in one claim, want %d", stage, got, want)
		}
	}
	for _, w := range OldWorkers() { // fixity is no stage, and has settings of its own
		d := w.uses.byDefault()
		if w.step() == "" && (c.Fixity.Batch != d.Buffer || c.Fixity.Attempts != d.MaxAttempts) {
			t.Errorf("%s: batch %d and %d attempts, and the table says %d and %d", w.names[0], c.Fixity.Batch, c.Fixity.Attempts, d.Buffer, d.MaxAttempts)
		}
	}
}

// How a stage is treated in a new database follows from what it leans on, and is
// what the predecessor had.
func TestDefaultsFollowFromResources(t *testing.T) {
	t.Parallel()
	db, err := pgxpool.New(t.Context(), testenv.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	rows, _ := db.Query(t.Context(), `SELECT action || ' ' || stage, max_attempts, coalesce(cap, 0), unrenewed_timeout, unrenewed_lease,
		processing_timeout IS NULL AND heartbeat = '10 seconds' AND lease = '30 seconds' FROM stage_settings`)
	written := map[string]treatment{}
	var stage string
	var row treatment
	var usual bool
	_, err = pgx.ForEachRow(rows, []any{&stage, &row.MaxAttempts, &row.Cap, &row.UnrenewedTimeout, &row.UnrenewedLease, &usual}, func() error {
		written[stage] = row
		if !usual {
			t.Errorf("%s: heartbeat, lease or timeout are not the usual ones", stage)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	derived, times := map[string]treatment{}, map[string]string{}
	for _, w := range OldWorkers() {
		d := w.uses.byDefault()
		times[w.names[0]] = fmt.Sprintf("%v %v", d.UnrenewedTimeout, d.UnrenewedLease)
		if d.Buffer = 0; w.Stage != "" {
			derived[fmt.Sprint(w.Action, " ", w.Stage)] = d
		}
	}
	if diff := cmp.Diff(derived, written); diff != "" {
		t.Errorf("what follows (-) and what stage_settings has (+):\n%s", diff)
	}
	const long, middle, short = "15m0s 45m0s", "3m0s 9m0s", "20s 1m0s"
	want := map[string]string{
		"INGEST_PRE_FETCH": long, "INGEST_VALIDATOR": middle, "REINGEST_MANAGER": short, "INGEST_STAGING_UPLOADER": long,
		"INGEST_FORMAT_IDENTIFIER": long, "INGEST_PRESERVATION_UPLOADER": long, "INGEST_PRESERVATION_VERIFIER": middle,
		"INGEST_RECORDER": middle, "INGEST_CLEANUP": short, "APT_DELETE": middle, "FILE_RESTORER": long, "BAG_RESTORER": long,
		"GLACIER_RESTORER": short, "EXPORTER": short, "APT_FIXITY": long,
	}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Errorf("timeout and lease:\n%s", diff)
	}
}
