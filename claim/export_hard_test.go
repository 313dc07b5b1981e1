package claim

import "context"

// LookForOverdue is a look for priorities that have waited too long.
func (e *Engine) LookForOverdue(ctx context.Context) error { return e.lookForOverdue(ctx) }
