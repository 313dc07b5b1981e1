package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// clientOf is the Go client of a person, who reaches the server at a URL.
func (c *caller) clientOf(url string) client.Registry {
	c.s.t.Helper()
	var all []string
	for _, p := range permission.Of(c.person.Role, c.person.InstitutionID != 0) {
		all = append(all, string(p))
	}
	made := must.Get(client.New(url, client.Options{Token: c.program(all...).token}))(c.s.t)
	return made.Registry()
}

// all reads a whole list.
func all[T any](t *testing.T, list iter.Seq2[T, error]) (found []T) {
	t.Helper()
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, v)
	}
	return found
}

// The types of the client have the fields that the API's document has, and no others.
func TestRecordsAreTheSchemasOfTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	c := s.browser()
	c.reads(c.wants(200, "GET", "/api/v1/openapi.json", nil), &doc)
	for _, of := range []any{
		record.WorkItem{},
		record.ItemView{},
		record.Obstacle{},
		record.ItemEstimate{},
		record.Interval{},
		record.RequeueStage{},
		record.Attempt{},
		record.Change{},
		record.Group{},
		record.StageSettings{},
		record.StagePause{},
		record.Worker{},
		record.Service{},
		record.Queue{},
		record.QueuePartition{},
		record.Schedule{},
		record.ListedObject{},
		record.ObjectView{},
		record.ObjectSummary{},
		record.ObjectCopies{},
		record.ObjectDeletion{},
		record.ListedFile{},
		record.FileView{},
		record.ListedCopy{},
		record.FileCopy{},
		record.CopyFailure{},
		record.Digest{},
		record.ListedChecksum{},
		record.ListedEvent{},
		record.Sample{},
		record.Institution{},
		record.PlanRequest{},
		record.PlanFilter{},
		record.Plan{},
		record.PlanView{},
		record.PlanItem{},
		record.PlanCause{},
		record.RestorationRequest{},
		record.Quote{},
		record.Restoration{},
		record.ShownRestoration{},
		record.DeletionCheck{},
		record.Undeletable{},
		record.DeletionRequest{},
		record.ListedNamed{},
		record.DeletedCopy{},
		record.DeletionReview{},
		record.Settings{},
		record.ExportRequest{},
		record.ExportScope{},
		record.ExportView{},
		record.DepositsReport{},
		record.CostsReport{},
		record.OutcomesReport{},
		record.FixityView{},
		record.FixityStatus{},
		record.FixityTarget{},
		record.FixityPolicy{},
		record.FixityBadCopy{},
		record.Profile{},
		record.SessionRow{},
		record.TokenView{},
		record.ServiceToken{},
		record.ListedAction{},
		record.ListedAlert{},
		record.MailSettings{},
	} {
		schema := reflect.TypeOf(of).Name()
		var want []string
		for name := range doc.Components.Schemas[schema].Properties {
			if name != "$schema" {
				want = append(want, name)
			}
		}
		got := fieldsOf(reflect.TypeOf(of))
		slices.Sort(want)
		slices.Sort(got)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%T has %v, and the API's %s has %v", of, got, schema, want)
		}
	}
}

// fieldsOf are the names that a type has in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type)...)
		case name != "" && name != "-" && f.Tag.Get("hidden") == "":
			names = append(names, name)
		}
	}
	return names
}

// A filter of the client has the parameters that the list has, and each is sent.
func TestClientSendsEachFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	b := s.browser()
	b.reads(b.wants(200, "GET", "/api/v1/openapi.json", nil), &doc)
	sent := map[string][]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.URL.Query() {
			sent[r.URL.Path] = append(sent[r.URL.Path], name)
		}
		fmt.Fprint(w, `{"items": []}`)
	}))
	defer server.Close()
	made := must.Get(client.New(server.URL, client.Options{}))(t)
	c, ctx := made.Registry(), t.Context()
	all(t, client.List[record.WorkItem](ctx, c, "items", full[record.ItemFilter]()))
	all(t, client.List[record.ListedObject](ctx, c, "objects", full[record.ObjectFilter]()))
	all(t, client.List[record.ListedFile](ctx, c, "files", full[record.FileFilter]()))
	all(t, client.List[record.ListedEvent](ctx, c, "events", full[record.EventFilter]()))
	all(t, client.List[record.Plan](ctx, c, "plans", full[record.PlanListFilter]()))
	all(t, client.List[record.WorkItem](ctx, c, "restorations", full[record.RestorationFilter]()))
	all(t, client.List[record.ExportView](ctx, c, "exports", full[record.ExportFilter]()))
	for _, path := range []string{"items", "objects", "files", "events", "plans", "restorations", "exports"} {
		var want []string
		for _, p := range doc.Paths["/api/v1/"+path]["get"].Parameters {
			if p.In == "query" && !slices.Contains([]string{"limit", "after", "before", "after_identifier", "count"}, p.Name) {
				want = append(want, p.Name)
			}
		}
		got := sent["/api/v1/"+path]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: sent %v, want %v", path, got, want)
		}
	}
}

// full is a filter that narrows by everything.
func full[T any]() (f T) {
	v := reflect.ValueOf(&f).Elem()
	for _, field := range v.Fields() {
		switch {
		case field.Type() == reflect.TypeFor[time.Time]():
			field.Set(reflect.ValueOf(time.Now()))
		case field.Kind() == reflect.String:
			field.SetString("x")
		case field.Kind() == reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
			field.Index(0).SetString("x")
		case field.Kind() == reflect.Int64:
			field.SetInt(1)
		case field.Kind() == reflect.Bool:
			field.SetBool(true)
		case field.Kind() == reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		default:
			panic(fmt.Sprintf("a filter has a %s", field.Type())) // which this test has to know
		}
	}
	return f
}

// What a person lists, shows and decides with the client is what the API has.
func TestClientReadsAndDecides(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.parked(s.test, 120) // several pages
	s.parked(s.other, 1)
	o, admin := s.in("operator@archive.org", registry.RoleOperator, "").clientOf(s.url), s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu").clientOf(s.url)
	ctx := t.Context()
	items := all(t, client.List[record.WorkItem](ctx, o, "items", record.ItemFilter{Status: []record.Status{"Failed", "Suspended"}, Institution: "test.edu"}))
	if len(items) != 120 || items[0].ID < items[119].ID || items[0].Name != "parked-120.tar" {
		t.Errorf("%d items, first %+v", len(items), items[0])
	}
	for _, err := range client.List[record.WorkItem](ctx, o, "items", nil) {
		if err != nil {
			t.Fatal(err)
		}
		break // which reads no other page
	}
	item := fmt.Sprintf("items/%d", items[0].ID)
	v, etag, err := client.Ask[record.ItemView](ctx, o, client.Call{Path: item})
	if err != nil || etag == "" || v.Status != "Failed" {
		t.Fatalf("item = %+v, %v", v, err)
	}
	decide := func(method, what, etag string, body any) (record.ItemView, string, error) {
		return client.Ask[record.ItemView](ctx, o, client.Call{Method: method, Path: item + what, IfMatch: etag, Body: body})
	}
	if v, etag, err = decide("PATCH", "", etag, map[string]int{"priority": -7}); err != nil || v.Priority != -7 {
		t.Errorf("priority = %+v, %v", v, err)
	}
	if v, _, err = decide("POST", "/requeue", etag, map[string]string{"stage": "Receive"}); err != nil || v.Stage != "Receive" || v.Status != "Pending" {
		t.Errorf("requeued = %+v, %v", v, err)
	}
	var refused *client.Error
	if _, _, err = decide("POST", "/cancel", `"1.2.true"`, map[string]string{"reason": "No."}); !errors.As(err, &refused) || refused.Status != 412 || refused.Code != "changed" {
		t.Errorf("by an old version: %v", err)
	}
	if v, _, err = decide("POST", "/cancel", "", map[string]string{"reason": "Trials."}); err != nil || v.Status != "Cancelled" || v.Note != "Trials." {
		t.Errorf("cancelled = %+v, %v", v, err)
	}
	if _, _, err = decide("POST", "/release", "", nil); !errors.As(err, &refused) || refused.Code != "refused" {
		t.Errorf("released: %v", err)
	}
	objects := all(t, client.List[record.ListedObject](ctx, admin, "objects", record.ObjectFilter{State: "A"}))
	if len(objects) != 1 || objects[0].Identifier != "test.edu/bag" {
		t.Fatalf("objects = %+v", objects)
	}
	x, err := client.Get[record.ObjectView](ctx, admin, "objects/by-identifier?identifier=test.edu/bag")
	if y, e := client.Get[record.ObjectView](ctx, admin, fmt.Sprintf("objects/%d", x.ID)); err != nil || e != nil || !reflect.DeepEqual(x, y) || x.Summary.Files != 1 {
		t.Errorf("object = %+v, %v; %+v, %v", x, err, y, e)
	}
	files := all(t, client.List[record.ListedFile](ctx, admin, "files", record.FileFilter{Object: "test.edu/bag"}))
	if len(files) != 1 || files[0].Copies != 1 {
		t.Fatalf("files = %+v", files)
	}
	file := fmt.Sprintf("files/%d", files[0].ID)
	if f, err := client.Get[record.FileView](ctx, admin, "files/by-identifier?identifier=test.edu/bag/data/f"); err != nil || f.ID != files[0].ID || len(f.Copies) != 1 || len(f.Digests) != 1 {
		t.Errorf("file = %+v, %v", f, err)
	}
	if f, err := client.Get[record.FileView](ctx, admin, file); err != nil || f.Identifier != "test.edu/bag/data/f" {
		t.Errorf("file = %+v, %v", f, err)
	}
	copies, sums := all(t, client.List[record.ListedCopy](ctx, admin, file+"/copies", nil)), all(t, client.List[record.ListedChecksum](ctx, admin, file+"/checksums", nil))
	if len(copies) != 1 || copies[0].Target != "Standard-VA" || len(sums) != 1 || sums[0].Algorithm != "md5" {
		t.Errorf("copies = %+v, checksums = %+v", copies, sums)
	}
	if events := all(t, client.List[record.ListedEvent](ctx, admin, "events", record.EventFilter{Object: x.ID})); len(events) != 1 || events[0].EventType != "ingestion" {
		t.Errorf("events = %+v", events)
	}
	if _, err := client.Get[record.ObjectView](ctx, admin, "objects/by-identifier?identifier=other.edu/bag"); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("another's object: %v", err)
	}
	for _, err := range client.List[record.ListedEvent](ctx, admin, "events", nil) {
		if !errors.As(err, &refused) || refused.Code != "too-broad" {
			t.Errorf("all events: %v", err)
		}
	}
}

// The client makes a plan and follows it, asks for what is stored, and has it deleted by two.
func TestClientPlansAndRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	s.parked(s.test, 3)
	operator := s.in("operator@archive.org", registry.RoleOperator, "")
	o, admin := operator.clientOf(s.url), s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu").clientOf(s.url)
	second := s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	ctx := t.Context()
	p, etag, err := client.Ask[record.PlanView](ctx, o, client.Call{Method: "POST", Path: "plans", Body: record.PlanRequest{Action: "requeue", Filter: record.PlanFilter{ErrorCode: "timeout"}}})
	if err != nil || p.Items != 3 || len(p.Sample) != 3 {
		t.Fatalf("plan = %+v, %v", p, err)
	}
	plan := fmt.Sprintf("plans/%d", p.ID)
	if _, _, err := client.Ask[record.PlanView](ctx, o, client.Call{Method: "POST", Path: plan + "/apply", IfMatch: etag, Body: map[string]float64{"tolerance": 5}}); err != nil {
		t.Fatal(err)
	}
	operator.until(p.ID, "applied")
	if done := all(t, client.List[record.PlanItem](ctx, o, plan+"/items?state=done", nil)); len(done) != 3 || done[0].Status != "Failed" {
		t.Errorf("items of the plan = %+v", done)
	}
	must.Get(client.Post[record.PlanView](ctx, o, plan+"/undo", nil))(t)
	operator.until(p.ID, "undone")
	if list := all(t, client.List[record.Plan](ctx, o, "plans", record.PlanListFilter{State: []string{"undone"}})); len(list) != 1 || list[0].ID != p.ID {
		t.Errorf("plans = %+v", list)
	}
	if p, etag, err = client.Ask[record.PlanView](ctx, o, client.Call{Path: plan}); err != nil || p.State != "undone" {
		t.Errorf("plan = %+v, %v", p, err)
	}
	if _, err := o.Do(ctx, client.Call{Method: "DELETE", Path: plan, IfMatch: etag}, nil); err != nil {
		t.Error(err)
	}
	q, err := client.Post[record.Quote](ctx, admin, "restorations/quote", record.RestorationRequest{Object: "test.edu/bag"})
	if err != nil || q.Files != 1 || q.NeedsApproval {
		t.Errorf("quote = %+v, %v", q, err)
	}
	r, err := client.Post[record.Restoration](ctx, admin, "restorations", record.RestorationRequest{File: "test.edu/bag/data/f"})
	if list := all(t, client.List[record.WorkItem](ctx, admin, "restorations", record.RestorationFilter{Object: "test.edu/bag"})); err != nil || len(list) != 1 || list[0].ID != r.Item.ID {
		t.Errorf("restorations = %+v, %v", list, err)
	}
	var refused *client.Error
	if _, err := client.Post[struct{}](ctx, admin, fmt.Sprintf("restorations/%d/approve", r.Item.ID), nil); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("approved what costs nothing: %v", err)
	}
	cancelled, err := client.Post[record.ShownRestoration](ctx, admin, fmt.Sprintf("restorations/%d/cancel", r.Item.ID), map[string]string{"reason": "Not needed."})
	if w := cancelled.Item; err != nil || w.ID != r.Item.ID || w.Status != "Cancelled" || !strings.Contains(w.Note, "Not needed.") {
		t.Errorf("cancelled = %+v, %v", w, err)
	}
	c, err := client.Post[record.DeletionCheck](ctx, admin, "deletions/check", map[string][]string{"identifiers": {"test.edu/bag"}})
	if err != nil || c.Objects != 1 || c.RefusedCount != 0 {
		t.Errorf("check = %+v, %v", c, err)
	}
	request := map[string][]string{"identifiers": {"test.edu/bag/data/f"}}
	d := must.Get(client.Post[record.DeletionRequest](ctx, admin, "deletions", request))(t)
	if d, err = client.Post[record.DeletionRequest](ctx, admin, fmt.Sprintf("deletions/%d/cancel", d.ID), map[string]string{"reason": "Kept."}); err != nil || d.CancelledBy != "admin@test.edu" || d.Reason != "Kept." {
		t.Errorf("cancelled = %+v, %v", d, err)
	}
	if d, err = client.Post[record.DeletionRequest](ctx, admin, "deletions", request); err != nil {
		t.Fatal(err)
	}
	second.wants(200, "POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil)
	deletion := fmt.Sprintf("deletions/%d", d.ID)
	if d, err = client.Get[record.DeletionRequest](ctx, admin, deletion); err != nil || d.Items != 1 || d.ApprovedAs != "second@test.edu" {
		t.Errorf("deletion = %+v, %v", d, err)
	}
	if list := all(t, client.List[record.DeletionRequest](ctx, admin, "deletions?institution=test.edu&state=approved", nil)); len(list) != 1 || list[0].ID != d.ID {
		t.Errorf("deletions = %+v", list)
	}
	named, receipts := all(t, client.List[record.ListedNamed](ctx, admin, deletion+"/named", nil)), all(t, client.List[record.DeletedCopy](ctx, admin, deletion+"/receipts", nil))
	if len(named) != 1 || named[0].Kind != "file" || len(receipts) != 0 {
		t.Errorf("named = %+v, receipts = %+v", named, receipts)
	}
}

// A download is whole, or an error.
func TestClientDownloadsExports(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	admin := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	c := admin.clientOf(s.url)
	e, err := client.Post[record.ExportView](t.Context(), c, "exports", record.ExportRequest{Kind: "inventory"})
	if err != nil || e.Content == nil || e.Institution != "test.edu" {
		t.Fatalf("export = %+v, %v", e, err)
	}
	var text strings.Builder
	digest, err := c.DownloadExport(t.Context(), e.ID, &text)
	if err != nil || !strings.Contains(text.String(), "test.edu/bag/data/f") {
		t.Errorf("content = %s, %v", text.String(), err)
	}
	if list := all(t, client.List[record.ExportView](t.Context(), c, "exports", record.ExportFilter{Institution: "test.edu"})); len(list) != 1 || list[0].ID != e.ID {
		t.Errorf("exports = %+v", list)
	}
	if e, err = client.Get[record.ExportView](t.Context(), c, fmt.Sprintf("exports/%d", e.ID)); err != nil || e.SHA256 == nil || *e.SHA256 != digest || *e.Records != 1 {
		t.Errorf("export = %+v, %v, want the digest %s", e, err, digest)
	}
	var refused *client.Error
	if _, err := c.DownloadExport(t.Context(), 999999, io.Discard); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("no such export: %v", err)
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"without a digest": func(w http.ResponseWriter) { fmt.Fprint(w, "content") },
		"of another content": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "Repr-Digest")
			fmt.Fprint(w, "content")
			w.Header().Set("Repr-Digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")
		},
		"cut off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "content")
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		bad := must.Get(client.New(server.URL, client.Options{}))(t)
		if _, err := bad.Registry().DownloadExport(t.Context(), 1, io.Discard); err == nil {
			t.Errorf("a download %s is taken for whole", name)
		}
		server.Close()
	}
}

// A line that loses answers has nothing done twice.
func TestClientThroughTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	admin := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu").clientOf(testenv.LossyServer(t, s.url))
	for range 6 {
		d := must.Get(client.Post[record.DeletionRequest](t.Context(), admin, "deletions", map[string][]string{"identifiers": {"test.edu/bag/data/f"}}))(t)
		must.Get(client.Post[record.DeletionRequest](t.Context(), admin, fmt.Sprintf("deletions/%d/cancel", d.ID), map[string]string{}))(t)
	}
	if n := ask[int](s, `SELECT count(*) FROM deletion_requests`); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}
}

// A token goes to no other server, whatever an answer says.
func TestClientStaysAtItsServer(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"https://evil.example/api/v1/items", "//evil.example/api/v1/", "@evil.example/", "/elsewhere", ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"items": [], "next": %q}`, next)
		}))
		c := must.Get(client.New(server.URL, client.Options{Token: "secret", RetryFor: -1}))(t)
		failed := false
		for _, err := range client.List[record.WorkItem](t.Context(), c.Registry(), "items", nil) {
			failed = err != nil
		}
		if !failed {
			t.Errorf("next %q is followed", next)
		}
		server.Close()
	}
}

// So is what is changed or removed: what was lost is the answer, and not the change.
func TestClientChangesThroughTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.parked(s.test, 3)
	o := s.in("operator@archive.org", registry.RoleOperator, "").clientOf(testenv.LossyServer(t, s.url))
	item := fmt.Sprintf("items/%d", s.ids(s.test)["items"])
	for n := range 6 {
		var etag string
		for range 1 + n%2 { // so that answers of each kind are lost
			var err error
			if _, etag, err = client.Ask[record.ItemView](t.Context(), o, client.Call{Path: item}); err != nil {
				t.Fatal(err)
			}
		}
		v, _, err := client.Ask[record.ItemView](t.Context(), o, client.Call{Method: "PATCH", Path: item, IfMatch: etag, Body: map[string]int{"priority": n - 20}})
		if err != nil || v.Priority != n-20 {
			t.Errorf("priority %d: %+v, %v", n-20, v.Priority, err)
		}
		p := must.Get(client.Post[record.PlanView](t.Context(), o, "plans", record.PlanRequest{Action: "requeue", Filter: record.PlanFilter{ErrorCode: "timeout"}}))(t)
		if _, err := o.Do(t.Context(), client.Call{Method: "DELETE", Path: fmt.Sprintf("plans/%d", p.ID)}, nil); err != nil {
			t.Errorf("plan %d: %v", p.ID, err)
		}
	}
}

// A request without a key is sent once: it may have been carried out. One whose key is in
// work is asked about again.
func TestClientRepeatsWhatIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	var came int
	answers := []int{http.StatusBadGateway, http.StatusConflict, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers[came] == http.StatusConflict {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(answers[came])
		came++
		fmt.Fprint(w, `{}`)
	}))
	defer server.Close()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Registry().Do(t.Context(), client.Call{Method: "POST", Path: "tokens", NoKey: true}, nil); err == nil || came != 1 {
		t.Errorf("without a key it was sent %d times: %v", came, err)
	}
	came = 0
	if _, err := c.Registry().Do(t.Context(), client.Call{Method: "DELETE", Path: "plans/7"}, nil); err != nil || came != 3 {
		t.Errorf("with a key it was sent %d times: %v", came, err)
	}
	lists := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"items": [], "next": "/api/v1/items?after=x"}`)
	}))
	defer lists.Close()
	if c, err = client.New(lists.URL, client.Options{}); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, err := range client.List[record.WorkItem](t.Context(), c.Registry(), "items", nil) {
		if failed++; err == nil || failed > 1 {
			t.Fatalf("a list that leads to itself: %v", err)
		}
	}
}
