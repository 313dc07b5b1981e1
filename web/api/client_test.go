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
	"github.com/farol-preservation/farol/internal/testenv"
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
	made, err := client.New(url, client.Options{Token: c.program(all...).token})
	if err != nil {
		c.s.t.Fatal(err)
	}
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
func TestClientHasTheFieldsOfTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	c := s.browser()
	c.reads(c.wants(200, "GET", "/api/v1/openapi.json", nil), &doc)
	for schema, of := range map[string]any{
		"WorkItem": client.WorkItem{}, "ItemView": client.ShownItem{}, "Obstacle": client.Obstacle{}, "ItemEstimate": client.ItemEstimate{}, "Interval": client.Interval{}, "ListedObject": client.ListedObject{}, "ObjectView": client.Object{},
		"ObjectSummary": client.ObjectSummary{}, "ListedFile": client.ListedFile{}, "ListedCopy": client.Copy{}, "FileView": client.File{}, "Digest": client.Digest{}, "FileCopy": client.FileCopy{},
		"CopyFailure": client.CopyFailure{}, "ObjectCopies": client.ObjectCopies{}, "ObjectDeletion": client.ObjectDeletion{}, "ListedChecksum": client.Checksum{},
		"ListedEvent": client.Event{}, "PlanFilter": client.PlanFilter{}, "PlanMakeBody": client.PlanRequest{}, "Plan": client.Plan{}, "View": client.ShownPlan{},
		"Item": client.PlanItem{}, "Cause": client.PlanCause{}, "RestorationBody": client.RestorationRequest{}, "Quote": client.Quote{}, "Restoration": client.Restoration{},
		"DeletionCheck": client.DeletionCheck{}, "Undeletable": client.Undeletable{}, "DeletionRequest": client.Deletion{},
		"ListedNamed": client.NamedRecord{}, "DeletedCopy": client.Receipt{}, "ExportView": client.Export{}, "ExportScope": client.ExportScope{}, "ExportBodyBody": client.ExportRequest{},
	} {
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
		case name != "-":
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
	made, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := made.Registry(), t.Context()
	all(t, c.Items(ctx, full[client.ItemFilter]()))
	all(t, c.Objects(ctx, full[client.ObjectFilter]()))
	all(t, c.Files(ctx, full[client.FileFilter]()))
	all(t, c.Events(ctx, full[client.EventFilter]()))
	all(t, c.Plans(ctx, "ready"))
	all(t, c.Restorations(ctx, full[client.RestorationFilter]()))
	all(t, c.Exports(ctx, "test.edu"))
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
		switch x := field.Addr().Interface().(type) {
		case *string:
			*x = "x"
		case *[]string:
			*x = []string{"x"}
		case *int64:
			*x = 1
		case **int64:
			*x = new(int64)
		case *bool:
			*x = true
		case *time.Time:
			*x = time.Now()
		default:
			panic(fmt.Sprintf("a filter has a %T", x)) // which this test has to know
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
	items := all(t, o.Items(ctx, client.ItemFilter{Status: []string{"Failed", "Suspended"}, Institution: "test.edu"}))
	if len(items) != 120 || items[0].ID < items[119].ID || items[0].Name != "parked-120.tar" {
		t.Errorf("%d items, first %+v", len(items), items[0])
	}
	for _, err := range o.Items(ctx, client.ItemFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		break // which reads no other page
	}
	id := items[0].ID
	v, err := o.Item(ctx, id)
	if err != nil || v.Version == "" || v.Status != "Failed" {
		t.Fatalf("item = %+v, %v", v, err)
	}
	if v, err = o.SetPriority(ctx, id, -7, v.Version); err != nil || v.Priority != -7 {
		t.Errorf("priority = %+v, %v", v, err)
	}
	if v, err = o.RequeueItem(ctx, id, "Receive", v.Version); err != nil || v.Stage != "Receive" || v.Status != "Pending" {
		t.Errorf("requeued = %+v, %v", v, err)
	}
	var refused *client.Error
	if _, err = o.CancelItem(ctx, id, "No.", `"1.2.true"`); !errors.As(err, &refused) || refused.Status != 412 || refused.Code != "changed" {
		t.Errorf("by an old version: %v", err)
	}
	if v, err = o.CancelItem(ctx, id, "Trials.", ""); err != nil || v.Status != "Cancelled" || v.Note != "Trials." {
		t.Errorf("cancelled = %+v, %v", v, err)
	}
	if _, err = o.ReleaseItem(ctx, id, ""); !errors.As(err, &refused) || refused.Code != "refused" {
		t.Errorf("released: %v", err)
	}
	objects := all(t, admin.Objects(ctx, client.ObjectFilter{State: "A"}))
	if len(objects) != 1 || objects[0].Identifier != "test.edu/bag" {
		t.Fatalf("objects = %+v", objects)
	}
	x, err := admin.ObjectByIdentifier(ctx, "test.edu/bag")
	if y, e := admin.Object(ctx, x.ID); err != nil || e != nil || !reflect.DeepEqual(x, y) || x.Summary.Files != 1 {
		t.Errorf("object = %+v, %v; %+v, %v", x, err, y, e)
	}
	files := all(t, admin.Files(ctx, client.FileFilter{Object: "test.edu/bag"}))
	if len(files) != 1 || files[0].Copies != 1 {
		t.Fatalf("files = %+v", files)
	}
	if f, err := admin.FileByIdentifier(ctx, "test.edu/bag/data/f"); err != nil || f.ID != files[0].ID || len(f.Copies) != 1 || len(f.Digests) != 1 {
		t.Errorf("file = %+v, %v", f, err)
	}
	if f, err := admin.File(ctx, files[0].ID); err != nil || f.Identifier != "test.edu/bag/data/f" {
		t.Errorf("file = %+v, %v", f, err)
	}
	copies, sums := all(t, admin.Copies(ctx, files[0].ID)), all(t, admin.Checksums(ctx, files[0].ID))
	if len(copies) != 1 || copies[0].Target != "Standard-VA" || len(sums) != 1 || sums[0].Algorithm != "md5" {
		t.Errorf("copies = %+v, checksums = %+v", copies, sums)
	}
	if events := all(t, admin.Events(ctx, client.EventFilter{Object: x.ID})); len(events) != 1 || events[0].EventType != "ingestion" {
		t.Errorf("events = %+v", events)
	}
	if _, err := admin.ObjectByIdentifier(ctx, "other.edu/bag"); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("another's object: %v", err)
	}
	for _, err := range admin.Events(ctx, client.EventFilter{}) {
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
	p, err := o.MakePlan(ctx, client.PlanRequest{Action: "requeue", Filter: client.PlanFilter{ErrorCode: "timeout"}})
	if err != nil || p.Items != 3 || len(p.Sample) != 3 {
		t.Fatalf("plan = %+v, %v", p, err)
	}
	if _, err := o.ApplyPlan(ctx, p.ID, 5, p.Version); err != nil {
		t.Fatal(err)
	}
	operator.until(p.ID, "applied")
	if done := all(t, o.PlanItems(ctx, p.ID, "done")); len(done) != 3 || done[0].Status != "Failed" {
		t.Errorf("items of the plan = %+v", done)
	}
	if _, err := o.UndoPlan(ctx, p.ID, ""); err != nil {
		t.Fatal(err)
	}
	operator.until(p.ID, "undone")
	if list := all(t, o.Plans(ctx, "undone")); len(list) != 1 || list[0].ID != p.ID {
		t.Errorf("plans = %+v", list)
	}
	if p, err = o.Plan(ctx, p.ID); err != nil || p.State != "undone" || o.DeletePlan(ctx, p.ID, p.Version) != nil {
		t.Errorf("plan = %+v, %v", p, err)
	}
	q, err := admin.QuoteRestoration(ctx, client.RestorationRequest{Object: "test.edu/bag"})
	if err != nil || q.Files != 1 || q.NeedsApproval {
		t.Errorf("quote = %+v, %v", q, err)
	}
	r, err := admin.Restore(ctx, client.RestorationRequest{File: "test.edu/bag/data/f"})
	if list := all(t, admin.Restorations(ctx, client.RestorationFilter{Object: "test.edu/bag"})); err != nil || len(list) != 1 || list[0].ID != r.Item.ID {
		t.Errorf("restorations = %+v, %v", list, err)
	}
	var refused *client.Error
	if err := admin.ApproveRestoration(ctx, r.Item.ID); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("approved what costs nothing: %v", err)
	}
	if w, err := admin.CancelRestoration(ctx, r.Item.ID, "Not needed."); err != nil || w.ID != r.Item.ID || w.Status != "Cancelled" || !strings.Contains(w.Note, "Not needed.") {
		t.Errorf("cancelled = %+v, %v", w, err)
	}
	c, err := admin.CheckDeletion(ctx, []string{"test.edu/bag"})
	if err != nil || c.Objects != 1 || c.RefusedCount != 0 {
		t.Errorf("check = %+v, %v", c, err)
	}
	d, err := admin.RequestDeletion(ctx, []string{"test.edu/bag/data/f"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = admin.CancelDeletion(ctx, d.ID, "Kept."); err != nil || d.CancelledBy != "admin@test.edu" || d.Reason != "Kept." {
		t.Errorf("cancelled = %+v, %v", d, err)
	}
	if d, err = admin.RequestDeletion(ctx, []string{"test.edu/bag/data/f"}); err != nil {
		t.Fatal(err)
	}
	second.wants(200, "POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil)
	if d, err = admin.Deletion(ctx, d.ID); err != nil || d.Items != 1 || d.ApprovedAs != "second@test.edu" {
		t.Errorf("deletion = %+v, %v", d, err)
	}
	if list := all(t, admin.Deletions(ctx, "test.edu", "approved")); len(list) != 1 || list[0].ID != d.ID {
		t.Errorf("deletions = %+v", list)
	}
	named, receipts := all(t, admin.NamedBy(ctx, d.ID)), all(t, admin.Receipts(ctx, d.ID))
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
	e, err := c.MakeExport(t.Context(), client.ExportRequest{Kind: "inventory"})
	if err != nil || e.Content == nil || e.Institution != "test.edu" {
		t.Fatalf("export = %+v, %v", e, err)
	}
	var text strings.Builder
	digest, err := c.DownloadExport(t.Context(), e.ID, &text)
	if err != nil || !strings.Contains(text.String(), "test.edu/bag/data/f") {
		t.Errorf("content = %s, %v", text.String(), err)
	}
	if list := all(t, c.Exports(t.Context(), "test.edu")); len(list) != 1 || list[0].ID != e.ID {
		t.Errorf("exports = %+v", list)
	}
	if e, err = c.Export(t.Context(), e.ID); err != nil || e.SHA256 == nil || *e.SHA256 != digest || *e.Records != 1 {
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
		bad, err := client.New(server.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
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
		d, err := admin.RequestDeletion(t.Context(), []string{"test.edu/bag/data/f"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CancelDeletion(t.Context(), d.ID, ""); err != nil {
			t.Fatal(err)
		}
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
		c, err := client.New(server.URL, client.Options{Token: "secret", RetryFor: -1})
		if err != nil {
			t.Fatal(err)
		}
		failed := false
		for _, err := range c.Registry().Items(t.Context(), client.ItemFilter{}) {
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
	id := s.ids(s.test)["items"]
	for n := range 6 {
		var v client.ShownItem
		for range 1 + n%2 { // so that answers of each kind are lost
			var err error
			if v, err = o.Item(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if v, err = o.SetPriority(t.Context(), id, n-20, v.Version); err != nil || v.Priority != n-20 {
			t.Errorf("priority %d: %+v, %v", n-20, v.Priority, err)
		}
		p, err := o.MakePlan(t.Context(), client.PlanRequest{Action: "requeue", Filter: client.PlanFilter{ErrorCode: "timeout"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.DeletePlan(t.Context(), p.ID, ""); err != nil {
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
	for _, err := range c.Registry().Items(t.Context(), client.ItemFilter{}) {
		if failed++; err == nil || failed > 1 {
			t.Fatalf("a list that leads to itself: %v", err)
		}
	}
}
