// Package accounts has the operations of the REST API that concern accounts: sessions, one's own
// account, tokens, users, institutions, mail, alerts, and what people did.
//
// In come requests with their caller; out go answers and entries of the audit log.
package accounts

import (
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
)

type handlers struct {
	*answer.Site
}

// Register adds the operations to a table.
func Register(t *ops.API, s *answer.Site) {
	a := &handlers{Site: s}
	a.sessions(t)
	a.account(t)
	a.tokens(t)
	a.users(t)
	a.institutions(t)
	a.mails(t)
	a.alerts(t)
	a.actions(t)
	a.serviceTokens(t)
}
