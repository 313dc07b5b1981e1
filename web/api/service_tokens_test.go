package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// serviceBy is a program with a token that a person of the staff has made.
func (s *site) serviceBy(staff *caller, body map[string]any) *caller {
	s.t.Helper()
	var made struct{ Token string }
	staff.reads(staff.wants(201, "POST", "/api/v1/tokens", body), &made)
	p := s.browser()
	p.token = made.Token
	return p
}

// The token of a service does what it was given, within its institution, until it is revoked.
func TestTokensOfServices(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	own := s.serviceBy(staff, map[string]any{"name": "inventory", "institution_identifier": "test.edu", "permissions": []string{"users.read", "institutions.read", "users.read"}, "days": 30})
	whole := s.serviceBy(staff, map[string]any{"name": "monitor", "permissions": []string{"institutions.read"}, "rights": []string{"pull"}})
	if a := own.wants(200, "GET", "/api/v1/institutions", nil); strings.Contains(a.body, "other.edu") || !strings.Contains(a.body, "test.edu") {
		t.Error(a.body)
	}
	if a := own.wants(200, "GET", "/api/v1/users", nil); strings.Contains(a.body, "staff@archive.org") || !strings.Contains(a.body, "ann@test.edu") {
		t.Error(a.body)
	}
	if a := whole.wants(200, "GET", "/api/v1/institutions", nil); !strings.Contains(a.body, "other.edu") {
		t.Error(a.body)
	}
	if a := whole.do("GET", "/api/v1/users", nil); a.status != 403 {
		t.Errorf("a permission that it was not given: %d", a.status)
	}
	for path, status := range map[string]int{"/api/v1/me/mail": 403, "/api/v1/me/tokens": 403, "/api/v1/tokens": 403} {
		if a := whole.do("GET", path, nil); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}

	var list struct {
		Items []struct {
			ID          int64
			Name        string
			Rights      []string
			Permissions []string
			CreatedBy   string  `json:"created_by"`
			ExpiresAt   *string `json:"expires_at"`
		}
	}
	a := staff.wants(200, "GET", "/api/v1/tokens", nil)
	staff.reads(a, &list)
	if len(list.Items) != 2 || list.Items[0].CreatedBy != "staff@archive.org" || len(list.Items[0].Permissions) != 2 || list.Items[0].ExpiresAt == nil ||
		list.Items[1].ExpiresAt != nil || list.Items[1].Rights[0] != "pull" || strings.Contains(a.body, `"token"`) {
		t.Fatal(a.body)
	}
	// The tokens of an institution rest with it; a process knows a token for two seconds.
	staff.wants(200, "POST", fmt.Sprintf("/api/v1/institutions/%d/deactivate", s.test.ID), nil)
	testenv.Eventually(t, "the token is refused", func() bool { return own.do("GET", "/api/v1/users", nil).status == 401 })
	staff.wants(204, "DELETE", fmt.Sprint("/api/v1/tokens/", list.Items[0].ID), nil)
	if n := ask[int](s, `SELECT count(*) FROM api_tokens WHERE name = 'inventory'`); n != 0 {
		t.Error("a revoked token is there")
	}
	personal := staff.program("items.read")
	id := ask[int64](s, `SELECT id FROM api_tokens WHERE user_id = $1`, staff.person.ID)
	gone, theirs := staff.do("DELETE", fmt.Sprint("/api/v1/tokens/", list.Items[0].ID), nil), staff.do("DELETE", fmt.Sprint("/api/v1/tokens/", id), nil)
	if gone.status != 404 || gone.body != theirs.body {
		t.Errorf("a personal token is one of a service: %s and %s", gone.body, theirs.body)
	}
	personal.wants(200, "GET", "/api/v1/me", nil)
	got := ask[string](s, `SELECT string_agg(operation || ' ' || subject_id || ' ' || outcome || ' ' || coalesce(institution_id, 0), ', ' ORDER BY id) FROM actions WHERE operation LIKE 'tokens.%'`)
	if want := fmt.Sprintf("tokens.add inventory done %d, tokens.add monitor done 0, tokens.remove inventory done %[1]d, ", s.test.ID); !strings.HasPrefix(got, want) {
		t.Errorf("on record: %s", got)
	}
	staff.wants(204, "DELETE", fmt.Sprint("/api/v1/me/tokens/", id), nil)
	if made, gone := ask[string](s, `SELECT subject_id FROM actions WHERE operation = 'me.add_token'`), ask[string](s, `SELECT subject_id FROM actions WHERE operation = 'me.remove_token'`); made != gone {
		t.Errorf("the token %q is revoked as %q", made, gone)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE detail::text LIKE '%farol\_%'`); n != 0 {
		t.Error("a secret is on record")
	}
}

// What no service may, and what does not go together, is refused.
func TestTokensThatNoServiceGets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	for name, body := range map[string]map[string]any{
		"nothing":               {},
		"an unknown permission": {"permissions": []string{"items.eat"}},
		"approvals":             {"permissions": []string{"deletions.approve"}},
		"requests of deletions": {"permissions": []string{"deletions.request"}, "institution_identifier": "test.edu"},
		"tokens":                {"permissions": []string{"tokens.service"}},
		"people":                {"permissions": []string{"users.write"}, "institution_identifier": "test.edu"},
		"settings":              {"permissions": []string{"settings.write"}},
		"the queue for one":     {"permissions": []string{"items.decide"}, "institution_identifier": "test.edu"},
		"an unknown right":      {"rights": []string{"eat"}},
		"messages for one":      {"rights": []string{"lease", "pull"}, "institution_identifier": "test.edu"},
		"stages without lease":  {"rights": []string{"pull"}, "stages": []string{"Virus Scan"}},
		"too long":              {"rights": []string{"pull"}, "days": 4000},
		"of a user":             {"rights": []string{"pull"}, "user_id": 1},
	} {
		body["name"] = "t"
		if a := staff.do("POST", "/api/v1/tokens", body); a.status != 400 || a.code() != "bad-request" && a.code() != "unknown-parameter" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for _, body := range []map[string]any{
		{"name": "t", "rights": []string{"pull"}, "institution_identifier": "nowhere.edu"}, {"name": "t", "rights": []string{"lease"}, "stages": []string{"Nowhere"}},
	} {
		if body["institution_identifier"] != nil {
			body["rights"] = []string{"lease"}
		}
		if a := staff.do("POST", "/api/v1/tokens", body); a.status != 404 {
			t.Errorf("%v: %d %s", body, a.status, a.body)
		}
	}
	s.serviceBy(staff, map[string]any{"name": "taken", "rights": []string{"pull"}})
	if a := staff.do("POST", "/api/v1/tokens", map[string]any{"name": "taken", "rights": []string{"pull"}}); a.status != 409 {
		t.Errorf("a name that is taken: %d %s", a.status, a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM api_tokens`); n != 1 {
		t.Errorf("%d tokens were made", n)
	}
}
