// Package pipeline takes bags from a receiving bucket into preservation storage,
// and gives back, deletes and checks what is kept there.
//
// Each stage is one file of this package; [Ingest] alone says which follows
// which. A stage reads what the stages before it left in the staging bucket,
// under the item's own prefix: an inventory of the bag, and small lists beside
// it. Redis holds only which files the running stage has finished, so that a
// stage that was killed is taken up where it stood; without it the stage begins
// anew and nothing else is lost.
package pipeline

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// Deps is what the stages work with.
type Deps struct {
	Registry  *registry.Registry
	Progress  *progress.Store
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Kept      *storage.Bucket            // for the interim metadata of items, before it is deleted; nil: it is not kept
	Targets   map[string]*storage.Bucket // preservation targets by name, see [storage.Targets]
	Profiles  bag.Profiles               // that bags may follow
	Formats   *format.Identifier
	Viruses   *virus.Scanner // nil: files are not checked for viruses
	Files     int            // files of one item in work at once
	ColdPoll  time.Duration  // between two looks at what is being restored from an archive class; 0: as its provider is quick
	ReadBack  bool           // Storage Validation reads each new copy
	MaxFiles  int            // files that a bag may have; [bag.DefaultMaxFiles] if zero
	Memory    int64          // bytes for the lists of all bags in work; 0: those of one bag of MaxFiles
	Version   string         // of this program, for the record
	Log       *slog.Logger

	recent *recent
	room   *room

	checkpointBytes int64 // of the tar between two checkpoints of Receive; 0 is what package bag has
}

// software is this program on record.
func (d Deps) software() string { return strings.TrimSpace("Farol " + d.Version) }

// A stage is one step in the life of an item.
//
// Run must be safe to repeat, since the worker before may have died on any line
// of it: it finds out what is done, does the rest, and returns nil only when
// all of it is durable. Errors are transient unless package claim made them
// something else.
type stage interface {
	Run(ctx context.Context, w *work) error
}

// Step is what is done with an item at one stage, and what the depositor reads when
// it is done.
type Step struct {
	Action registry.Action
	Stage  string
	note   string // of the stages that always end alike; the others set it
	needs  need
	run    stage
}

// Name is what settings and people call the step: see [claim.StepOf].
func (s Step) Name() string { return claim.StepOf(s.Action, s.Stage) }

// Steps are all that a worker can do: an ingest's stages in their order, and then
// what is requested.
func Steps(d Deps) []Step {
	d.room = newRoom(d.MaxFiles, d.Memory)
	return append(Ingest(d), Requests(d)...)
}

// Ingest is the way of a bag from the receiving bucket into preservation
// storage. The stages' names and notes are those that the registry has always
// used.
func Ingest(d Deps) []Step {
	d.recent = &recent{}
	if d.room == nil {
		d.room = newRoom(d.MaxFiles, d.Memory)
	}
	return []Step{
		{"Ingest", "Receive", "Finished pre-fetch metadata gathering", needReceiving | needStaging | needRedis | needDisk, &receive{d}},
		{"Ingest", "Validate", "Bag is valid", needStaging | needDisk, &validate{d}},
		{"Ingest", "Reingest Check", "Finished reingest check", needStaging | needDisk, &reingest{d}},
		{"Ingest", "Copy To Staging", "Finished copying files to staging area", needReceiving | needStaging | needRedis, &stageFiles{d}},
		{"Ingest", "Format Identification", "Finished file format identification", needReceiving | needStaging | needRedis | needScanner | needIdentifier | needDisk, &identify{d}},
		{"Ingest", "Store", "Finished copying files to preservation storage", needStaging | needRedis | needTargets, &store{d}},
		{"Ingest", "Storage Validation", "Finished verifying files in preservation storage", needStaging | needRedis | needTargets | needDisk, &verify{d}},
		{"Ingest", "Record", "Finished recording ingest data in Registry", needStaging | needDisk, &record{d}},
		{"Ingest", "Cleanup", "Finished cleanup. Ingest complete.", needReceiving | needStaging | needRedis | keepNeeds(d), &cleanup{d}},
	}
}

// keepNeeds is what Cleanup needs to keep the interim metadata of items.
func keepNeeds(d Deps) need {
	if d.Kept == nil {
		return 0
	}
	return needKept | needDisk
}

// Requests are what is done on request: each action has one stage.
func Requests(d Deps) []Step {
	if d.room == nil {
		d.room = newRoom(d.MaxFiles, d.Memory)
	}
	return []Step{
		{"Restore File", "Requested", "", needStaging | needRestore | needRedis | needOneTarget, &restoreFile{d}},
		{"Restore Object", "Requested", "", needStaging | needRestore | needRedis | needOneTarget, &restoreObject{d}},
		{"Glacier Restore", "Requested", "", needOneTarget, &glacierRestore{d}},
		{"Delete", "Requested", "", needTargets, &deletion{d}},
	}
}
