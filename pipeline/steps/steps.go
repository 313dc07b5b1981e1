// Package steps lists all steps that a worker can take.
package steps

import (
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/remove"
	"github.com/farol-preservation/farol/pipeline/restore"
)

// All are all that a worker can do: an ingest's stages in their order, and then
// what is requested.
func All(d pipeline.Deps) []pipeline.Step {
	return append(ingest.Steps(d), Requests(d)...)
}

// Requests are what is done on request: each action has one stage.
func Requests(d pipeline.Deps) []pipeline.Step {
	return append(restore.Steps(d), remove.Steps(d)...)
}
