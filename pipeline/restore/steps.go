// Package restore gives institutions what they ask for: restored files and objects, for which
// it retrieves archived copies, and exports of their records.
package restore

import (
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
)

// Steps are the requests to restore and to export, and what they need.
func Steps(d pipeline.Deps) []pipeline.Step {
	return []pipeline.Step{
		{Action: registry.RestoreFile, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis | pipeline.NeedOneTarget, Run: &restoreFile{d}},
		{Action: registry.RestoreObject, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis | pipeline.NeedOneTarget, Run: &restoreObject{d}},
		{Action: registry.GlacierRestore, Stage: registry.Requested, Needs: pipeline.NeedOneTarget, Run: &glacierRestore{d}},
		{Action: registry.ExportRecords, Stage: registry.Requested, Needs: pipeline.NeedStaging | pipeline.NeedRestore | pipeline.NeedRedis, Run: &export{d}},
	}
}
