package api

import (
	"context"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type (
	// ObjectView is an object with what is kept of it.
	ObjectView struct {
		registry.Object

		Summary  registry.ObjectSummary  `json:"summary"`
		Copies   registry.ObjectCopies   `json:"copies"`
		Deletion requests.ObjectDeletion `json:"deletion" doc:"What deletions did to it, or are about to"`
	}
	// FileView is a file with its copies that were bad, and what deletions did to them.
	FileView struct {
		registry.File

		Failures []registry.CopyFailure `json:"failures" doc:"Copies that were found to be bad, the newest first"`
		Receipts []requests.DeletedCopy `json:"receipts" doc:"What deletions did to each copy"`
	}
)

// ByIdentifier is a request about an object or a file.
type ByIdentifier struct {
	Identifier string `query:"identifier" required:"true" maxLength:"1100"`
}

func (a *API) browse(c access.Caller) browse.Records { return browse.In(a.Registry, c.Scope) }

// reads is an operation that shows records.
func reads(id, path, summary, about string, needs permission.Permission) ops.Operation {
	return ops.Operation{ID: id, Method: get, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: needs}
}

// records are objects, files and what is kept of them.
func (a *API) records(t *ops.API) {
	type objectQuery struct {
		browse.ObjectFilter
		Sort string `query:"sort" enum:"-id,-updated_at" doc:"-updated_at: by the last update, the latest first"`
		Paging
		Behind
		Counting
		Newer int64 `query:"newer" minimum:"1" hidden:"true" doc:"Only objects with a higher ID, those nearest to it, without a next page; for commands with the registry's own URL"`
	}
	ops.Register(t, reads("objects.list", "/api/v1/objects", "List objects, newest first",
		"institution, identifier, identifier_prefix and updated are found by an index; the others narrow what these find.", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *objectQuery) (*body[list[browse.ListedObject]], error) {
			if err := hereOnly(c, "newer", in.Newer != 0); err != nil {
				return nil, err
			}
			byName := in.Prefix != "" || in.Identifier != ""
			if err := in.suits(!byName && in.Sort != "-updated_at" && in.UpdatedAfter.IsZero() && in.UpdatedBefore.IsZero(), byName); err != nil {
				return nil, err
			}
			in.ObjectFilter.Newer, in.ByUpdate = in.Newer, in.Sort == "-updated_at"
			return listOf(ctx, a, c, "objects", in.ObjectFilter, in.from("objects", in.ObjectFilter, in.key()), in.Counting, browse.Records.Objects)
		})
	ops.Register(t, reads("objects.show", "/api/v1/objects/{id}", "Show an object", "", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *ByID) (*body[ObjectView], error) {
			o, err := a.browse(c).Object(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return a.object(ctx, c, o)
		})
	ops.Register(t, reads("objects.by_identifier", "/api/v1/objects/by-identifier", "Show an object by its identifier", "", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *ByIdentifier) (*body[ObjectView], error) {
			o, err := a.browse(c).ObjectByIdentifier(ctx, in.Identifier)
			if err != nil {
				return nil, err
			}
			return a.object(ctx, c, o)
		})
	ops.Register(t, reads("objects.holdings", "/api/v1/objects/{id}/holdings", "Show the formats of an object's files, and its copies by storage target",
		"Both are counted of objects with up to 10,000 files. Without the permission copies.read the targets are left out.", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *ByID) (*body[browse.ObjectHoldings], error) {
			if _, err := a.browse(c).Object(ctx, in.ID); err != nil {
				return nil, err
			}
			found, err := a.browse(c).ObjectHoldings(ctx, in.ID)
			if !c.Holds(permission.CopiesRead) {
				found.Targets = []browse.ObjectTarget{}
			}
			return &body[browse.ObjectHoldings]{found}, err
		})
	a.files(t)
	a.parts(t)
	a.events(t)
}

func (a *API) object(ctx context.Context, c access.Caller, o registry.Object) (*body[ObjectView], error) {
	v := ObjectView{Object: o}
	var err error
	if v.Summary, err = a.Registry.Summary(ctx, o.ID); err != nil {
		return nil, err
	}
	if v.Copies, err = a.Registry.ObjectCopies(ctx, o.ID, v.Summary.Counted); err != nil {
		return nil, err
	}
	v.Deletion, err = requests.In(a.Registry).ObjectDeletion(ctx, o.ID, v.Summary.Counted)
	if !c.Holds(permission.DeletionsRead) {
		v.Deletion.Requests = []requests.DeletionRequest{}
	}
	return &body[ObjectView]{v}, err
}

// file shows a file with what the caller may read of its digests, copies and deletions.
func (a *API) file(ctx context.Context, c access.Caller, f registry.File) (*body[FileView], error) {
	v := FileView{File: f}
	var err error
	if v.Failures, err = a.Registry.FileFailures(ctx, f.ID); err != nil {
		return nil, err
	}
	v.Receipts, err = requests.In(a.Registry).FileReceipts(ctx, f.ID)
	if !c.Holds(permission.ChecksumsRead) {
		v.Digests = []registry.Digest{}
	}
	if !c.Holds(permission.CopiesRead) {
		v.Copies, v.Failures = []registry.FileCopy{}, []registry.CopyFailure{}
	}
	if !c.Holds(permission.DeletionsRead) {
		v.Receipts = []requests.DeletedCopy{}
	}
	return &body[FileView]{v}, err
}

func (a *API) files(t *ops.API) {
	type fileQuery struct {
		browse.FileFilter
		SizeMax ops.Bound `query:"size_max" minimum:"0" doc:"Bytes"`
		Paging
		Behind
		Counting
	}
	ops.Register(t, reads("files.list", "/api/v1/files", "List files",
		"One of object, identifier, identifier_prefix, uuid and digest, or an institution, has to be given; the others narrow what these find.", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *fileQuery) (*body[list[browse.ListedFile]], error) {
			if err := in.suits(in.Digest != "", in.Digest == ""); err != nil {
				return nil, err
			}
			in.FileFilter.SizeMax = in.SizeMax.OrNil()
			return listOf(ctx, a, c, "files", in.FileFilter, in.from("files", in.FileFilter, in.key()), in.Counting, browse.Records.Files)
		})
	ops.Register(t, reads("files.show", "/api/v1/files/{id}", "Show a file", "", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *ByID) (*body[FileView], error) {
			f, err := a.browse(c).File(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return a.file(ctx, c, f)
		})
	ops.Register(t, reads("files.by_identifier", "/api/v1/files/by-identifier", "Show a file by its identifier", "", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *ByIdentifier) (*body[FileView], error) {
			f, err := a.browse(c).FileByIdentifier(ctx, in.Identifier)
			if err != nil {
				return nil, err
			}
			return a.file(ctx, c, f)
		})
}

// parts are lists of what belongs to one record.
func (a *API) parts(t *ops.API) {
	type partQuery struct {
		ByID
		Paging
	}
	ops.Register(t, reads("objects.files", "/api/v1/objects/{id}/files", "List the files of an object", "In the order of their identifiers.", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *partQuery) (*body[list[browse.ListedFile]], error) {
			if _, err := a.browse(c).Object(ctx, in.ID); err != nil {
				return nil, err
			}
			return listOf(ctx, a, c, "objects.files", browse.FileFilter{ObjectID: in.ID}, in.Paging, Counting{}, browse.Records.Files)
		})
	ops.Register(t, reads("objects.events", "/api/v1/objects/{id}/events", "List the events of an object, newest first", "Those of its files are lists of their own.", permission.EventsRead),
		func(ctx context.Context, c access.Caller, in *partQuery) (*body[list[browse.Event]], error) {
			if _, err := a.browse(c).Object(ctx, in.ID); err != nil {
				return nil, err
			}
			return listOf(ctx, a, c, "objects.events", browse.EventFilter{Object: in.ID}, in.Paging, Counting{}, browse.Records.Events)
		})
	ops.Register(t, reads("files.events", "/api/v1/files/{id}/events", "List the events of a file, newest first", "", permission.EventsRead),
		func(ctx context.Context, c access.Caller, in *partQuery) (*body[list[browse.Event]], error) {
			if _, err := a.browse(c).File(ctx, in.ID); err != nil {
				return nil, err
			}
			return listOf(ctx, a, c, "files.events", browse.EventFilter{File: in.ID}, in.Paging, Counting{}, browse.Records.Events)
		})
	ops.Register(t, reads("files.copies", "/api/v1/files/{id}/copies", "List the copies of a file", "", permission.CopiesRead),
		func(ctx context.Context, c access.Caller, in *partQuery) (*body[list[browse.Copy]], error) {
			if _, err := a.browse(c).File(ctx, in.ID); err != nil {
				return nil, err
			}
			return listOf(ctx, a, c, "copies", browse.CopyFilter{File: in.ID}, in.Paging, Counting{}, browse.Records.Copies)
		})
	ops.Register(t, reads("files.checksums", "/api/v1/files/{id}/checksums", "List the checksums of a file", "", permission.ChecksumsRead),
		func(ctx context.Context, c access.Caller, in *partQuery) (*body[list[browse.Checksum]], error) {
			if _, err := a.browse(c).File(ctx, in.ID); err != nil {
				return nil, err
			}
			return listOf(ctx, a, c, "checksums", browse.ChecksumFilter{File: in.ID}, in.Paging, Counting{}, browse.Records.Checksums)
		})
}

func (a *API) events(t *ops.API) {
	type eventQuery struct {
		browse.EventFilter
		Paging
		Counting
	}
	ops.Register(t, reads("events.list", "/api/v1/events", "List PREMIS events, newest first",
		"One of object, file, failed, type=deletion, or a window of at most 31 days of recorded_after and recorded_before has to be given.", permission.EventsRead),
		func(ctx context.Context, c access.Caller, in *eventQuery) (*body[list[browse.Event]], error) {
			return listOf(ctx, a, c, "events", in.EventFilter, in.Paging, in.Counting, browse.Records.Events)
		})
}
