package items

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

func itemFilesCommand() *cobra.Command {
	var page interim.Page
	var asJSON bool
	c := &cobra.Command{
		Use:   "files ID",
		Short: "List the files of an item with their states",
		Long: `List the files of an item, by name, with the state of each.

During an ingest, or after one that failed: read (its digests are known, the bag is still
being read), received, staged, identified, copied (to every target), verified, added or
replaced (recorded), unchanged (the same bytes were recorded), packaging (not stored),
missing, or failed with its code.

After an ingest that succeeded: added, replaced, left (recorded before, and not stored by
this item), or deleted since. If FAROL_KEEP_METADATA names a bucket with the item's
metadata, the list shows the states at the end of the ingest.

For a restoration: pending, restored, readable (in its archive), or not done. For a
deletion: pending, deleting or deleted.

The settings of S3 are needed only for files in the staging bucket or in kept metadata.`,
		Example: `  farol item files 7
  farol item files 7 --state failed --json
  farol item files 7 --limit 1000 --after data/0999.jpg`,
		Args: cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if page.State, err = cli.OneOf("--state", page.State, fileStates()); err != nil {
				return err
			}
			if err := cli.InRange("--limit", page.Limit, 1, 10000); err != nil {
				return err
			}
			if err := remote.RefuseFlags(cmd, "after"); err != nil {
				return err
			}
			id, err := itemID(args[0])
			if err != nil {
				return err
			}
			return listItemFiles(cmd, id, page, asJSON)
		},
	}
	flags := c.Flags()
	flags.StringVar(&page.State, "state", "", "only in this state: "+strings.Join(fileStates(), ", "))
	flags.IntVar(&page.Limit, "limit", 50, "how many at most")
	flags.StringVar(&page.After, "after", "", "only those that come after the file with this path, for the next page")
	cli.JSONFlag(c, &asJSON)
	_ = c.RegisterFlagCompletionFunc("state", cli.Complete(cli.Constant(fileStates), false)) // it fails only for a flag that is not there
	_ = c.RegisterFlagCompletionFunc("after", cobra.NoFileCompletions)
	return c
}

// fileStates are those that files of items can be in.
func fileStates() []string {
	return append(interim.States(), registry.ItemFileStates()...)
}

func listItemFiles(cmd *cobra.Command, id int64, page interim.Page, asJSON bool) error {
	const most = 10 * time.Minute // the lists of a large bag are fetched first
	ctx, cancel := context.WithTimeout(cmd.Context(), most)
	defer cancel()
	l := itemFileList{page: page, warnings: cmd.ErrOrStderr()}
	next := func(last interim.File) string { return "--after '" + human.Line(last.Path) + "'" }
	var err error
	if s := remote.From(ctx); s != nil {
		next = func(interim.File) string { return remote.More(page.Limit) }
		l.files, l.gone, err = remoteFiles(ctx, s, id, page)
	} else {
		err = l.connectAndRead(ctx, id)
	}
	if err != nil {
		return err
	}
	if l.gone != "" {
		if asJSON {
			fmt.Fprintln(cmd.ErrOrStderr(), l.gone)
		}
		return cli.Printf(cmd, asJSON, l.files, "%s\n", l.gone)
	}
	return cli.PrintPage(cmd, asJSON, l.files, page.Limit, printFiles, next)
}

// itemFileList reads a page of an item's files from where it is known.
type itemFileList struct {
	page     interim.Page
	warnings io.Writer

	registry *registry.Registry
	redis    settings.Redis
	item     registry.WorkItem
	attempts []registry.Attempt

	files []interim.File
	gone  string // why nothing is known of the files
}

func (l *itemFileList) connectAndRead(ctx context.Context, id int64) error {
	config, err := connect.Load(settings.ReadItem)
	if err != nil {
		return err
	}
	s, err := connect.Open(ctx, "item", connect.Needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.Close()
	l.registry, l.redis = s.Registry, config.Redis
	if l.item, err = s.Registry.WorkItem(ctx, id); err != nil {
		return err
	}
	if l.attempts, err = s.Registry.Attempts(ctx, id); err != nil {
		return err
	}
	return l.read(ctx)
}

func (l *itemFileList) read(ctx context.Context) error {
	ingest := l.item.Action == "Ingest"
	if ingest && l.item.Status != "Success" {
		known, err := l.inWork(ctx)
		if err != nil || known {
			return err
		}
	}
	if ingest && !l.item.Retry || l.item.Stage == registry.Cleanup {
		if found, err := l.kept(ctx); err != nil || found {
			return err
		}
	}
	if !ingest || l.item.Stage == registry.Cleanup {
		return l.onRecord(ctx)
	}
	l.gone = fmt.Sprintf("Nothing is kept of the files of item %d any more: its interim metadata was removed.", l.item.ID)
	if l.item.Stage == registry.Receive {
		l.gone = fmt.Sprintf("Nothing is known of the files of item %d: its bag was not read, or not far enough.", l.item.ID)
	}
	return nil
}

// inWork lists the files by what the stages have left in staging and Redis.
func (l *itemFileList) inWork(ctx context.Context) (known bool, err error) {
	s, c, err := l.stores(ctx)
	if err != nil {
		return false, err
	}
	defer s.Close()
	d := pipeline.Deps{Registry: l.registry, Log: slog.New(slog.DiscardHandler)}
	if d.Staging, err = s.Receiving(c.Staging.Bucket); err != nil {
		return false, err
	}
	if err := s.OpenProgress(ctx, l.redis); err != nil { // the rest is shown
		fmt.Fprintln(l.warnings, "The progress of files within the stage is not known:", err)
	}
	d.Progress = s.Progress
	m, err := ingest.InterimReader(d).Read(ctx, l.item, l.attempts)
	if err != nil {
		return false, noFilesRead(err)
	}
	defer m.Close()
	if l.files, err = l.page.Of(m.Files(ctx)); err != nil {
		return false, noFilesRead(err)
	}
	if m.Faults != nil && m.Faults.More > 0 && slices.ContainsFunc(l.files, func(f interim.File) bool { return f.State == "failed" }) {
		fmt.Fprintf(l.warnings, "The last attempt had %d more faults, whose files are not known.\n", m.Faults.More)
	}
	return m.Known() || len(l.files) > 0, nil
}

// kept lists the files by the metadata in FAROL_KEEP_METADATA, if there is any.
func (l *itemFileList) kept(ctx context.Context) (found bool, err error) {
	keep, err := connect.Load(settings.ReadKeep)
	if err != nil || keep.Bucket == "" {
		return false, err
	}
	s, _, err := l.stores(ctx)
	if err != nil {
		return false, err
	}
	defer s.Close()
	bucket, err := s.Receiving(keep.Bucket)
	if err != nil {
		return false, err
	}
	k, err := interim.Open(ctx, bucket, l.item.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, noFilesRead(err)
	}
	defer k.Close() //nolint:errcheck // only read
	if l.files, err = l.page.Of(k.Files()); err != nil {
		return false, noFilesRead(err)
	}
	fmt.Fprintf(l.warnings, "This is how the files were kept %s, at %s.\n", human.Time(k.At), k.Stage)
	return true, nil
}

// onRecord lists the files by their records.
func (l *itemFileList) onRecord(ctx context.Context) error {
	f := registry.ItemFileFilter{Item: l.item, Ended: time.Now(), State: l.page.State, After: l.page.After, Limit: l.page.Limit}
	if n := len(l.attempts); n > 0 && l.attempts[n-1].EndedAt != nil {
		f.Ended = *l.attempts[n-1].EndedAt
	}
	list, err := l.registry.ItemFiles(ctx, f)
	for _, x := range list {
		of := interim.File{Path: x.Path, Size: x.Size, State: x.State, Message: x.Message, UUID: x.UUID, Format: x.Format, PUID: x.PUID}
		for _, target := range x.Targets {
			of.Copies = append(of.Copies, interim.Copy{Target: target})
		}
		l.files = append(l.files, of)
	}
	return err
}

// stores opens the S3 service.
func (l *itemFileList) stores(ctx context.Context) (*connect.Services, settings.ItemStores, error) {
	config, err := connect.Load(settings.ReadItemStores)
	if err != nil {
		return nil, config, err
	}
	s, err := connect.Open(ctx, "item", connect.Needs{S3: &config.S3})
	return s, config, err
}

func noFilesRead(err error) error {
	return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "see with `farol check` that Redis and the buckets answer, then try again"}
}

func printFiles(w io.Writer, files []interim.File) error {
	var rows [][]string
	for _, f := range files {
		var copies []string
		for _, c := range f.Copies {
			copies = append(copies, c.Target)
		}
		rows = append(rows, []string{
			human.Line(f.Path), human.Bytes(f.Size), f.State, human.Line(f.Format), human.Line(f.PUID), strings.Join(copies, ","),
			human.Line(strings.TrimSpace(f.Code + " " + human.Shorten(f.Message, mostWords))),
		})
	}
	return cli.WriteList(w, "files", []string{"FILE", "BYTES", "STATE", "FORMAT", "PUID", "COPIES", "WHAT"}, rows)
}
