// Package remove deletes what two people have decided to delete.
package remove

import (
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
)

// Steps are the requests to delete, and what they need.
func Steps(d pipeline.Deps) []pipeline.Step {
	return []pipeline.Step{{Action: registry.Delete, Stage: registry.Requested, Needs: pipeline.NeedTargets, Run: &deletion{Registry: d.Registry, Targets: d.Targets, Files: d.Files}}}
}
