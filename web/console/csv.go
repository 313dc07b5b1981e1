package console

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// mostRows is how many items a table has that is saved.
const mostRows = 10_000

// reportCSV has a report of the REST API saved as a table.
func (p *Pages) reportCSV(w http.ResponseWriter, r *http.Request) {
	v, ok := p.visit(w, r)
	if !ok {
		return
	}
	name := r.PathValue("report")
	if !slices.Contains([]string{"deposits", "costs", "outcomes"}, name) {
		p.problem(v, ops.NotFound())
		return
	}
	a, err := p.table.Ask(r, v.Caller, ops.Question{Path: "/api/v1/reports/" + name + "?" + r.URL.RawQuery, Accept: "text/csv"})
	if err != nil {
		p.problem(v, err)
		return
	}
	save(v, name+".csv", a.Body)
}

// save answers with a table that the browser saves.
func save(v *visit, name string, text []byte) {
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	v.pages.send(v.w, v.Request, http.StatusOK, text)
}

// itemsCSV has the list of items saved as a table, with the filters of the page: the first
// 10,000 of them. It is made whole before it is sent, so that no part is taken for all.
func (p *Pages) itemsCSV(w http.ResponseWriter, r *http.Request) {
	v, ok := p.visit(w, r)
	if !ok {
		return
	}
	if !v.Holds(permission.ItemsRead) {
		p.problem(v, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "this page is for other roles than yours"))
		return
	}
	q := v.itemQuery()
	q.Set("limit", "500")
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	rows := [][]string{{"id", "action", "institution", "name", "object", "size", "stage", "status", "error_code", "attempt", "priority", "created_at", "updated_at", "note"}}
	name := "items.csv"
	for {
		found, err := get[listOf[record.WorkItem]](v, "items", q)
		if err != nil {
			p.problem(v, err)
			return
		}
		for _, i := range found.Items {
			rows = append(rows, registry.HarmlessCells([]string{
				strconv.FormatInt(i.ID, 10), string(i.Action), i.Institution, i.Name, i.ObjectIdentifier, strconv.FormatInt(i.Size, 10), string(i.Stage),
				string(i.Status), i.ErrorCode, strconv.Itoa(i.Attempt), strconv.Itoa(i.Priority), i.CreatedAt.UTC().Format(time.RFC3339),
				i.UpdatedAt.UTC().Format(time.RFC3339), i.Note,
			}))
		}
		next := after(found.Next)
		if next == "" {
			break
		}
		if len(rows) > mostRows {
			name = fmt.Sprintf("items-first-%d.csv", mostRows)
			break
		}
		q.Set("after", next)
	}
	if err := out.WriteAll(rows); err != nil {
		p.problem(v, err)
		return
	}
	save(v, name, b.Bytes())
}
