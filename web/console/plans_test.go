package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// A group of failures leads to a plan; that is made, approved by a second person, applied and
// undone.
func TestPlanOfAGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parked(5) // one person may change 3
	s.item("parked "+hostileText+".tar", `status = 'Failed', stage = 'Store', retry = false, needs_admin_review = true, claim_token = 3, entered_token = 2, error_code = 'timeout'`)
	maker, second := s.in(registry.RoleOperator, ""), s.in(registry.RoleOperator, "")
	group := maker.sees("/items/groups", "6 items wait for a person, in 1 group.", "timeout at Store", "The stage exceeded its timeout", "Whose fault: the system's", "then requeue the group", "6 items")
	to := "/plans/new?action=Ingest&error_code=timeout&stage=Store&status=Failed&status=Suspended"
	if !strings.Contains(group.text, `href="`+strings.ReplaceAll(to, "&", "&amp;")+`"`) {
		t.Fatalf("the group does not lead to %s: %s", to, group.text)
	}
	group.shows(t, "Parked in the last 24 hours: 6, at most 6 in an hour", "By institution: 1 institution test.edu: 6 items , plan for them")
	for id := range int64(2) {
		s.forced(id+1, `error_code = '', updated_at = now() - interval '25 hours'`)
	}
	bare := "/plans/new?action=Ingest&institution=test.edu&no_error_code=true&stage=Store&status=Failed&status=Suspended"
	testenv.Eventually(t, "the groups to be counted again", func() bool { return strings.Contains(maker.open("/items/groups").text, "No code") })
	if text := maker.sees("/items/groups", "Parked in the last 24 hours: 0.").text; !strings.Contains(text, `href="`+strings.ReplaceAll(bare, "&", "&amp;")+`"`) {
		t.Errorf("the group without a code does not lead to %s: %s", bare, text)
	}
	of := maker.sees(bare, "Only those without an error code true").formOf(t, "plans.make", "action", "requeue")
	maker.done("plans.make", of).shows(t, "2 met the condition", "parked-1.tar")
	s.exec(`UPDATE work_items SET error_code = 'timeout', updated_at = now() WHERE error_code = ''`)
	s.exec(`DELETE FROM plans`)
	chosen := maker.sees(to, "Status Failed or Suspended Stage Store Action Ingest Error code timeout Requeue", "more than 3 items")
	form := chosen.formOf(t, "plans.make", "action", "requeue")
	form.Set("stage", "Validate")
	page := maker.done("plans.make", form)
	page.shows(t, "requeue to Validate", "it changes 6 items; above 3, another person has to approve it first", "6 met the condition", "You have made this plan, so you cannot approve it", "planned 6")
	page.escaped(t, made)
	path := page.path
	if got := ask[string](s, `SELECT action || ' ' || to_stage || ' ' || items || ' ' || created_by FROM plans`); got != "requeue Validate 6 "+maker.person.Email {
		t.Errorf("the plan is: %s", got)
	}
	if strings.Contains(page.text, "/do/plans.apply") || strings.Contains(page.text, "/do/plans.approve") {
		t.Error("the maker may apply or approve a large plan")
	}
	approve := second.sees(path, "Nobody approves a plan of their own").form(t, "plans.approve")
	maker.refused("plans.approve", approve, http.StatusConflict, "Nobody approves a plan of their own")
	second.sees("/plans", "requeue to Validate", "waits for a second person")
	due := fmt.Sprintf("Plan %s (requeue to Validate, 6 items) of %s waits for your approval.", strings.TrimPrefix(path, "/plans/"), maker.person.Email)
	second.sees("/", due).lacks(t, "Plans under way")
	maker.sees("/", "Plans under way", "6 items", "waits for a second person").lacks(t, due)
	s.in(registry.RoleAuditor, "").sees("/").lacks(t, "waits for your approval", "Plans under way")
	apply := second.done("plans.approve", approve).form(t, "plans.apply")
	mine := maker.sees(path, "it changes 6 items when it is applied", second.person.Email).form(t, "plans.apply")
	second.sees("/").lacks(t, due)
	s.exec(`UPDATE sessions SET strong_at = now() - interval '1 day' WHERE user_id = $1`, maker.person.ID)
	proof := maker.send("/do/plans.apply", mine) // whose form is sent again with the proof
	proof.shows(t, "Prove once more who you are")
	s.exec(`UPDATE sessions SET strong_at = now() WHERE user_id = $1`, maker.person.ID)
	again := answer{text: strings.ReplaceAll(proof.text, "/proof/", "/do/")}.form(t, "plans.apply")
	again.Del("proof")
	maker.done("plans.apply", again)
	testenv.Eventually(t, "the plan to be applied", func() bool { return strings.Contains(wordsIn(maker.open(path).text), "✓ applied") })
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`); n != 6 {
		t.Errorf("%d of 6 items are requeued", n)
	}
	second.refused("plans.apply", apply, http.StatusPreconditionFailed, "changed", `value="5"`)
	s.exec(`UPDATE plans SET state = 'applying', applied_at = NULL, carry = NULL, carry_for = NULL, counts = '{"planned": 3, "done": 3}'`) // as if its server had died
	second.sees("/", "(requeue to Validate, 6 items) is not at its end, and no server carries it out")
	busy, err := s.db.Begin(t.Context()) // another process holds the plan
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Rollback(t.Context()) //nolint:errcheck // it is committed before
	must.Get(busy.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('farol plan', id)) FROM plans`))(t)
	s.exec(`UPDATE plans SET state = 'undoing', counts = '{"undone": 3, "done": 1}', carry = 'undo', carry_for = 'ann'`)
	second.sees("/", "Plans under way", "undoing 75 %")
	s.exec(`UPDATE plans SET state = 'applied', applied_at = now(), counts = '{"done": 6}', carry = NULL, carry_for = NULL`)
	must.Do(t, busy.Commit(t.Context()))
	maker.sees(path+"?items=done", "Items that are done", "parked-1.tar")
	maker.done("plans.undo", maker.open(path).form(t, "plans.undo"))
	testenv.Eventually(t, "the plan to be undone", func() bool { return ask[string](s, `SELECT state FROM plans`) == "undone" })
	if n := ask[int](s, `SELECT count(*) FROM work_items WHERE stage = 'Store' AND status = 'Failed' AND error_code = 'timeout'`); n != 6 {
		t.Errorf("%d of 6 items are restored", n)
	}
	maker.done("plans.delete", maker.open(path).form(t, "plans.delete"))
	maker.sees("/plans", "No plans yet.")
}

// A plan for chosen items is about these, and says by what it cannot be narrowed. What cannot
// be planned is refused, with what was typed.
func TestPlanOfChosenItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one, two, ended := s.item("one.tar", ""), s.item("two.tar", ""), s.item("ended.tar", `status = 'Cancelled'`)
	o := s.in(registry.RoleOperator, "")
	page := o.sees(fmt.Sprintf("/plans/new?ids=%d&ids=%d&plan=7", one, ended), fmt.Sprintf("Items 2 items: %d, %d", one, ended), "narrowed by “plan”")
	form := page.formOf(t, "plans.make", "action", "set priority")
	form.Set("priority", "900")
	form = o.refused("plans.make", form, http.StatusBadRequest, "priority", `value="900"`).form(t, "plans.make")
	form.Set("priority", "-7")
	plan := o.done("plans.make", form)
	plan.shows(t, "set priority -7", "it changes 1 item when it is applied", "of these 1 are refused", "Not as planned", "refused")
	s.exec(`UPDATE idempotency_keys SET status = NULL, body = NULL WHERE key = $1 AND done`, form.Get("key")) // as if the server had died then
	lost := o.send("/do/plans.make", form)
	lost.shows(t, "Done, but its answer was lost", "Nothing is carried out a second time")
	if lost.status != http.StatusConflict || strings.Contains(lost.text, `action="/do/plans.make"`) || !strings.Contains(lost.text, `href="/plans">Look at it`) {
		t.Errorf("a form whose answer was lost: %d %s", lost.status, lost.text)
	}
	if n := ask[int](s, `SELECT count(*) FROM plans`); n != 1 {
		t.Errorf("%d plans were made by one form", n)
	}
	apply := plan.form(t, "plans.apply")
	o.done("plans.apply", apply)
	testenv.Eventually(t, "the plan to be applied", func() bool { return ask[string](s, `SELECT state FROM plans`) == "applied" })
	if got := ask[string](s, `SELECT string_agg(id || ':' || priority, ' ' ORDER BY id) FROM all_work_items WHERE id IN ($1, $2)`, one, two); got != fmt.Sprintf("%d:-7 %d:0", one, two) {
		t.Errorf("the priorities are %s", got)
	}
	o.sees("/plans/new", "At least one field is needed")
	if a := s.in(registry.RoleInstitutionalAdmin, "test.edu").send("/do/plans.make", url.Values{"action": {"cancel"}, "filter.ids": {fmt.Sprint(one)}}); a.status != http.StatusForbidden {
		t.Errorf("a member makes plans: %d", a.status)
	}
	if a := o.open("/plans/99"); a.status != http.StatusNotFound {
		t.Errorf("a plan that is not there: %d", a.status)
	}
}
