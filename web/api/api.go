// Package api is the REST API /api/v1: the table of its operations. The handlers are in the
// packages below it, which share package answer and do not call one another: accounts has what
// concerns accounts, queue what waits and works, and archive what is preserved.
package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api/accounts"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/api/archive"
	"github.com/farol-preservation/farol/web/api/queue"
	"github.com/farol-preservation/farol/web/ops"
)

// API are the handlers, with what they need.
type API answer.Site

type (
	// Deposits are the receiving buckets.
	Deposits = answer.Deposits
	// Fixity are the settings of fixity checks.
	Fixity = answer.Fixity
	// Interim is what is known of items outside the database.
	Interim = answer.Interim
)

// Table makes the table of all operations, on a mux.
func (a *API) Table(mux *http.ServeMux) *ops.API {
	return a.TableOf(mux, nil)
}

// TableOf makes the table of those operations alone that wanted reports; nil: of all.
func (a *API) TableOf(mux *http.ServeMux, wanted func(ops.Operation) bool) *ops.API {
	t := ops.New(mux, a.Registry, a.Version, cmp.Or(a.Rate, 20), a.Web.Caller, a.Log)
	t.For = wanted
	a.Register(t)
	return t
}

// Register adds all operations to a table.
func (a *API) Register(t *ops.API) {
	s := (*answer.Site)(a)
	accounts.Register(t, s)
	queue.Register(t, s)
	archive.Register(t, s)
}

// QueueChanged is a fingerprint of the queue, as all who ask are answered it: it is another one
// when the figures are.
func (a *API) QueueChanged(ctx context.Context) (string, error) {
	q, _, err := (*answer.Site)(a).Queue(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, p := range q.Of(registry.Everything()) {
		p.OldestDue = 0 // grows by itself
		fmt.Fprintln(sum, p)
	}
	return string(sum.Sum(nil)), nil
}
