package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// An institution that has just lost its other admin, in whatever way, is not open to the
// archive's staff: those who were made to leave have seven days to say so.
func TestStaffWaitForAnAdminWhoHasLeft(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	first, staff := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	for i, sql := range []string{
		`UPDATE users SET role = 'institutional_user' WHERE id = $1`, `UPDATE users SET deactivated_at = now() WHERE id = $1`,
		`UPDATE users SET institution_id = (SELECT id FROM institutions WHERE identifier = 'other.edu') WHERE id = $1`, `DELETE FROM users WHERE id = $1`,
	} {
		id := ask[int64](s, `INSERT INTO users (email, name, role, institution_id) VALUES ($1, 'Some Person', 'institutional_admin', $2) RETURNING id`, fmt.Sprintf("second%d@test.edu", i), s.test.ID)
		s.exec(sql, id)
		var d struct {
			ID  int64
			Ask string `json:"whom_to_ask"`
		}
		first.reads(first.wants(http.StatusCreated, "POST", "/api/v1/deletions", `{"identifiers": ["test.edu/bag/data/f"]}`, "Idempotency-Key", fmt.Sprint(i)), &d)
		if !strings.HasPrefix(d.Ask, "Nobody may approve it before ") || !strings.Contains(d.Ask, "when an admin of the archive may") {
			t.Errorf("%s: whom to ask: %s", sql, d.Ask)
		}
		at := fmt.Sprint("/api/v1/deletions/", d.ID)
		if a := staff.do("POST", at+"/approve", nil); a.status != http.StatusConflict || !strings.Contains(a.body, "had one within seven days") {
			t.Errorf("%s: staff approve: %d %s", sql, a.status, a.body)
		}
		s.exec(`UPDATE admins_left SET left_at = now() - interval '7 days'`)
		if a := first.wants(200, "GET", at, nil); a.text("whom_to_ask") != "Ask an admin of the archive to approve it." {
			t.Errorf("%s: after seven days: %s", sql, a.body)
		}
		first.wants(200, "POST", at+"/cancel", nil)
	}
}

// What an institutional admin is answered about an address of another domain is the same to
// the byte, whether another institution has a person with it, the archive, or nobody.
func TestAddressesOfOthersAreAsIfTheyWereNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	s.exec(`INSERT INTO users (email, name, role, institution_id) VALUES ('there@other.edu', 'Some Person', 'institutional_user', $1), ('there@archive.org', 'Some Person', 'admin', NULL)`, s.other.ID)
	own := ask[int64](s, `INSERT INTO users (email, name, role, institution_id) VALUES ('own@elsewhere.org', 'Some Person', 'institutional_user', $1) RETURNING id`, s.test.ID)
	for _, domain := range []string{"other.edu", "archive.org"} {
		for _, how := range [][2]string{
			{"POST", "/api/v1/users"}, {"PATCH", fmt.Sprint("/api/v1/users/", own)}, {"POST", "/api/v1/session/forgot"}, {"POST", "/api/v1/session"},
		} {
			ask := func(name string) answer {
				body := map[string]any{"email": name + "@" + domain}
				switch how[1] {
				case "/api/v1/users":
					body["name"], body["role"] = "Some Person", registry.RoleInstitutionalUser
				case "/api/v1/session":
					body["password"] = password
				}
				return c.do(how[0], how[1], body)
			}
			there, absent := ask("there"), ask("nobody")
			if there.status != absent.status || there.body != absent.body || there.status == http.StatusCreated {
				t.Errorf("%s %s: %d %s, and of an address that nobody has: %d %s", how[0], how[1], there.status, there.body, absent.status, absent.body)
			}
		}
	}
	for _, body := range []string{`{"email": "own@elsewhere.org", "name": "As it is"}`, `{"email": "own@Lib.test.edu"}`} {
		c.wants(200, "PATCH", fmt.Sprint("/api/v1/users/", own), body)
	}
}
