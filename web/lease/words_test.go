package lease

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// What is wrong with a request is said in the words of JSON, and by the key's name.
func TestLeaseErrorsAreInTheCallersWords(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	for body, says := range map[string]string{
		`{"worker": 7, "stages": ["Virus Scan"]}`:                    "worker is 7; it must be a string",
		`{"worker": "a", "stages": "Virus Scan"}`:                    `stages is "Virus Scan"; it must be a list of strings`,
		`{"worker": "a", "stages": [1]}`:                             "stages is [1]; it must be a list of strings",
		`{"worker": "a", "stages": ["Virus Scan"], "max": 1.5}`:      "max is 1.5; it must be a whole number",
		`{"worker": "a", "stages": ["Virus Scan"], "max": 1e99}`:     "max is 1e99; it must be a whole number",
		`{"worker": "a", "stages": ["Virus Scan"], "wait": "5"}`:     `wait is "5"; it must be a number`,
		`{"worker": "a", "stages": ["Virus Scan"], "heartbeats": 0}`: "heartbeats is 0; it must be true or false",
		`{"worker": "a", "stages": ["Virus Scan"], "WAIT": 5}`:       `unknown key "WAIT"; did you mean "wait"?`,
		`{"worker": "a", "worker": "b", "stages": ["Virus Scan"]}`:   `the key "worker" appears twice`,
		`{"worker": "a", "stages": ["Virus Scan"], "colour": "red"}`: `unknown key "colour"`,
		`{"worker": "a", "stages": ["Virus Scan"]} {}`:               "not a JSON object",
		`["worker"]`: "not an object",
		``:           "not a JSON object",
		`null`:       "must be an object",
	} {
		status, answer := l.call("POST", "/v1/claim", body)
		said := fmt.Sprint(answer["detail"])
		if status != http.StatusBadRequest || !strings.Contains(said, says) || strings.Contains(said, "Go ") || strings.Contains(said, "json:") || strings.Contains(said, "strconv") {
			t.Errorf("%s = %d %s, want 400 %s", body, status, said, says)
		}
	}
	if status, answer := l.call("GET", "/v1/items/99999999999999999999", ""); status != http.StatusBadRequest || strings.Contains(fmt.Sprint(answer), "strconv") {
		t.Errorf("an item = %d %v", status, answer)
	}
}

// Notes and reasons are kept as one line without control characters.
func TestNotesAreKeptWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	for call, more := range map[string]string{
		"finish": `,"note":"two\nlines\u001b[31m\u0000"`, "fail": `,"code":"bad","reason":"two\nlines\u001b[31m\u0000"`,
		"retry": `,"reason":"two\nlines\u001b[31m\u0000"`, "release": `,"reason":"two\nlines\u001b[31m\u0000"`,
	} {
		id := l.put("test.edu", 10)
		item := l.claimed(scans)
		if status, answer := l.call("POST", "/v1/heartbeat", ref(item, `,"file":"a\u0000b"`)); status != http.StatusOK {
			t.Errorf("heartbeat: %d %v", status, answer)
		}
		if status, answer := l.call("POST", "/v1/"+call, ref(item, more)); status != http.StatusOK {
			t.Errorf("%s: %d %v", call, status, answer)
		}
		if note := l.value(`SELECT note FROM work_items WHERE id = $1`, id); !strings.Contains(note, "two lines [31m") {
			t.Errorf("%s leaves the note %q", call, note)
		}
		testenv.Exec(t, l.db, `UPDATE work_items SET run_at = now() + interval '1 hour' WHERE status = 'Pending'`)
	}
	item := l.put("test.edu", 10)
	claimed := l.claimed(scans)
	if status, _ := l.call("POST", "/v1/fail", ref(claimed, `,"code":"bad","reason":"\n\u0007"`)); status != http.StatusBadRequest {
		t.Errorf("a reason of control characters alone is taken for item %d", item)
	}
}

// A claim passes over what is younger than it wants.
func TestClaimIsNarrowedByAge(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	young, old := l.put("test.edu", 10), l.put("test.edu", 20)
	testenv.Exec(t, l.db, `UPDATE work_items SET created_at = now() - interval '2 hours' WHERE id = $1`, old)
	if status, answer := l.call("POST", "/v1/claim", `{"worker": "anna", "stages": ["Virus Scan"], "min_age": 7300}`); status != http.StatusNoContent {
		t.Errorf("older than any: %d %v", status, answer)
	}
	if item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], "min_age": 3600.5, "max": 5}`); item["id"] != float64(old) {
		t.Errorf("claimed %v, want %d", item, old)
	}
	if item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], "min_age": 0}`); item["id"] != float64(young) {
		t.Errorf("claimed %v, want %d", item, young)
	}
}

// A worker that says that it sends no heartbeats has the stage's lease for such, and
// one that says how long it takes has three times that.
func TestWorkersWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	testenv.Exec(t, l.db, `UPDATE stage_settings SET unrenewed_timeout = '20 minutes', unrenewed_lease = '2 hours' WHERE stage = 'Virus Scan'`)
	testenv.Eventually(t, "the setting is known", func() bool {
		id := l.put("test.edu", 10)
		item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], "heartbeats": false}`)
		l.call("POST", "/v1/release", ref(item, ""))
		testenv.Exec(t, l.db, `SELECT cancel($1)`, id)
		return item["lease"] == 7200.0 && item["heartbeat"] == 0.0 && item["timeout"] == 1200.0
	})
	for more, want := range map[string]float64{`"heartbeats": false, "processing_timeout": 60`: 180, `"processing_timeout": 60`: 180, `"heartbeats": true`: 30} {
		l.put("test.edu", 10)
		if item := l.claimed(`{"worker": "anna", "stages": ["Virus Scan"], ` + more + `}`); item["lease"] != want {
			t.Errorf("%s has a lease of %v, want %v", more, item["lease"], want)
		}
	}
}
