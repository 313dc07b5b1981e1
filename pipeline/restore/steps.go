// Package restore gives institutions what they ask for: restored files and objects, for which
// it retrieves archived copies, and exports of their records.
package restore

import (
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
)

func sourceOf(d pipeline.Deps) source {
	return source{
		Registry: d.Registry, Receiving: d.Receiving, Staging: d.Staging, Targets: d.Targets, Profiles: d.Profiles,
		Files: d.Files, MaxFiles: d.MaxFiles, ColdPoll: d.ColdPoll, Software: d.Software(),
	}
}

// Steps are the requests to restore and to export, and what they need.
func Steps(d pipeline.Deps) []pipeline.Step {
	s := sourceOf(d)
	return []pipeline.Step{
		{Action: registry.RestoreFile, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis | pipeline.NeedOneTarget, Run: &restoreFile{s}},
		{Action: registry.RestoreObject, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis | pipeline.NeedOneTarget, Run: &restoreObject{s}},
		{Action: registry.GlacierRestore, Stage: registry.Requested, Needs: pipeline.NeedOneTarget, Run: &glacierRestore{s}},
		{Action: registry.ExportRecords, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis, Run: &export{s}},
	}
}
