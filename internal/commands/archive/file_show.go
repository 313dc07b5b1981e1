package archive

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/premis"
	"github.com/farol-preservation/farol/registry/requests"
)

func fileShowCommand() *cobra.Command {
	return recordCommand(&cobra.Command{
		Use:   "show IDENTIFIER",
		Short: "Show the records of a file",
		Long: `Show a file, even a deleted one: the digests of its present and earlier contents, each
copy with its checks, the copies that were bad, its events, and the receipts of its
deletion. With --premis, print it as PREMIS 3 XML.`,
		Example: `  farol file show test.edu/photographs/data/1.jpg
  farol file show test.edu/photographs/data/1.jpg --json
  farol file show test.edu/photographs/data/1.jpg --premis`,
		Args: cli.OneArg("file by its identifier (institution/bag/path)"),
	}, readFilePage, remoteFile, printFile, premis.OfFile, noFile)
}

// filePage is all that is on record of a file.
type filePage struct {
	registry.File

	Failures []registry.CopyFailure `json:"failures"` // copies that were bad, the newest first
	Events   []registry.Event       `json:"events"`
	Receipts []requests.DeletedCopy `json:"receipts"`
}

func readFilePage(ctx context.Context, r *registry.Registry, identifier string) (v *filePage, err error) {
	v = &filePage{}
	if v.File, err = browse.In(r, registry.Everything()).FileByIdentifier(ctx, identifier); err != nil {
		return nil, noFile(err)
	}
	if v.Failures, err = r.FileFailures(ctx, v.ID); err != nil {
		return nil, err
	}
	if v.Events, err = r.FileEvents(ctx, v.ID); err != nil {
		return nil, err
	}
	v.Receipts, err = requests.In(r).FileReceipts(ctx, v.ID)
	return v, err
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
	for _, section := range []func(io.Writer) error{v.printDigests, v.printCopies, v.printFailures} {
		if err := section(w); err != nil {
			return err
		}
	}
	if err := printEvents(w, v.Events); err != nil || len(v.Receipts) == 0 {
		return err
	}
	return v.printReceipts(w)
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
	var rows [][]string
	for _, d := range v.Digests {
		of := "present"
		if !d.Present {
			of = "earlier"
		}
		rows = append(rows, []string{of, d.Algorithm, d.Digest, human.Time(d.At)})
	}
	return printSection(w, "No digests.", []string{"CONTENT", "ALGORITHM", "DIGEST", "SINCE"}, rows)
}

// verifications say how a copy was verified when it was stored.
func verifications(by string) string {
	return map[string]string{"sha256": "by its SHA-256", "etag": "by its ETag", "read": "by reading it", "": "by an unknown method"}[by]
}

func (v *filePage) printCopies(w io.Writer) error {
	var rows [][]string
	for _, c := range v.Copies {
		found := "as recorded"
		if c.LastReadAt == nil {
			found = "not read yet"
		}
		if c.Problem != "" {
			found = "BAD: " + c.Problem
		}
		rows = append(rows, []string{
			c.Target, found, human.Time(c.StoredAt), human.Time(c.VerifiedAt) + " " + verifications(c.VerifiedBy), when(c.LastReadAt, "never"), human.Line(c.ETag), human.Line(c.URL),
		})
	}
	return printSection(w, "No copies.", []string{"COPY", "FOUND", "STORED", "VERIFIED", "LAST READ", "ETAG", "ADDRESS"}, rows)
}

func (v *filePage) printFailures(w io.Writer) error {
	if len(v.Failures) == 0 {
		return nil
	}
	var rows [][]string
	for _, f := range v.Failures {
		rows = append(rows, []string{
			f.Target, f.Problem, f.State, human.Time(f.FoundAt), human.Time(f.SeenAt), when(f.ClosedAt, ""), f.Algorithm + ":" + f.Expected, cmp.Or(f.Found, "nothing"),
			human.Line(f.QuarantinedAs),
		})
	}
	header := []string{"BAD COPY", "PROBLEM", "STATE", "FOUND", "LAST SEEN", "ENDED", "EXPECTED", "READ", "QUARANTINED AS"}
	return printSection(w, "", header, rows)
}

func (v *filePage) printReceipts(w io.Writer) error {
	var rows [][]string
	for _, r := range v.Receipts {
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
		rows = append(rows, []string{fmt.Sprint(r.Item), r.Target, when(r.SeenAt, ""), what, when(r.AbsentAt, ""), human.Line(r.URL)})
	}
	return printSection(w, "", []string{"ITEM", "COPY", "LOOKED FOR", "DELETION", "SEEN TO BE GONE", "ADDRESS"}, rows)
}
