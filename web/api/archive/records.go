package archive

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// ByIdentifier is a request about an object or a file.
type ByIdentifier struct {
	Identifier string `query:"identifier" required:"true" maxLength:"1100"`
}

// records are objects, files and what is kept of them.
func (a *handlers) records(t *ops.API) {
	type objectQuery struct {
		browse.ObjectFilter
		answer.Paging
		answer.Behind
		answer.Counting
		Newer int64 `query:"newer" minimum:"1" hidden:"true" doc:"Only objects with a higher ID, those nearest to it, without a next page; for commands with the registry's own URL"`
	}
	ops.Register(t, answer.Reads("objects.list", "/api/v1/objects", "List objects, newest first",
		"institution, identifier, identifier_prefix and updated are found by an index; the others narrow what these find.", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *objectQuery) (*answer.Body[answer.List[record.ListedObject]], error) {
			if err := answer.HereOnly(c, "newer", in.Newer != 0); err != nil {
				return nil, err
			}
			byName := in.Prefix != "" || in.Identifier != ""
			if err := in.Suits(!byName && in.Sort != "-updated_at" && in.UpdatedAfter.IsZero() && in.UpdatedBefore.IsZero(), byName); err != nil {
				return nil, err
			}
			in.ObjectFilter.Newer, in.ByUpdate = in.Newer, in.Sort == "-updated_at"
			return answer.Page(ctx, a.Site, c, "objects", in.ObjectFilter, in.From("objects", in.ObjectFilter, in.Key()), in.Counting, browse.Records.Objects)
		})
	ops.Register(t, answer.Reads("objects.show", "/api/v1/objects/{id}", "Show an object", "", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ObjectView], error) {
			o, err := a.Browse(c).Object(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return a.object(ctx, c, o)
		})
	ops.Register(t, answer.Reads("objects.by_identifier", "/api/v1/objects/by-identifier", "Show an object by its identifier", "", permission.ObjectsRead),
		func(ctx context.Context, c access.Caller, in *ByIdentifier) (*answer.Body[record.ObjectView], error) {
			o, err := a.Browse(c).ObjectByIdentifier(ctx, in.Identifier)
			if err != nil {
				return nil, err
			}
			return a.object(ctx, c, o)
		})
	ops.Register(t, answer.Reads("objects.holdings", "/api/v1/objects/{id}/holdings", "Show the formats of an object's files, and its copies by storage target",
		"Both are counted of objects with up to 10,000 files. Without the permission copies.read the targets are left out.", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ObjectHoldings], error) {
			if _, err := a.Browse(c).Object(ctx, in.ID); err != nil {
				return nil, err
			}
			found, err := a.Browse(c).ObjectHoldings(ctx, in.ID)
			if !c.Holds(permission.CopiesRead) {
				found.Targets = []record.ObjectTarget{}
			}
			return answer.Of(found), err
		})
	a.files(t)
	a.parts(t)
	a.events(t)
}

func (a *handlers) object(ctx context.Context, c access.Caller, o record.Object) (*answer.Body[record.ObjectView], error) {
	v := record.ObjectView{Object: o}
	var err error
	if v.Summary, err = a.Registry.Summary(ctx, o.ID); err != nil {
		return nil, err
	}
	if v.Copies, err = a.Registry.ObjectCopies(ctx, o.ID, v.Summary.Counted); err != nil {
		return nil, err
	}
	v.Deletion, err = requests.In(a.Registry).ObjectDeletion(ctx, o.ID, v.Summary.Counted)
	if !c.Holds(permission.DeletionsRead) {
		v.Deletion.Requests = []record.DeletionRequest{}
	}
	return answer.Of(v), err
}

// file shows a file with what the caller may read of its digests, copies and deletions.
func (a *handlers) file(ctx context.Context, c access.Caller, f record.File) (*answer.Body[record.FileView], error) {
	v := record.FileView{File: f}
	var err error
	if v.Failures, err = a.Registry.FileFailures(ctx, f.ID); err != nil {
		return nil, err
	}
	v.Receipts, err = requests.In(a.Registry).FileReceipts(ctx, f.ID)
	if !c.Holds(permission.ChecksumsRead) {
		v.Digests = []record.Digest{}
	}
	if !c.Holds(permission.CopiesRead) {
		v.Copies, v.Failures = []record.FileCopy{}, []record.CopyFailure{}
	}
	if !c.Holds(permission.DeletionsRead) {
		v.Receipts = []record.DeletedCopy{}
	}
	return answer.Of(v), err
}

func (a *handlers) files(t *ops.API) {
	type fileQuery struct {
		browse.FileFilter
		SizeMax ops.Bound `query:"size_max" minimum:"0" doc:"Bytes"`
		answer.Paging
		answer.Behind
		answer.Counting
	}
	ops.Register(t, answer.Reads("files.list", "/api/v1/files", "List files",
		"One of object, identifier, identifier_prefix, uuid and digest, or an institution, has to be given; the others narrow what these find.", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *fileQuery) (*answer.Body[answer.List[record.ListedFile]], error) {
			if err := in.Suits(in.Digest != "", in.Digest == ""); err != nil {
				return nil, err
			}
			in.FileFilter.SizeMax = in.SizeMax.OrNil()
			return answer.Page(ctx, a.Site, c, "files", in.FileFilter, in.From("files", in.FileFilter, in.Key()), in.Counting, browse.Records.Files)
		})
	ops.Register(t, answer.Reads("files.show", "/api/v1/files/{id}", "Show a file", "", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.FileView], error) {
			f, err := a.Browse(c).File(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			return a.file(ctx, c, f)
		})
	ops.Register(t, answer.Reads("files.by_identifier", "/api/v1/files/by-identifier", "Show a file by its identifier", "", permission.FilesRead),
		func(ctx context.Context, c access.Caller, in *ByIdentifier) (*answer.Body[record.FileView], error) {
			f, err := a.Browse(c).FileByIdentifier(ctx, in.Identifier)
			if err != nil {
				return nil, err
			}
			return a.file(ctx, c, f)
		})
}

// partQuery asks for a list of what belongs to one record.
type partQuery struct {
	answer.ByID
	answer.Paging
}

// partOf adds a list of what belongs to an object or a file, which is looked up first.
func partOf[R, T any, F browse.Filter](t *ops.API, a *handlers, o ops.Operation, whose func(browse.Records, context.Context, int64) (R, error), name string,
	wanted func(int64) F, read func(browse.Records, context.Context, F, browse.Page) ([]T, browse.Key, error),
) {
	ops.Register(t, o, func(ctx context.Context, c access.Caller, in *partQuery) (*answer.Body[answer.List[T]], error) {
		if _, err := whose(a.Browse(c), ctx, in.ID); err != nil {
			return nil, err
		}
		return answer.Page(ctx, a.Site, c, name, wanted(in.ID), in.Paging, answer.Counting{}, read)
	})
}

// parts are lists of what belongs to one record.
func (a *handlers) parts(t *ops.API) {
	object, file := browse.Records.Object, browse.Records.File
	events := browse.Records.Events
	partOf(t, a, answer.Reads("objects.files", "/api/v1/objects/{id}/files", "List the files of an object", "In the order of their identifiers.", permission.FilesRead),
		object, "objects.files", func(id int64) browse.FileFilter { return browse.FileFilter{ObjectID: id} }, browse.Records.Files)
	partOf(t, a, answer.Reads("objects.events", "/api/v1/objects/{id}/events", "List the events of an object, newest first", "Those of its files are lists of their own.", permission.EventsRead),
		object, "objects.events", func(id int64) browse.EventFilter {
			return browse.EventFilter{EventFilter: record.EventFilter{Object: id}}
		}, events)
	partOf(t, a, answer.Reads("files.events", "/api/v1/files/{id}/events", "List the events of a file, newest first", "", permission.EventsRead),
		file, "files.events", func(id int64) browse.EventFilter {
			return browse.EventFilter{EventFilter: record.EventFilter{File: id}}
		}, events)
	partOf(t, a, answer.Reads("files.copies", "/api/v1/files/{id}/copies", "List the copies of a file", "", permission.CopiesRead),
		file, "copies", func(id int64) browse.CopyFilter { return browse.CopyFilter{File: id} }, browse.Records.Copies)
	partOf(t, a, answer.Reads("files.checksums", "/api/v1/files/{id}/checksums", "List the checksums of a file", "", permission.ChecksumsRead),
		file, "checksums", func(id int64) browse.ChecksumFilter { return browse.ChecksumFilter{File: id} }, browse.Records.Checksums)
}

func (a *handlers) events(t *ops.API) {
	type eventQuery struct {
		browse.EventFilter
		answer.Paging
		answer.Counting
	}
	ops.Register(t, answer.Reads("events.list", "/api/v1/events", "List PREMIS events, newest first",
		"One of object, file, failed, type=deletion, or a window of at most 31 days of recorded_after and recorded_before has to be given.", permission.EventsRead),
		func(ctx context.Context, c access.Caller, in *eventQuery) (*answer.Body[answer.List[record.ListedEvent]], error) {
			return answer.Page(ctx, a.Site, c, "events", in.EventFilter, in.Paging, in.Counting, browse.Records.Events)
		})
}
