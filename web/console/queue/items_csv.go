package queue

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// mostRows is how many items a table has that is saved.
const mostRows = 10_000

// itemsCSV has the list of items saved as a table, with the filters of the page: the first
// 10,000 of them. It is made whole before it is sent, so that no part is taken for all.
func itemsCSV(v *frame.Visit) {
	if !v.Holds(permission.ItemsRead) {
		v.Frame.Problem(v, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "this page is for other roles than yours"))
		return
	}
	q := itemQuery(v)
	q.Set("limit", "500")
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	rows := [][]string{{"id", "action", "institution", "name", "object", "size", "stage", "status", "error_code", "attempt", "priority", "created_at", "updated_at", "note"}}
	name := "items.csv"
	for {
		found, err := frame.Get[frame.List[record.WorkItem]](v, "items", q)
		if err != nil {
			v.Frame.Problem(v, err)
			return
		}
		for _, i := range found.Items {
			rows = append(rows, registry.HarmlessCells([]string{
				strconv.FormatInt(i.ID, 10), string(i.Action), i.Institution, i.Name, i.ObjectIdentifier, strconv.FormatInt(i.Size, 10), string(i.Stage),
				string(i.Status), i.ErrorCode, strconv.Itoa(i.Attempt), strconv.Itoa(i.Priority), i.CreatedAt.UTC().Format(time.RFC3339),
				i.UpdatedAt.UTC().Format(time.RFC3339), i.Note,
			}))
		}
		next := frame.After(found.Next)
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
		v.Frame.Problem(v, err)
		return
	}
	v.Save(name, b.Bytes())
}
