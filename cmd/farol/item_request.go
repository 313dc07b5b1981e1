package main

import (
	"fmt"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// requestLines say what a request is about: a single file, and the archive that it
// comes from.
func requestLines(i registry.WorkItem, q requests.Request) (lines [][]string) {
	if q.File != "" {
		lines = append(lines, []string{"File", plain(q.File)})
	}
	if q.Archive != nil {
		lines = append(lines, []string{"From", archiveOf(i, *q.Archive)})
	}
	return lines
}

// archiveOf says from which archive class an item restores, and what it waits for.
func archiveOf(i registry.WorkItem, a requests.Archive) string {
	text := a.Class + ", by tier " + a.Tier
	switch {
	case a.Until != nil:
		text += ": the archived copies can be read until " + at(*a.Until)
	case i.Status != "Pending" && i.Status != "Started":
	case a.Expected != nil:
		text += ": the archived copies should be readable by " + at(*a.Expected) + ", and then for " + count(int64(a.Days), "day", "days")
	default:
		text += ": the archived copies are being made readable"
	}
	switch {
	case a.Item != i.ID:
		text += fmt.Sprintf("; item %d had them made readable", a.Item)
	case a.Next != nil:
		text += fmt.Sprintf("; item %d gives them back", *a.Next)
	}
	return text
}

// aboutOf is what a request is about, in words.
func aboutOf(i registry.WorkItem, q requests.Request) string {
	if q.File != "" {
		return "file " + plain(q.File)
	}
	return "object " + plain(i.ObjectIdentifier)
}
