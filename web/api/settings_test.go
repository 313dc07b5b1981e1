package api_test

import (
	"encoding/json"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Settings are changed by staff on the state that was seen, and each change is on record.
func TestSettingsOfTheArchive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff, operator := s.in("staff@archive.org", registry.RoleAdmin, ""), s.in("operator@archive.org", registry.RoleOperator, "")
	var before, after record.Settings
	seen := operator.wants(200, "GET", "/api/v1/settings", nil)
	operator.reads(seen, &before)
	if before.Cap != "100.00" || len(before.Options) != 10 || len(before.Prices) != 5 || before.Prices[0].Tier != "Standard" || before.Prices[0].Takes != 12*3600 {
		t.Fatal(seen.body)
	}
	tag := seen.header.Get("ETag")
	a := staff.wants(200, "PATCH", "/api/v1/settings/storage-options/Wasabi-VA", map[string]any{"retention_days": 120}, "If-Match", tag)
	if a.header.Get("ETag") == tag || a.header.Get("ETag") == "" {
		t.Errorf("the version is still %s", tag)
	}
	if a := staff.do("PATCH", "/api/v1/settings/requests", map[string]any{"retrieval_cap_usd": "5"}, "If-Match", tag); a.status != 412 || a.code() != "changed" {
		t.Errorf("decided on an older state: %d %s", a.status, a.body)
	}
	staff.wants(200, "PATCH", "/api/v1/settings/requests", map[string]any{"retrieval_cap_usd": "250.5"}, "If-Match", "*")
	staff.reads(staff.wants(200, "PATCH", "/api/v1/settings/retrieval-prices/GLACIER/Standard", map[string]any{"per_gib_usd": "0.012", "poll_seconds": 7200}), &after)
	if after.Cap != "250.50" {
		t.Errorf("cap %s", after.Cap)
	}
	for _, p := range after.Prices {
		if p.Class == "GLACIER" && p.Tier == "Standard" && (p.PerGiB != "0.012000" || p.PerThousand != "0.050000" || p.Poll != 7200 || p.Takes != 5*3600) {
			t.Errorf("%+v", p)
		}
	}
	for _, o := range after.Options {
		if want := map[string]int{"Wasabi-VA": 120, "Wasabi-OR": 90}[o.Name]; want != 0 && o.RetentionDays != want {
			t.Errorf("%+v", o)
		}
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation LIKE 'settings.%' AND outcome = 'done' AND actor = 'staff@archive.org' AND detail ? 'set'`); n != 3 {
		t.Errorf("%d changes are on record", n)
	}
	for _, tc := range []struct {
		path   string
		body   any
		status int
	}{
		{"storage-options/Wasabi-VA", map[string]any{"retention_days": -1}, 400},
		{"storage-options/Wasabi-VA", map[string]any{"retention_days": 36501}, 400},
		{"storage-options/Wasabi-VA", map[string]any{}, 400},
		{"storage-options/Nowhere", map[string]any{"retention_days": 1}, 404},
		{"requests", map[string]any{"retrieval_cap_usd": "-1"}, 400},
		{"requests", map[string]any{"retrieval_cap_usd": "NaN"}, 400},
		{"requests", map[string]any{"retrieval_cap_usd": 100}, 400},
		{"requests", map[string]any{"retrieval_cap_usd": "1e9"}, 400},
		{"requests", map[string]any{"only_one": false}, 400},
		{"retrieval-prices/GLACIER/Slow", map[string]any{"per_gib_usd": "1"}, 404},
		{"retrieval-prices/GLACIER/Bulk", map[string]any{"per_gib_usd": "1.2345678"}, 400},
		{"retrieval-prices/GLACIER/Bulk", map[string]any{"takes_seconds": 0}, 400},
	} {
		if a := staff.do("PATCH", "/api/v1/settings/"+tc.path, tc.body); a.status != tc.status {
			text, err := json.Marshal(tc.body)
			t.Errorf("%s %s: %d %s, want %d (%v)", tc.path, text, a.status, a.body, tc.status, err)
		}
	}
	var last record.Settings
	staff.reads(staff.wants(200, "GET", "/api/v1/settings", nil), &last)
	if last.Version() != after.Version() {
		t.Errorf("a refused change has changed something: %+v", last)
	}
}
