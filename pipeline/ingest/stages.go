// Package ingest takes bags from receiving buckets into preservation storage. Each stage
// is one file; the table in stages.go says which follows which. To add a stage, write its
// file and add a line to the table.
//
// A stage reads the lists that the stages before it left: see package lists.
// Redis holds only which files the running stage has finished, so that a stage that was
// killed resumes where it stopped; without Redis the stage starts over and nothing else
// is lost.
package ingest

import (
	"context"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// ingestStage is what is done at one stage of an ingest: see [pipeline.Stage].
type ingestStage interface {
	Run(ctx context.Context, w *work) error
}

// entered gives a stage its work.
type entered struct {
	ingestStage
	areas lists.Area // of any item
}

// Run enters the stage.
func (e entered) Run(ctx context.Context, claimed *pipeline.Work) error {
	return e.ingestStage.Run(ctx, enterArea(e.areas, claimed))
}

// enterArea is the work of a claim of an ingest, whose area is that of any item.
func enterArea(a lists.Area, claimed *pipeline.Work) *work {
	a.Recent.Enter(claimed.Item)
	a.Item, a.Log, a.Check, a.Enter = claimed.Item.ID, claimed.Log, claimed.Hold.Check, claimed.Enter
	a.Leave = func(l claim.List) { claimed.List = l }
	return &work{Work: claimed, lists: &a}
}

// tableRow is all that is to be known of a stage, and what it does.
type tableRow struct {
	pipeline.Step
	does ingestStage
}

// table is the way of a bag from the receiving bucket into preservation storage. The
// stages' names and notes are those that the registry has always used.
func table(d pipeline.Deps) []tableRow {
	return []tableRow{
		{pipeline.Step{
			Stage: registry.Receive, Note: "Finished pre-fetch metadata gathering",
			Needs: pipeline.NeedReceiving | pipeline.NeedStaging | pipeline.NeedRedis | pipeline.NeedDisk,
			List:  lists.InventoryName, FileState: interim.Received, Measure: progress.ByBytes,
		}, &receive{
			Registry: d.Registry, Receiving: d.Receiving, Staging: d.Staging, Targets: d.Targets, Profiles: d.Profiles, MaxFiles: d.MaxFiles,
		}},
		{pipeline.Step{
			Stage: registry.Validate, Note: "Bag is valid",
			Needs: pipeline.NeedStaging | pipeline.NeedDisk,
			List:  lists.VerdictName,
		}, &validate{Profiles: d.Profiles, software: d.Software()}},
		{pipeline.Step{
			Stage: registry.ReingestCheck, Note: "Finished reingest check",
			Needs: pipeline.NeedStaging | pipeline.NeedDisk,
			List:  lists.PlanName,
		}, &reingest{Registry: d.Registry, Targets: d.Targets, Files: d.Files}},
		{pipeline.Step{
			Stage: registry.CopyToStaging, Note: "Finished copying files to staging area",
			Needs: pipeline.NeedReceiving | pipeline.NeedStaging,
		}, &pin{Receiving: d.Receiving, Staging: d.Staging}},
		{pipeline.Step{
			Stage: registry.FormatIdentification, Note: "Finished file format identification",
			Needs: pipeline.NeedReceiving | pipeline.NeedStaging | pipeline.NeedRedis | pipeline.NeedScanner | pipeline.NeedIdentifier | pipeline.NeedDisk,
			List:  lists.FormatsName, FileState: interim.Identified, Measure: progress.ByFiles,
		}, &identify{Receiving: d.Receiving, Staging: d.Staging, Formats: d.Formats, Viruses: d.Viruses, Files: d.Files}},
		{pipeline.Step{
			Stage: registry.Store, Note: "Finished copying files to preservation storage",
			Needs:     pipeline.NeedReceiving | pipeline.NeedStaging | pipeline.NeedRedis | pipeline.NeedTargets,
			FileState: interim.Copied, Measure: progress.ByBytes,
		}, &store{Registry: d.Registry, Receiving: d.Receiving, Staging: d.Staging, Targets: d.Targets, Files: d.Files}},
		{pipeline.Step{
			Stage: registry.StorageValidation, Note: "Finished verifying files in preservation storage",
			Needs: pipeline.NeedStaging | pipeline.NeedRedis | pipeline.NeedTargets | pipeline.NeedDisk,
			List:  lists.CopiesName, FileState: interim.Verified, Measure: progress.ByFiles,
		}, &verify{
			Registry: d.Registry, Targets: d.Targets, unrecorded: &lists.Unrecorded{Registry: d.Registry, Staging: d.Staging, Log: d.Log},
			Files: d.Files, ReadBack: d.ReadBack,
		}},
		{pipeline.Step{
			Stage: registry.Record, Note: "Finished recording ingest data in Registry",
			Needs:     pipeline.NeedStaging | pipeline.NeedDisk,
			FileState: interim.Added,
		}, &recording{Registry: d.Registry, Targets: d.Targets}},
		{pipeline.Step{
			Stage: registry.Cleanup, Note: "Finished cleanup. Ingest complete.",
			Needs: pipeline.NeedReceiving | pipeline.NeedStaging | pipeline.NeedRedis | keepNeeds(d),
		}, &cleanup{
			Registry: d.Registry, Receiving: d.Receiving, Staging: d.Staging, Targets: d.Targets, keep: Keeper(d),
		}},
	}
}

// keepNeeds is what Cleanup needs to save the interim metadata of items.
func keepNeeds(d pipeline.Deps) pipeline.Need {
	if d.Kept == nil {
		return 0
	}
	return pipeline.NeedKept | pipeline.NeedDisk
}

// Steps are the stages of an ingest, in their order.
func Steps(d pipeline.Deps) []pipeline.Step { return enter(d, table(d)) }

// enter makes the steps of a table.
func enter(d pipeline.Deps, rows []tableRow) (steps []pipeline.Step) {
	areas := lists.Area{Bucket: d.Staging, Registry: d.Registry, Recent: &lists.Recent{}, Makers: map[string]registry.Stage{}}
	for _, r := range rows {
		if r.List != "" {
			areas.Makers[r.List] = r.Stage
		}
	}
	for _, r := range rows {
		r.Action, r.Clears, r.Run = registry.Ingest, true, entered{r.does, areas}
		steps = append(steps, r.Step)
	}
	return steps
}

// stages are the facts by which the interim metadata of items is read.
func stages() (list []interim.Stage) {
	for _, r := range table(pipeline.Deps{}) {
		list = append(list, interim.Stage{Name: r.Stage, List: r.List, File: r.FileState})
	}
	return list
}

// Measures are those of the stages that have counters.
func Measures() map[registry.Stage]progress.Measure {
	m := map[registry.Stage]progress.Measure{}
	for _, r := range table(pipeline.Deps{}) {
		m[r.Stage] = r.Measure
	}
	return m
}

// InterimReader reads the interim metadata of items of ingests.
func InterimReader(d pipeline.Deps) interim.Reader {
	return interim.Reader{Registry: d.Registry, Staging: d.Staging, Progress: d.Progress, Log: d.Log, Stages: stages()}
}

// Keeper keeps the interim metadata of items of ingests; nil if it is not kept.
func Keeper(d pipeline.Deps) *interim.Keeper {
	if d.Kept == nil {
		return nil
	}
	return &interim.Keeper{Reader: InterimReader(d), Bucket: d.Kept, Software: d.Software()}
}
