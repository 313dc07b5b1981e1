package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A note stands in the history of an item, with who wrote it, and changes nothing else of it,
// also where the item has ended; it is refused where there is nothing to read.
func TestNotesAreAddedToItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff := s.in("staff@archive.org", registry.RoleOperator, "")
	id := s.parked(s.test, 1)[0]
	path := fmt.Sprintf("/api/v1/items/%d", id)
	staff.wants(http.StatusOK, "POST", path+"/cancel", map[string]any{})
	before := staff.wants(http.StatusOK, "GET", path, nil).body

	staff.wants(http.StatusOK, "POST", path+"/notes", map[string]any{"note": "The bag comes again on Monday."})
	_, err := staff.clientOf(s.url).Operate(context.Background(), "items.add_note", map[string]any{"id": id, "note": "It came."}, nil)
	if err != nil {
		t.Error(err)
	}
	if _, err := staff.clientOf(s.url).Operate(context.Background(), "items.sing", nil, nil); err == nil || !strings.Contains(err.Error(), "no operation") {
		t.Errorf("an operation that there is not: %v", err)
	}
	staff.wants(http.StatusBadRequest, "POST", path+"/notes", map[string]any{"note": ""})
	staff.wants(http.StatusNotFound, "POST", "/api/v1/items/999/notes", map[string]any{"note": "Who?"})

	var history struct{ Changes []record.Change }
	staff.reads(staff.wants(http.StatusOK, "GET", path+"/history", nil), &history)
	var notes []string
	for _, c := range history.Changes {
		if c.Note != nil {
			notes = append(notes, c.Actor+": "+*c.Note)
		}
	}
	if got, want := strings.Join(notes, "; "), "staff@archive.org: The bag comes again on Monday.; staff@archive.org: It came."; got != want {
		t.Errorf("notes: %q, want %q", got, want)
	}
	if after := staff.wants(http.StatusOK, "GET", path, nil).body; after != before {
		t.Errorf("the item has changed: %s, was %s", after, before)
	}
}
