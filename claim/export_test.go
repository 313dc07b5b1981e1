package claim

import "context"

// TellServed writes down how far the turns have come, as Run does every second.
func (e *Engine) TellServed(ctx context.Context) error { return e.tellServed(ctx) }

// LookForOverdue finds the priorities that have waited too long, as Run does
// every few seconds.
func (e *Engine) LookForOverdue(ctx context.Context) error { return e.lookForOverdue(ctx) }
