package explain

import (
	"fmt"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// ArchiveOf says from which archive class an item restores, and what it waits for.
func ArchiveOf(i record.WorkItem, a record.Archive) string {
	text := a.Class + ", by tier " + a.Tier
	switch {
	case a.Until != nil:
		text += ": the archived copies are readable until " + human.Time(*a.Until)
	case i.Status != "Pending" && i.Status != "Started":
	case a.Expected != nil:
		text += ": the archived copies should be readable by " + human.Time(*a.Expected) + ", and then for " + human.Count(int64(a.Days), "day", "days")
	default:
		text += ": the provider is restoring the archived copies"
	}
	switch {
	case a.Item != i.ID:
		text += fmt.Sprintf("; item %d requested them from the archive", a.Item)
	case a.Next != nil:
		text += fmt.Sprintf("; item %d delivers them", *a.Next)
	}
	return text
}

// AboutOf is what a request is about, in words.
func AboutOf(i record.WorkItem, q record.RetrievalRequest) string {
	if q.File != "" {
		return "file " + human.Line(q.File)
	}
	return "object " + human.Line(i.ObjectIdentifier)
}
