package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// Services are held and released, and stages added and removed, in the name of the person.
func TestServicesAndAddedStages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO known_services (service) VALUES ('s3:Wasabi OR')`)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	if a := o.wants(200, "POST", "/api/v1/services/s3:Wasabi%20OR/hold", `{"reason": "Maintenance."}`); !strings.Contains(a.body, `"held_by":"operator@archive.org"`) {
		t.Errorf("held: %s", a.body)
	}
	if a := o.wants(200, "GET", "/api/v1/services", nil); !strings.Contains(a.body, `"state":"held"`) || !strings.Contains(a.body, "Maintenance.") {
		t.Errorf("services: %s", a.body)
	}
	if a := o.wants(200, "POST", "/api/v1/services/s3:Wasabi%20OR/release", `{}`); !strings.Contains(a.body, `"state":"ok"`) {
		t.Errorf("released: %s", a.body)
	}
	if a := o.do("POST", "/api/v1/services/none/hold", `{}`); a.status != 404 && a.status != 409 {
		t.Errorf("no such service: %d %s", a.status, a.body)
	}
	stage := `{"name": "Virus Scan", "after": "Validate", "lease_seconds": 60, "heartbeat_seconds": 20}`
	if a := o.wants(http.StatusCreated, "POST", "/api/v1/stages", stage); !strings.Contains(a.body, `"lease_seconds":60`) || !strings.Contains(a.body, `"topic":"ingest_virus_scan"`) {
		t.Errorf("added: %s", a.body)
	}
	for body, why := range map[string]string{
		stage: "Virus Scan", `{"name": "OCR", "after": "Nowhere"}`: "Nowhere", `{"name": "ocr", "after": "Validate"}`: "ocr", `{"name": "OCR"}`: "after",
		`{"name": "OCR", "after": "Validate", "lease_seconds": 30, "heartbeat_seconds": 11}`: "three heartbeats",
	} {
		if a := o.do("POST", "/api/v1/stages", body); a.status != 400 && a.status != 409 && a.status != 404 || a.status != 404 && !strings.Contains(a.body, why) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	o.wants(200, "DELETE", "/api/v1/stages/Ingest/Virus%20Scan", nil)
	for path, status := range map[string]int{"Ingest/Store": 409, "Delete/Requested": 404, "Ingest/Nowhere": 409} {
		if a := o.do("DELETE", "/api/v1/stages/"+path, nil); a.status != status {
			t.Errorf("remove %s: %d %s, want %d", path, a.status, a.body, status)
		}
	}
	want := "services.hold done, services.release done, stages.add done, stages.remove done"
	if got := ask[string](s, `SELECT string_agg(operation || ' ' || outcome, ', ' ORDER BY id) FROM actions WHERE outcome = 'done'
		AND (operation LIKE 'services.%' OR operation LIKE 'stages.%') AND actor = 'operator@archive.org'`); got != want {
		t.Errorf("actions: %s", got)
	}
}

// A deletion whose copies are missing goes on when a person has accepted that.
func TestMissingCopiesAreAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	id := s.parked(s.test, 1)[0]
	s.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, found_missing) SELECT $1, min(id), 'T', 'b', 'k', 'u', true FROM generic_files`, id)
	o := s.in("operator@archive.org", registry.RoleOperator, "")
	at := fmt.Sprintf("/api/v1/items/%d/requeue", id)
	o.wants(200, "POST", at, `{"accept_missing": true}`)
	if by := ask[string](s, `SELECT accepted_by FROM deletion_receipts`); by != "operator@archive.org" {
		t.Errorf("accepted by %q", by)
	}
	if a := o.do("POST", at, `{"accept_missing": true}`); a.status != 409 || !strings.Contains(a.body, "no missing copies") {
		t.Errorf("again: %d %s", a.status, a.body)
	}
}
