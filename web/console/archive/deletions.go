package archive

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// DeletionSheets are the pages of deletions.
func DeletionSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/deletions", Title: "Deletions", File: "deletions.html", Nav: "Requests", Key: "d", Shell: "farol delete list", Needs: permission.DeletionsRead, Load: loadDeletions},
		deletionForm(),
		{Path: "/deletions/{id}", Title: "Deletion", File: "deletion.html", Shell: "farol delete show {id}", Needs: permission.DeletionsRead, Load: loadDeletion},
	}
}

// deletionForm is the page on which a deletion is asked for.
func deletionForm() frame.Sheet {
	return frame.Sheet{Path: "/deletions/new", Title: "Request a deletion", File: "deletion-new.html", Shell: "farol delete request IDENTIFIER", Needs: permission.DeletionsRequest, Load: func(*frame.Visit) (any, error) { return checkPage{}, nil }}
}

// deletionList is the inbox of the persons that a deletion needs.
type deletionList struct {
	frame.RecordList[record.DeletionRequest]

	Stop   []record.DeletionRequest // they are approved, and can be stopped before they begin
	Mine   []record.DeletionRequest // they wait for who looks
	Others []record.DeletionRequest // they wait for another person
	Older  bool                     // there are more that are not decided
}

// loadDeletions shows what waits for the person first, then what waits for others, and then all.
func loadDeletions(v *frame.Visit) (any, error) {
	var l deletionList
	var err error
	if l.RecordList, err = frame.Records[record.DeletionRequest](v, "deletions", []string{"institution", "state", "requested_after", "requested_before"}, nil); err != nil {
		return nil, err
	}
	if l.Narrowed || v.URL.Query().Get("after") != "" {
		return l, nil
	}
	l.Mine, l.Others, l.Older = WaitingDeletions(v)
	l.Stop = ApprovedDeletions(v)
	return l, nil
}

// WaitingDeletions are the newest requests that are not decided: those that the person may
// approve, and the others; older: there are more.
func WaitingDeletions(v *frame.Visit) (mine, others []record.DeletionRequest, older bool) {
	open, _ := frame.Optional[frame.List[record.DeletionRequest]](v, "deletions", url.Values{"state": {"open"}, "limit": {"100"}})
	if open == nil {
		return nil, nil, false
	}
	for _, d := range open.Items {
		if v.Holds(permission.DeletionsApprove) && d.RequestedBy != v.Caller.Person.Email {
			mine = append(mine, d)
		} else {
			others = append(others, d)
		}
	}
	return mine, others, open.Next != nil
}

// ApprovedDeletions are the newest that are approved and have not begun, for those who may stop them.
func ApprovedDeletions(v *frame.Visit) []record.DeletionRequest {
	if !v.Holds(permission.DeletionsCancel) {
		return nil
	}
	found, _ := frame.Optional[frame.List[record.DeletionRequest]](v, "deletions", url.Values{"state": {"waiting"}, "limit": {"100"}})
	if found == nil {
		return nil
	}
	return found.Items
}

// deletionPage is a request with all that a person needs who decides about it.
type deletionPage struct {
	Deletion record.DeletionRequest
	Open     bool
	Own      bool // who looks has requested it
	Waits    bool // it is approved, and does not begin yet
	Review   *record.DeletionReview
	NoReview string // why there is none
	Named    []record.ListedNamed
	More     string // page with more of what is named
	Receipts []record.DeletedCopy
	MoreDone string // page with more receipts
	Absent   int    // of the receipts shown, those with a proof of absence
}

// loadDeletion shows a request for a deletion.
func loadDeletion(v *frame.Visit) (any, error) {
	var d deletionPage
	var err error
	path := "deletions/" + v.ID()
	if d.Deletion, err = frame.Get[record.DeletionRequest](v, path, nil); err != nil {
		return nil, err
	}
	d.Open = d.Deletion.ApprovedAt == nil && d.Deletion.CancelledAt == nil
	d.Waits = d.Deletion.Waits(time.Now())
	d.Own = d.Deletion.RequestedBy == v.Caller.Person.Email
	if d.Open {
		d.Review, d.NoReview = frame.Optional[record.DeletionReview](v, path+"/review", nil)
	}
	receipts := v.URL.Query().Get("of") == "receipts"
	if d.Named, d.More, err = partOf[record.ListedNamed](v, path+"/named", !receipts, ""); err != nil {
		return nil, err
	}
	if d.Deletion.Items > 0 {
		if d.Receipts, d.MoreDone, err = partOf[record.DeletedCopy](v, path+"/receipts", receipts, "receipts"); err != nil {
			return nil, err
		}
	}
	for _, r := range d.Receipts {
		if r.AbsentAt != nil {
			d.Absent++
		}
	}
	switch of := d.Deletion; {
	case d.Waits, of.Kept != "":
		v.Every = 60
	case of.Done+of.Failed+of.Cancelled < of.Items:
		v.Every = 5
	}
	v.Title = fmt.Sprintf("Deletion %d", d.Deletion.ID)
	return d, nil
}

// checkPage is what a deletion would be about, before it is asked for.
type checkPage struct {
	Names   string // as they were given, one a line
	Count   int
	Check   *record.DeletionCheck
	Refused string
}

// checkDeletion shows what a deletion would be about, and what would be refused. The names
// come as lines, from boxes that are ticked, or from a file whose first column has them.
func checkDeletion(v *frame.Visit) {
	v.Sheet = deletionForm()
	v.Title = v.Sheet.Title
	if !v.Sheet.May(v.Caller) {
		v.Frame.Problem(v, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "this page is for other roles than yours"))
		return
	}
	v.Body = http.MaxBytesReader(v.Writer, v.Body, frame.MostForm)
	list, err := namesIn(v.Request)
	if err != nil {
		v.Frame.Show(v, http.StatusBadRequest, v.Sheet.File, checkPage{Refused: "The names could not be read: " + err.Error() + "."})
		return
	}
	d := checkPage{Names: strings.Join(list, "\n"), Count: len(list)}
	status, err := d.check(v, list)
	if err != nil {
		v.Frame.Problem(v, err)
		return
	}
	v.Frame.Show(v, status, v.Sheet.File, d)
}

// check has the registry look at the names.
func (d *checkPage) check(v *frame.Visit, names []string) (int, error) {
	if len(names) == 0 {
		d.Refused = "Name an object or a file."
		return http.StatusBadRequest, nil
	}
	body, err := v.Answer("deletions.check", url.Values{"identifiers": names})
	if reason, expected := frame.Refusal(err); expected {
		d.Refused = reason
		return http.StatusBadRequest, nil
	}
	if err != nil {
		return 0, err
	}
	d.Check = &record.DeletionCheck{}
	if err := json.Unmarshal(body, d.Check); err != nil {
		return 0, fmt.Errorf("read what a deletion would be about: %w", err)
	}
	return http.StatusOK, nil
}

// errNotCSV is of a file that is no table.
var errNotCSV = errors.New("the file is no CSV")

// namesIn are the identifiers in a form, each once, in the order in which they were given.
func namesIn(r *http.Request) (names []string, err error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "multipart/form-data" {
		err = r.ParseMultipartForm(1 << 20) // the caller has bounded the body
	} else {
		err = r.ParseForm()
	}
	if err != nil {
		return nil, errors.New("the form is too large, or broken off")
	}
	var lines []string
	for _, text := range r.PostForm["identifiers"] {
		lines = append(lines, strings.Split(text, "\n")...)
	}
	if r.MultipartForm != nil {
		defer r.MultipartForm.RemoveAll() //nolint:errcheck // temporary
		if file, _, err := r.FormFile("list"); err == nil {
			defer file.Close() //nolint:errcheck // it was read
			found, err := firstColumn(file)
			if err != nil {
				return nil, err
			}
			lines = append(lines, found...)
		}
	}
	seen := map[string]bool{}
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" && !seen[line] {
			seen[line] = true
			names = append(names, line)
		}
	}
	return names, nil
}

// firstColumn is the first column of a table, without its heading.
func firstColumn(file io.Reader) (list []string, err error) {
	table := csv.NewReader(file)
	table.FieldsPerRecord = -1
	for {
		row, err := table.Read()
		switch {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errNotCSV, err)
		case len(list) == 0 && strings.EqualFold(strings.TrimPrefix(row[0], "\ufeff"), "identifier"):
		default:
			list = append(list, strings.TrimPrefix(row[0], "\ufeff"))
		}
	}
}

// partOf is a page of one of several lists on a page. Only one of them is turned over.
func partOf[T any](v *frame.Visit, path string, turned bool, of string) ([]T, string, error) {
	q := url.Values{"limit": {"100"}}
	if after := v.URL.Query().Get("after"); turned && after != "" {
		q.Set("after", after)
	}
	found, err := frame.Get[frame.List[T]](v, path, q)
	if err != nil || found.Next == nil {
		return found.Items, "", err
	}
	next, err := url.Parse(v.More(found.Next))
	if err != nil {
		return found.Items, "", fmt.Errorf("read where a list goes on: %w", err)
	}
	to := next.Query()
	to.Del("of")
	if of != "" {
		to.Set("of", of)
	}
	return found.Items, next.Path + "?" + to.Encode(), nil
}
