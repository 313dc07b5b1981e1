package nsqcompat

import "slices"

// Caller is who makes a request, and what of the queue it may work on. The zero
// value may everything.
type Caller struct {
	Name        string
	Institution string   // identifier; "": all
	Stages      []string // nil: all
}

// mayWork tells whether the caller may have items at a stage.
func (c Caller) mayWork(stage string) bool {
	return c.Stages == nil || slices.Contains(c.Stages, stage)
}

// maySee tells whether the caller may know of an institution's items.
func (c Caller) maySee(institution string) bool {
	return c.Institution == "" || c.Institution == institution
}
