package accounts

import (
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// auditPage is what people did.
type auditPage struct {
	Filter  url.Values
	Changes []frame.Tab // changes of policies, by their operations
	Actions []record.ListedAction
	More    string
	Broad   string
	Days    int // of the last days only, since no filter has an index; 0: all

	Deletions []record.DeletionRequest // with who requested and who approved
	Plans     []record.Plan
}

// auditFields are the fields of the address by which actions are narrowed.
func auditFields() []string {
	return []string{"institution", "actor", "operation", "subject_type", "subject_id", "outcome", "since", "before"}
}

// auditDays is how far back actions are looked for by what has no index.
const auditDays = 31

// bounded has actions that are narrowed by what has no index looked for in the last days. The
// address then has the day, so that further pages and the form are of the same days.
func bounded(v *frame.Visit) (days int) {
	q := v.Query(auditFields()...)
	if _, own := v.Caller.Scope.Institution(); own != "" || len(q) == 0 {
		return 0
	}
	for _, name := range []string{"institution", "actor", "subject_id", "since", "before"} {
		if q.Has(name) {
			return 0
		}
	}
	given := v.URL.Query()
	given.Set("since", time.Now().In(v.Zone()).AddDate(0, 0, -auditDays).Format(time.DateOnly))
	v.URL.RawQuery = given.Encode()
	return auditDays
}

func loadAudit(v *frame.Visit) (any, error) {
	d := auditPage{Days: bounded(v)}
	d.Filter = v.Query(auditFields()...)
	for _, c := range []struct{ name, operation string }{
		{"All", ""},
		{"Fixity promises", "fixity.set_policy"},
		{"Retention", "settings.set_storage"},
		{"Prices", "settings.set_prices"},
		{"Approvals of cost", "settings.set_requests"},
		{"Institutions", "institutions.set"},
		{"People", "users.set"},
		{"Stages", "stages.set"},
		{"Exports taken along", "exports.content"},
	} {
		d.Changes = append(d.Changes, frame.Tab{Name: c.name, Path: words.LinkTo("/audit", "operation", c.operation), Current: c.operation == d.Filter.Get("operation")})
	}
	q := v.Query(append(auditFields(), "after")...)
	for _, name := range []string{"since", "before"} {
		if day, err := time.ParseInLocation(time.DateOnly, q.Get(name), v.Zone()); err == nil {
			q.Set(name, day.UTC().Format(time.RFC3339))
		}
	}
	q.Set("limit", "50")
	found, err := frame.Get[frame.List[record.ListedAction]](v, "actions", q)
	reason, broad := frame.TooBroad(err)
	if err != nil && !broad {
		return nil, err
	}
	d.Broad, d.Actions, d.More = reason, found.Items, v.More(found.Next)
	if len(d.Filter) > 0 || q.Get("after") != "" {
		return d, nil
	}
	if v.Holds(permission.DeletionsRead) {
		if list, _ := frame.Optional[frame.List[record.DeletionRequest]](v, "deletions", url.Values{"limit": {"10"}}); list != nil {
			d.Deletions = list.Items
		}
	}
	if v.Holds(permission.PlansRead) {
		if list, _ := frame.Optional[frame.List[record.Plan]](v, "plans", url.Values{"limit": {"10"}}); list != nil {
			d.Plans = list.Items
		}
	}
	return d, nil
}
