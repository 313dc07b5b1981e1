// Package console has the pages on which people look after items, objects and the archive.
//
// A page asks the operations of the REST API for what it shows, within the process, and its
// forms are sent to them. So a page has no rules of its own, and shows nobody more than the
// API does. The pages need no script; with it they are kept up to date.
//
// The pages are divided as the API's resources are: packages queue, archive and accounts, and
// here those that are about all of them. A page calls down into frame, live, picture and words,
// and never another resource's page.
package console

import (
	"slices"

	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/console/archive"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/queue"
	"github.com/farol-preservation/farol/web/ops"
)

// New makes the pages of a server. What they show is asked of a table of operations.
func New(a *api.API, t *ops.API) *frame.Frame {
	routes := slices.Concat([]frame.Route{{Pattern: "GET /search", Serve: search}}, queue.Routes(), archive.Routes())
	return frame.New(a, t, sheets(), routes)
}

// Commands are the command lines that pages show as "the same in the shell", with {id} and
// IDENTIFIER where a page has those of its record, and {email} where it has that of the person.
func Commands() (list []string) {
	for _, s := range sheets() {
		if s.Shell != "" {
			list = append(list, s.Shell)
		}
	}
	return list
}
