package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/premis"
)

// File is farol file.
func File() *cobra.Command {
	return cli.Group("file", "List and show the files of objects", fileListCommand(), fileShowCommand())
}

func fileListCommand() *cobra.Command {
	var object string // that is named; "": none
	return op.List[record.ListedFile]{
		Path: "files", What: "files", Next: filesAfter,
		Header: []string{"FILE", "BYTES", "FORMAT", "PUID", "COPIES", "LAST READ", "STATE"},
		Row:    func(f record.ListedFile) []string { return fileRow(f, object) },
		Empty: func(ctx context.Context, c *op.Call) error {
			if object == "" {
				return nil
			}
			_, err := remote.Get[struct{}](ctx, c.Server, "objects/by-identifier", url.Values{"identifier": {object}})
			return err
		},
	}.Command(op.Command{
		Args:  cobra.MaximumNArgs(1),
		Use:   "list [OBJECT]",
		Short: "List the files of an object, or those with a digest",
		Long: `List the files of an object in the order of their identifiers. With --digest, list the files
that have, or had, a content, newest first: of all objects if none is named.`,
		Example: `  farol file list test.edu/photographs
  farol file list test.edu/photographs --state A --json
  farol file list test.edu/photographs --limit 2 --after test.edu/photographs/data/1.jpg
  farol file list --digest d41d8cd98f00b204e9800998ecf8427e
  farol file list --uuid 5b6a1f0e-3c55-4f7d-9a0e-0f5d2f1c7a11`,
		Param:  "object",
		Failed: missing(objectsListed),
		Flags: []op.Flag{
			stateFlag(),
			{Name: "digest", Param: "digest", Help: "only those with this MD5 or SHA-256, in hexadecimal"},
			{Name: "uuid", Param: "uuid", Help: "only the one with this UUID"},
			{Name: "after", Param: "after_identifier", Help: "only those that come after the file with this identifier, for the next page"},
			{Name: "before", Param: "before", Kind: op.Number, Help: "with --digest, only those with a lower ID, for the next page"},
		},
		Check: func(c *op.Call) error {
			if object = c.Arg; object == "" && !c.Given("digest") && !c.Given("uuid") {
				return cli.Usage(errors.New("no object is named"), "name an object by its identifier, or give --digest or --uuid")
			}
			return nil
		},
	})
}

// filesAfter is the flag for the page after a file.
func filesAfter(c *op.Call, last record.ListedFile) string {
	if c.Given("digest") {
		return fmt.Sprintf("--before %d", last.ID)
	}
	return "--after '" + human.Line(last.Identifier) + "'"
}

// fileRow is a file in a list of those of an object, or of all objects.
func fileRow(x record.ListedFile, object string) []string {
	copies := strconv.FormatInt(x.Copies, 10)
	if x.Bad > 0 {
		copies += fmt.Sprintf(" (%d bad)", x.Bad)
	}
	read := "never"
	switch {
	case x.Copies == 0:
		read = ""
	case x.NeverRead == 0 && x.LastReadAt != nil:
		read = human.Time(*x.LastReadAt)
	}
	return []string{
		human.Line(strings.TrimPrefix(x.Identifier, object+"/")), human.Bytes(x.Size), human.Line(x.FileFormat), human.Line(x.FormatPUID), copies, read, x.State,
	}
}

func fileShowCommand() *cobra.Command {
	return recordCommand(op.Command{
		Use:   "show IDENTIFIER",
		Short: "Show the records of a file",
		Long: `Show a file, even a deleted one: the digests of its present and earlier contents, each
copy with its checks, the copies that were bad, its events, and the receipts of its
deletion. With --premis, print it as PREMIS 3 XML.`,
		Example: `  farol file show test.edu/photographs/data/1.jpg
  farol file show test.edu/photographs/data/1.jpg --json
  farol file show test.edu/photographs/data/1.jpg --premis`,
		Arg:    "file by its identifier (institution/bag/path)",
		Failed: missing("name a file as institution/bag/path; `farol file list OBJECT` shows those of an object"),
	}, readFile, printFile, premis.OfFile)
}

// filePage is all that is on record of a file.
type filePage struct {
	record.File

	Failures []record.CopyFailure `json:"failures"` // copies that were bad, the newest first
	Events   []record.Event       `json:"events"`
	Receipts []record.DeletedCopy `json:"receipts"`
}

func readFile(ctx context.Context, c *op.Call) (*filePage, error) {
	v, err := remote.Get[filePage](ctx, c.Server, "files/by-identifier", c.Query())
	if err == nil {
		v.Events, err = eventsOf(ctx, c, "file", v.ID)
	}
	return &v, err
}

func printFile(w io.Writer, v *filePage) error {
	rows := [][]string{
		{"Object", human.Line(v.Object)},
		{"State", v.state()},
		{"Size", fmt.Sprintf("%s (%d bytes)", human.Bytes(v.Size), v.Size)},
		{"Format", v.format()},
		{"UUID", v.UUID},
		{"Storage option", v.StorageOption},
		{"Modified", when(v.ModTime, "unknown")},
		{"Recorded", human.Time(v.CreatedAt)},
	}
	if err := cli.WriteTable(w, []string{"File", human.Line(v.Identifier)}, rows); err != nil {
		return err
	}
	return cmp.Or(v.printDigests(w), v.printCopies(w), v.printFailures(w), printEvents(w, v.Events), v.printReceipts(w))
}

func (v *filePage) state() string {
	switch {
	case v.State == "D" && v.DeletedByItem != nil:
		return fmt.Sprintf("deleted by item %d", *v.DeletedByItem)
	case v.State == "D":
		return "deleted"
	case v.DeletedByItem != nil:
		return fmt.Sprintf("being deleted by item %d", *v.DeletedByItem)
	}
	return "active"
}

func (v *filePage) format() string {
	text := human.Line(v.FileFormat)
	if v.FormatPUID != "" {
		text += ", PUID " + human.Line(v.FormatPUID)
	}
	if v.FormatName != "" {
		text += " (" + human.Line(v.FormatName) + ")"
	}
	if by := cmp.Or(v.FormatMethod, v.FormatIdentifiedBy); by != "" {
		text += ", by " + human.Line(by)
	}
	if v.FormatReason != "" {
		text += "; " + human.Line(v.FormatReason)
	}
	return text
}

// when is a point in time for people, or a word where there is none.
func when(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return human.Time(*t)
}

func (v *filePage) printDigests(w io.Writer) error {
	return printSection(w, "No digests.", []string{"CONTENT", "ALGORITHM", "DIGEST", "SINCE"}, v.Digests, func(d record.Digest) []string {
		of := "present"
		if !d.Present {
			of = "earlier"
		}
		return []string{of, d.Algorithm, d.Digest, human.Time(d.At)}
	})
}

// verifications say how a copy was verified when it was stored.
func verifications(by string) string {
	return map[string]string{"sha256": "by its SHA-256", "etag": "by its ETag", "read": "by reading it", "": "by an unknown method"}[by]
}

func (v *filePage) printCopies(w io.Writer) error {
	header := []string{"COPY", "FOUND", "STORED", "VERIFIED", "LAST READ", "ETAG", "ADDRESS"}
	return printSection(w, "No copies.", header, v.Copies, func(c record.FileCopy) []string {
		found := "as recorded"
		if c.LastReadAt == nil {
			found = "not read yet"
		}
		if c.Problem != "" {
			found = "BAD: " + c.Problem
		}
		return []string{
			c.Target, found, human.Time(c.StoredAt), human.Time(c.VerifiedAt) + " " + verifications(c.VerifiedBy), when(c.LastReadAt, "never"), human.Line(c.ETag), human.Line(c.URL),
		}
	})
}

func (v *filePage) printFailures(w io.Writer) error {
	header := []string{"BAD COPY", "PROBLEM", "STATE", "FOUND", "LAST SEEN", "ENDED", "EXPECTED", "READ", "QUARANTINED AS"}
	return printSection(w, "", header, v.Failures, func(f record.CopyFailure) []string {
		return []string{
			f.Target, f.Problem, f.State, human.Time(f.FoundAt), human.Time(f.SeenAt), when(f.ClosedAt, ""), f.Algorithm + ":" + f.Expected, cmp.Or(f.Found, "nothing"),
			human.Line(f.QuarantinedAs),
		}
	})
}

func (v *filePage) printReceipts(w io.Writer) error {
	return printSection(w, "", []string{"ITEM", "COPY", "LOOKED FOR", "DELETION", "SEEN TO BE GONE", "ADDRESS"}, v.Receipts, func(r record.DeletedCopy) []string {
		what := "not deleted yet"
		switch {
		case r.Kept != "":
			what = "kept: " + human.Line(r.Kept)
		case r.Missing && r.AcceptedBy != "":
			what = "found missing, accepted by " + human.Line(r.AcceptedBy)
		case r.Missing:
			what = "found missing, not accepted yet"
		case r.RemovedAt != nil:
			what = "deleted " + human.Time(*r.RemovedAt) + wasKept(r)
		case r.KeptByStore != "":
			what = human.Line(r.KeptByStore)
		}
		return []string{fmt.Sprint(r.Item), r.Target, when(r.SeenAt, ""), what, when(r.AbsentAt, ""), human.Line(r.URL)}
	})
}
