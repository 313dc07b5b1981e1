package archive

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// mostStreams is how many exports a process sends at once: each holds a connection to the
// database.
const mostStreams = 8

// mostStreamed is how many files an export may have that is sent while it is made, within
// ten minutes.
const mostStreamed int64 = 1_000_000

type exportQuery struct {
	record.ExportFilter
	answer.Paging
	answer.Before
}

func exportViewOf(r record.Export) record.ExportView {
	v := record.ExportView{Export: r}
	if r.WorkItem == nil {
		path := fmt.Sprintf("/api/v1/exports/%d/content", r.ID)
		v.Content = &path
	}
	return v
}

// exports are what people and programs take along of the records.
func (a *handlers) exports(t *ops.API) {
	export := func(id, method, path, summary, about string) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: permission.ExportsMake}
	}
	o := export("exports.make", http.MethodPost, "/api/v1/exports", "Export records of an object or an institution",
		"The answer says where to read the content. An institutional_user may export inventories and manifests.")
	o.Audit, o.Status = true, http.StatusCreated
	ops.Register(t, o, a.makeExport)
	ops.Register(t, export("exports.list", http.MethodGet, "/api/v1/exports", "List exports, newest first", ""), a.listExports)
	ops.Register(t, export("exports.show", http.MethodGet, "/api/v1/exports/{id}", "Show an export", "After the content was written, it has its size and SHA-256."),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ExportView], error) {
			r, _, err := exports.In(a.Registry, c.Scope).Show(ctx, in.ID, kindsFor(c))
			return answer.Of(exportViewOf(r)), err
		})
	streams := make(chan struct{}, mostStreams)
	content := export("exports.content", http.MethodGet, "/api/v1/exports/{id}/content", "Download the content of an export",
		"It is made while it is sent, and shows the records of one moment. The trailer Repr-Digest has its SHA-256. You may download two exports at once.")
	content.Answers = []int{http.StatusConflict}
	ops.RegisterContent(t, content,
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*ops.Content, error) {
			r, of, err := exports.In(a.Registry, c.Scope).Show(ctx, in.ID, kindsFor(c))
			if err != nil {
				return nil, err
			}
			if r.WorkItem != nil {
				return nil, ops.Problem(http.StatusConflict, ops.CodeRefused, "this export is too large to be downloaded here; its work item writes it into the restoration bucket")
			}
			return a.content(c, r.ID, of, streams), nil
		})
}

// kindsFor are the kinds that a caller may have.
func kindsFor(c access.Caller) []exports.Kind {
	return exports.WithKinds(c.Person.Role == registry.RoleInstitutionalUser)
}

func (a *handlers) listExports(ctx context.Context, c access.Caller, in *exportQuery) (*answer.Body[answer.List[record.ExportView]], error) {
	before, err := answer.DecodeCursor[int64]("exports", in.ExportFilter, in.After)
	if err != nil {
		return nil, err
	}
	p := exports.Page{Institution: in.Institution, Before: cmp.Or(before, in.BeforeID), Limit: in.Limit + 1}
	found, err := exports.In(a.Registry, c.Scope).List(ctx, kindsFor(c), p)
	if err != nil {
		return nil, err
	}
	views := make([]record.ExportView, len(found))
	for i, r := range found {
		views[i] = exportViewOf(r)
	}
	return answer.PageOf(ctx, views, in.Limit, func(v record.ExportView) string { return answer.EncodeCursor("exports", in.ExportFilter, v.ID) }), nil
}

func (a *handlers) makeExport(ctx context.Context, c access.Caller, in *answer.Body[record.ExportRequest]) (*answer.Body[record.ExportView], error) {
	scope := in.Body.Scope
	if _, own := c.Scope.Institution(); scope.Institution == "" && scope.Object == "" {
		scope.Institution = own
	}
	records := exports.In(a.Registry, c.Scope)
	entry := registry.AuditEntry{Operation: "exports.make", SubjectType: "export", Detail: map[string]any{"kind": in.Body.Kind, "institution": scope.Institution, "object": scope.Object}}
	r, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.Export, error) {
		if !mayExport(c, in.Body.Kind) {
			return record.Export{}, fmt.Errorf("%w: an institutional_user may export inventories and manifests only", registry.ErrRefused)
		}
		of, err := records.Find(ctx, in.Body.Kind, scope.Institution, scope.Object)
		if err != nil {
			return record.Export{}, err
		}
		entry.Institution = of.Institution
		id, err := a.newExport(ctx, records, of)
		if err != nil {
			return record.Export{}, err
		}
		entry.SubjectID = fmt.Sprint(id)
		r, _, err := records.Show(ctx, id, exports.Kinds())
		return r, err
	})
	return answer.Of(exportViewOf(r)), err
}

func mayExport(c access.Caller, kind exports.Kind) bool {
	for _, k := range kindsFor(c) {
		if k == kind {
			return true
		}
	}
	return false
}

// newExport puts an export on record. One that could not be sent in time becomes a work item.
func (a *handlers) newExport(ctx context.Context, records exports.Records, of exports.Of) (int64, error) {
	most := cmp.Or(a.Streamed, mostStreamed)
	n, err := records.Files(ctx, of, 3*most)
	if err != nil {
		return 0, err
	}
	if n > most && of.Kind == exports.Evidence {
		return 0, fmt.Errorf("%w: the object has more than %d files; export its inventory, events and PREMIS document instead", registry.ErrRefused, most)
	}
	id, err := records.Make(ctx, of)
	if err == nil && n > most {
		err = records.Queue(ctx, id, of, n)
	}
	return id, err
}

// content is an export that is made while it is sent.
func (a *handlers) content(c access.Caller, id int64, of exports.Of, streams chan struct{}) *ops.Content {
	sum := sha256.New()
	return &ops.Content{
		Type: of.MediaType(), Name: of.Name(),
		Digest: func() []byte { return sum.Sum(nil) },
		Write: func(ctx context.Context, w io.Writer) error {
			select {
			case streams <- struct{}{}:
				defer func() { <-streams }()
			default:
				return ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, "too many exports are being downloaded; try again in a minute")
			}
			var written exports.Written
			records := exports.In(a.Registry, c.Scope)
			err := records.Snapshot(ctx, c.ID(), func(ctx context.Context, s *exports.Snapshot) (err error) {
				counted := &counter{to: w}
				out := bufio.NewWriterSize(io.MultiWriter(counted, sum), 64<<10)
				written.Taken = s.Taken
				written.Records, err = s.WriteAll(ctx, out, of)
				if err == nil {
					err = out.Flush()
				}
				written.Bytes = counted.n
				return err
			})
			switch {
			case errors.Is(err, exports.ErrTooMany):
				return ops.Problem(http.StatusTooManyRequests, ops.CodeRateLimited, exports.ErrTooMany.Error())
			case err != nil:
				return err
			}
			written.SHA256 = sum.Sum(nil)
			// Each download shows another moment. The export has the last one; actions has all of
			// them, and who took each along.
			entry := registry.AuditEntry{
				Operation: "exports.content", SubjectType: "export", SubjectID: fmt.Sprint(id), Institution: of.Institution,
				Detail: map[string]any{"kind": of.Kind, "bytes": written.Bytes, "sha256": hex.EncodeToString(written.SHA256)},
			}
			return a.Registry.Act(ctx, c.Actor(), &entry, func(ctx context.Context) error { return records.Complete(ctx, id, written) })
		},
	}
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // it is the writer's
}
