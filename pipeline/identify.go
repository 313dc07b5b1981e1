package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
)

// identify asks Siegfried what each file is, by its bytes and not only by its
// name. It reads ranges of the tar: small files whole and several in a request,
// of large ones only what the signatures look at, within a budget. Siegfried
// runs in child processes; a file that kills one keeps the type that its
// extension suggests, and the bag goes on.
//
// Where there is a virus scanner, it gets each of these files whole, on the way. A
// bag with an infected file ends here, and stays where it is.
type identify struct{ Deps }

func (s *identify) Run(ctx context.Context, w *work) error {
	_, files, inventoryID, err := w.toStore(ctx, s.Deps)
	if err != nil {
		return err
	}
	receiving, tar, err := w.tar(s.Deps)
	if err != nil {
		return err
	}
	results, err := w.each(ctx, s.Deps, inTheTar(files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		if f := group[0]; f.size > wholeFile {
			content := io.NewSectionReader(receiving.ReaderAt(ctx, w.item.Name, w.item.Size, w.item.ETag), f.offset, f.size)
			result, err := s.one(ctx, f, content, func() (io.ReadCloser, error) { return tar(ctx, f.offset, f.size) })
			if err != nil {
				return w.receivingErr(err)
			}
			finished(f, result.pack())
			return nil
		}
		return readGroup(ctx, tar, group, atTar, func(f *file, content []byte) error {
			result, err := s.one(ctx, f, bytes.NewReader(content), func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(content)), nil
			})
			if err != nil {
				return err
			}
			finished(f, result.pack())
			return nil
		})
	})
	if err != nil {
		return err
	}
	list, err := s.unpack(ctx, w, results)
	if err != nil {
		return err
	}
	if err := infected(files, list); err != nil {
		return err
	}
	return writeList(ctx, w, s.Deps, formatsName, inventoryID, nil, len(list), byIndex(list))
}

// one finds out about one file. whole opens it from its beginning.
func (s *identify) one(ctx context.Context, f *file, content io.ReaderAt, whole func() (io.ReadCloser, error)) (identified, error) {
	result, err := s.Formats.Identify(ctx, f.path, f.size, content)
	if err != nil {
		return identified{}, fmt.Errorf("identify the format: %w", identifierErr(ctx, err))
	}
	out := asIdentified(result)
	out.Index = f.index
	if s.Viruses == nil {
		return out, nil
	}
	r, err := whole()
	if err != nil {
		return identified{}, err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	v, err := s.Viruses.Scan(ctx, f.size, r)
	if err != nil {
		return identified{}, fmt.Errorf("check for viruses: %w", scannerErr(ctx, err))
	}
	out.Scanner, out.Infection, out.Unchecked = v.Scanner, v.Signature, v.Unchecked
	return out, nil
}

// asIdentified is what is kept of a result.
func asIdentified(r format.Result) identified {
	reason := r.Reason
	if r.Detail != "" {
		reason += ": " + r.Detail
	}
	return identified{
		MIME: r.MIME, PUID: r.PUID, Name: r.Name, Method: r.Method, By: r.IdentifiedBy, Version: r.Version,
		Reason: cleanText(reason), At: time.Now().Unix(),
	}
}

// infected is the end of a bag in which a virus was found, and names the files.
func infected(files []*file, list map[int]identified) error {
	const most = 30
	var found []string
	for _, f := range files {
		if v := list[f.index].Infection; v != "" {
			found = append(found, fmt.Sprintf("The file %s is infected: %s finds %s.", f.path, list[f.index].Scanner, v))
		}
	}
	if len(found) == 0 {
		return nil
	}
	more := ""
	if n := len(found) - most; n > 0 {
		found, more = found[:most], fmt.Sprintf(" | %d more files are infected.", n)
	}
	return claim.Fatal("infected", "%s%s | Nothing of the bag was stored; it stays in the receiving bucket until a person decides.",
		strings.Join(found, " | "), more)
}
