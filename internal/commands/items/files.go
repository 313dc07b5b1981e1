package items

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	var l interim.Listing
	var err error
	if s := remote.From(ctx); s != nil {
		l, err = remoteFiles(ctx, s, id, page)
	} else {
		l, err = connectAndList(ctx, id, page, cmd.ErrOrStderr())
	}
	if err != nil {
		return err
	}
	if !l.Known {
		if asJSON {
			fmt.Fprintln(cmd.ErrOrStderr(), l.Note)
		}
		return cli.Printf(cmd, asJSON, l.Files, "%s\n", l.Note)
	}
	if l.Note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), l.Note)
	}
	return cli.PrintPage(cmd, asJSON, l.Files, page.Limit, printFiles, func(last interim.File) string { return "--after '" + human.Line(last.Path) + "'" })
}

// connectAndList reads a page of an item's files from where they are known.
func connectAndList(ctx context.Context, id int64, page interim.Page, warnings io.Writer) (l interim.Listing, err error) {
	config, err := connect.Load(settings.ReadItem)
	if err != nil {
		return l, err
	}
	s, err := connect.Open(ctx, "item", connect.Needs{Database: &config.Database})
	if err != nil {
		return l, err
	}
	defer s.Close()
	item, err := s.Registry.WorkItem(ctx, id)
	if err != nil {
		return l, err
	}
	places := filePlaces{registry: s.Registry, redis: config.Redis, warnings: warnings}
	defer places.close()
	from := interim.Sources{Registry: s.Registry, InWork: places.inWork, Kept: places.kept}
	l, err = from.List(ctx, item, page)
	var unread interim.UnreadError
	if errors.As(err, &unread) {
		return l, cli.Failure{Code: cli.ExitFailed, Err: unread.Err, Next: "see with `farol check` that Redis and the buckets answer, then try again"}
	}
	return l, err
}

// filePlaces are the places outside the database where the files of an item are known. They
// are opened when they are needed.
type filePlaces struct {
	registry *registry.Registry
	redis    settings.Redis
	warnings io.Writer

	services *connect.Services // nil: S3 was not needed yet
	config   settings.ItemStores
}

func (p *filePlaces) close() {
	if p.services != nil {
		p.services.Close()
	}
}

// open opens the S3 service.
func (p *filePlaces) open(ctx context.Context) (err error) {
	if p.services != nil {
		return nil
	}
	if p.config, err = connect.Load(settings.ReadItemStores); err != nil {
		return err
	}
	p.services, err = connect.Open(ctx, "item", connect.Needs{S3: &p.config.S3})
	return err
}

// inWork reads what the stages have left in staging and Redis.
func (p *filePlaces) inWork(ctx context.Context) (interim.Reader, error) {
	if err := p.open(ctx); err != nil {
		return interim.Reader{}, err
	}
	d := pipeline.Deps{Registry: p.registry, Log: slog.New(slog.DiscardHandler)}
	var err error
	if d.Staging, err = p.services.Receiving(p.config.Staging.Bucket); err != nil {
		return interim.Reader{}, err
	}
	if err := p.services.OpenProgress(ctx, p.redis); err != nil { // the rest is shown
		fmt.Fprintln(p.warnings, "The progress of files within the stage is not known:", err)
	}
	d.Progress = p.services.Progress
	return ingest.InterimReader(d), nil
}

// kept is the bucket of FAROL_KEEP_METADATA.
func (p *filePlaces) kept(ctx context.Context) (*storage.Bucket, error) {
	keep, err := connect.Load(settings.ReadKeep)
	if err != nil || keep.Bucket == "" {
		return nil, err
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p.services.Receiving(keep.Bucket)
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
