package archive

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/requests"
)

// mostEvents is how many events of an object or a file a server is asked for.
const mostEvents = 1000

// remoteObject is what a server has on record of an object.
func remoteObject(ctx context.Context, s *remote.Server, identifier string) (*objectPage, error) {
	v, err := remote.Get[objectPage](ctx, s, "objects/by-identifier", url.Values{"identifier": {identifier}})
	if err != nil {
		return nil, err
	}
	if v.Events, err = remoteEvents(ctx, s, "object", v.ID); err != nil {
		return nil, err
	}
	v.Items, err = remote.List[registry.WorkItem](ctx, s, "items", url.Values{"object": {identifier}}, mostItems)
	return &v, err
}

// remoteFile is what a server has on record of a file.
func remoteFile(ctx context.Context, s *remote.Server, identifier string) (*filePage, error) {
	v, err := remote.Get[filePage](ctx, s, "files/by-identifier", url.Values{"identifier": {identifier}})
	if err != nil {
		return nil, err
	}
	v.Events, err = remoteEvents(ctx, s, "file", v.ID)
	return &v, err
}

// remoteEvents lists the events of a record, the oldest first.
func remoteEvents(ctx context.Context, s *remote.Server, of string, id int64) ([]registry.Event, error) {
	list, err := remote.List[registry.Event](ctx, s, "events", url.Values{of: {strconv.FormatInt(id, 10)}}, mostEvents)
	slices.Reverse(list)
	return list, err
}

// objectThere refuses an object that a server does not have; "" is none.
func objectThere(cmd *cobra.Command, object string) error {
	if object == "" {
		return nil
	}
	_, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		_, err := remote.Get[struct{}](ctx, s, "objects/by-identifier", url.Values{"identifier": {object}})
		return noObject(err)
	})
	return err
}

// objectsQuery is a list of objects as a server takes it.
func objectsQuery(f browse.ObjectFilter, before int64, after string) url.Values {
	return remote.Query("institution", f.Institution, "state", f.State, "storage_option", f.StorageOption, "identifier_prefix", f.Prefix,
		"before", remote.ID(before), "after_identifier", after)
}

// filesQuery is a list of files as a server takes it.
func filesQuery(f browse.FileFilter, after browse.Key) url.Values {
	return remote.Query("object", f.Object, "state", f.State, "digest", f.Digest, "uuid", f.UUID, "before", remote.ID(after.ID), "after_identifier", after.Identifier)
}

// deleteRemotely has a server decide about a deletion, if the command works through one.
func deleteRemotely(cmd *cobra.Command, path string, body any, show func(requests.DeletionRequest) error) (bool, error) {
	if err := remote.RefuseFlags(cmd, "by"); err != nil {
		return false, err
	}
	return remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		d, err := remote.Send[requests.DeletionRequest](ctx, s, http.MethodPost, path, body)
		if err != nil {
			return undeletable(err)
		}
		return show(d)
	})
}

// remoteFixity is the state of fixity checks as a server has it, for those who see all.
func remoteFixity(ctx context.Context, s *remote.Server) (r FixityReport, err error) {
	v, err := remote.Get[struct{ Archive *fixity.Status }](ctx, s, "fixity", nil)
	switch {
	case err != nil:
		return r, err
	case v.Archive == nil:
		return r, cli.Failure{Code: cli.ExitFailed, Err: errors.New("the state of all checks is for staff, operators and auditors of the archive"), Next: "GET /api/v1/fixity shows that of your institution"}
	}
	r.Status = *v.Archive
	if r.BadCopies, err = remote.List[fixity.BadCopy](ctx, s, "fixity/bad", nil, mostBad); err != nil {
		return r, err
	}
	r.Stops, err = remote.All[fixity.RepairStop](ctx, s, "brakes")
	return r, err
}

// mostBad is how many bad copies are shown.
const mostBad = 1000
