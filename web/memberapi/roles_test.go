package memberapi_test

import (
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// Hosts and processes are shown to those who look after them, as in /api/v1.
func TestHostsAreForThoseWhoLookAfterThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	testenv.Scene(t, s.db, `UPDATE work_items SET status = 'Started', node = 'host-7', pid = 77, worker = 'w', lease_expires_at = now() + interval '1 hour', claim_token = 1, attempt = 1 WHERE id = 91`)
	operator := s.tool("operator@example.org", registry.RoleOperator, "", "items.read", "items.workers")
	for who, u := range map[string]tool{"a depositor": s.ann, "staff without items.workers": s.staff, "an operator": operator} {
		node, pid := any(""), any(0.0)
		if u.person.ID == operator.person.ID {
			node, pid = "host-7", 77.0
		}
		shown, listed := u.gets("items/show/91").body, u.gets("items?node__not_null=true").results()
		if shown["node"] != node || shown["pid"] != pid || len(listed) != 1 || listed[0]["node"] != node || listed[0]["pid"] != pid {
			t.Errorf("%s reads %v %v, and in the list %v", who, shown["node"], shown["pid"], listed)
		}
	}
}

// Operators have the alerts for the staff, and no depositor's.
func TestOperatorsReadTheAlertsOfTheStaff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	operator := s.tool("operator@example.org", registry.RoleOperator, "", "alerts.read")
	testenv.Scene(t, s.db, `INSERT INTO alerts (type, subject, content) VALUES ('Worker Lost', 'Staff', 'Content')`)
	if a := operator.gets("alerts"); a.body["count"] != 1.0 || a.each("subject")[0] != "Staff" {
		t.Errorf("an operator lists %s", a.text)
	}
	if a := s.staff.gets("alerts"); a.body["count"] != 7.0 {
		t.Errorf("the staff lists %v alerts", a.body["count"])
	}
	of := func(id string) string { return "/member-api/v3/alerts/show/" + id + "/4" }
	if a := operator.do("GET", of("7")); a.status != 200 || a.body["subject"] != "Staff" {
		t.Errorf("an alert of the staff: %d %s", a.status, a.text)
	}
	depositors, nothing := operator.do("GET", of("1")), operator.do("GET", of("99"))
	if depositors.status != 404 || depositors.text != nothing.text {
		t.Errorf("an alert of a depositor: %d %s", depositors.status, depositors.text)
	}
}
