package console

import (
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
	"github.com/farol-preservation/farol/web/permission"
)

// auditPage is what people did.
type auditPage struct {
	Filter  url.Values
	Changes []tab // changes of policies, by their operations
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
func (v *visit) bounded() (days int) {
	q := v.query(auditFields()...)
	if _, own := v.Caller.Scope.Institution(); own != "" || len(q) == 0 {
		return 0
	}
	for _, name := range []string{"institution", "actor", "subject_id", "since", "before"} {
		if q.Has(name) {
			return 0
		}
	}
	given := v.URL.Query()
	given.Set("since", time.Now().In(v.zone()).AddDate(0, 0, -auditDays).Format(time.DateOnly))
	v.URL.RawQuery = given.Encode()
	return auditDays
}

func (p *Pages) audit(v *visit) (any, error) {
	d := auditPage{Days: v.bounded()}
	d.Filter = v.query(auditFields()...)
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
		d.Changes = append(d.Changes, tab{c.name, linkTo("/audit", "operation", c.operation), c.operation == d.Filter.Get("operation")})
	}
	q := v.query(append(auditFields(), "after")...)
	for _, name := range []string{"since", "before"} {
		if day, err := time.ParseInLocation(time.DateOnly, q.Get(name), v.zone()); err == nil {
			q.Set(name, day.UTC().Format(time.RFC3339))
		}
	}
	q.Set("limit", "50")
	found, err := get[listOf[record.ListedAction]](v, "actions", q)
	reason, broad := tooBroad(err)
	if err != nil && !broad {
		return nil, err
	}
	d.Broad, d.Actions, d.More = reason, found.Items, v.more(found.Next)
	if len(d.Filter) > 0 || q.Get("after") != "" {
		return d, nil
	}
	if v.Holds(permission.DeletionsRead) {
		if list, _ := optional[listOf[record.DeletionRequest]](v, "deletions", url.Values{"limit": {"10"}}); list != nil {
			d.Deletions = list.Items
		}
	}
	if v.Holds(permission.PlansRead) {
		if list, _ := optional[listOf[record.Plan]](v, "plans", url.Values{"limit": {"10"}}); list != nil {
			d.Plans = list.Items
		}
	}
	return d, nil
}

// samplePage is a sample of files, to be drawn again by others.
type samplePage struct {
	Filter url.Values
	Seed   string // that is proposed
	All    bool   // the person may choose an institution
	Sample *record.Sample
	Broad  string
	Again  string // address that draws the same
	JSON   string
	Bad    int64 // copies
	Unread int64
}

func (p *Pages) sample(v *visit) (any, error) {
	d := samplePage{Filter: v.query("institution", "seed", "n", "through"), All: v.Caller.Scope.All(), Seed: "audit " + time.Now().UTC().Format(time.DateOnly)}
	if d.Filter.Get("seed") == "" {
		return d, nil
	}
	found, err := get[record.Sample](v, "files/sample", d.Filter)
	reason, broad := tooBroad(err)
	if d.Broad = reason; broad {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Sample = &found
	for _, f := range found.Files {
		d.Bad, d.Unread = d.Bad+f.Bad, d.Unread+f.Unread
	}
	d.Filter.Set("through", str(found.Through))
	d.Again, d.JSON = "/audit/sample?"+d.Filter.Encode(), "/api/v1/files/sample?"+d.Filter.Encode()
	return d, nil
}

// exportsPage are the exports, and the form for another.
type exportsPage struct {
	Exports []record.ExportView
	More    string
	Kinds   []choice
	All     bool
	Filter  string // institution
	Object  string // that is proposed
}

func (p *Pages) exports(v *visit) (any, error) {
	d := exportsPage{All: v.Caller.Scope.All(), Filter: v.URL.Query().Get("institution"), Object: v.URL.Query().Get("object")}
	about := map[exports.Kind]string{
		"inventory": "Inventory: active files, as CSV", "manifest": "Manifest: the SHA-256 of files", "events": "Events, as JSON lines",
		"premis": "PREMIS 3, as XML", "evidence": "Evidence pack: all of this of one object, as ZIP",
	}
	for _, k := range exports.WithKinds(v.Caller.Person.Role == registry.RoleInstitutionalUser) {
		d.Kinds = append(d.Kinds, choice{string(k), about[k], string(k) == v.URL.Query().Get("kind")})
	}
	found, err := get[listOf[record.ExportView]](v, "exports", v.query("institution", "after"))
	d.Exports, d.More = found.Items, v.more(found.Next)
	return d, err
}
