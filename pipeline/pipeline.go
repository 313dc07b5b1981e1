// Package pipeline runs the work of a process: pools claim items, a runner takes each
// through the stage that it is at and settles it, and circuit breakers hold back what
// needs a service that fails. It is given the steps and knows none of them: the stages
// of an ingest are in pipeline/ingest, the requests in pipeline/restore and
// pipeline/remove, and what has no items in pipeline/fixity and pipeline/upkeep.
package pipeline

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// Deps is what the stages work with.
type Deps struct {
	Registry  *registry.Registry
	Progress  *progress.Store
	Receiving func(bucket string) (*storage.Bucket, error) // also opens the buckets to which is restored
	Staging   *storage.Bucket
	Kept      *storage.Bucket // for the interim metadata of items, before it is deleted; nil: it is not kept
	Targets   copies.Targets  // of preservation, see [storage.Targets]
	Profiles  bag.Profiles    // that bags may follow
	Formats   *format.Identifier
	Viruses   *virus.Scanner // nil: files are not checked for viruses
	Files     int            // files of one item in work at once
	ColdPoll  time.Duration  // between two polls of a retrieval from an archive class; 0: as the speed of its provider suggests
	ReadBack  bool           // Storage Validation reads each new copy
	MaxFiles  int            // files that a bag may have; [bag.DefaultMaxFiles] if zero
	Memory    int64          // bytes for the lists of all bags in work; 0: those of one bag of MaxFiles
	Version   string         // of this program, for the record
	Log       *slog.Logger
}

// Software is this program on record.
func (d Deps) Software() string { return strings.TrimSpace("Farol " + d.Version) }

// A Stage is one step in the life of an item.
//
// Run must be safe to repeat, since the worker before may have died on any line of it: it finds
// out what is done, does the rest, and returns nil only when all of it is durable. Errors are
// transient unless package claim marked them otherwise.
type Stage interface {
	Run(ctx context.Context, w *Work) error
}

// Step is what is done with an item at one stage, and what the depositor reads when
// it is done.
type Step struct {
	Action registry.Action
	Stage  registry.Stage
	Note   string // of the stages that always end alike; the others set it
	Needs  Need
	Run    Stage

	Clears    bool             // it forgets the item's progress itself
	List      string           // that it makes in the staging area; "": none
	FileState string           // of the files of an item that has passed it; "": as before
	Measure   progress.Measure // of its progress, for people
}

// Name is what settings and people call the step: see [stages.StepOf].
func (s Step) Name() string { return stages.StepOf(s.Action, s.Stage) }
