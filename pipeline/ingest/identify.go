package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/virus"
)

// identify asks Siegfried for the format of each file, by its bytes and not only by its name.
// It reads ranges of the tar: small files whole, several in a request, and of large
// files only the ranges that the signatures need, within a budget. Siegfried runs in child
// processes. A file that kills one keeps the type that its extension suggests, and the bag
// continues.
//
// If there is a virus scanner, it gets each of these files whole. A bag with an infected file
// ends here, and its tar stays where it is.
type identify struct {
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Formats   *format.Identifier
	Viruses   *virus.Scanner // nil: files are not checked for viruses
	Files     int            // at once

	known knownFormats
}

func (s *identify) Run(ctx context.Context, w *work) error {
	_, files, inventoryID, err := w.toStore(ctx)
	if err != nil {
		return err
	}
	tar := newSource(w, s.Receiving, s.Staging)
	results, err := w.each(ctx, s.Files, lists.InRequests(files, s.Files, lists.WholeFile), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		open := tar.open(group[0])
		if f := group[0]; f.Size > lists.WholeFile {
			found, err := s.Formats.Identify(ctx, f.Path, f.Size, open.File(ctx, f))
			if err != nil {
				return notIdentified(ctx, err)
			}
			fault.Answered(ctx, fault.Identifier)
			result, err := s.scan(ctx, f, found, func() (io.ReadCloser, error) { return open(ctx, f.Offset, f.Size) })
			if err != nil {
				return err
			}
			finished(f, result.Pack())
			return nil
		}
		return lists.ReadGroup(ctx, open, group, func(f *lists.File, content []byte) error {
			if err := tar.verify(ctx, f, content); err != nil {
				return err
			}
			found, err := s.identifyOnce(ctx, f, content)
			if err != nil {
				return notIdentified(ctx, err)
			}
			fault.Answered(ctx, fault.Identifier)
			result, err := s.scan(ctx, f, found, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
			if err != nil {
				return err
			}
			finished(f, result.Pack())
			return nil
		})
	})
	if err != nil {
		return err
	}
	list, err := s.unpack(ctx, w, files, results)
	if err != nil {
		return err
	}
	if err := infected(files, list); err != nil {
		return err
	}
	return lists.Write(ctx, w.lists, lists.FormatsName, inventoryID, nil, len(files), list)
}

// identifyOnce identifies a content that has its digest, unless that was done lately.
func (s *identify) identifyOnce(ctx context.Context, f *lists.File, content []byte) (format.Result, error) {
	key := contentOf(f)
	if found, ok := s.known.find(key); ok {
		return found, nil
	}
	found, err := s.Formats.Identify(ctx, f.Path, f.Size, bytes.NewReader(content))
	if err == nil {
		s.known.keep(key, found)
		fault.Answered(ctx, fault.Identifier)
	}
	return found, err
}

func notIdentified(ctx context.Context, err error) error {
	return fmt.Errorf("identify the format: %w", cause.Identifier(ctx, err))
}

// scan looks for viruses in a file whose format was found. whole opens it from its beginning.
func (s *identify) scan(ctx context.Context, f *lists.File, found format.Result, whole func() (io.ReadCloser, error)) (lists.Format, error) {
	out := lists.AsIdentified(found)
	out.Index = f.Index
	if s.Viruses == nil {
		return out, nil
	}
	r, err := whole()
	if err != nil {
		return lists.Format{}, err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	v, err := s.Viruses.Scan(ctx, f.Size, r)
	if err != nil {
		return lists.Format{}, fmt.Errorf("check for viruses: %w", cause.Scanner(ctx, err))
	}
	fault.Answered(ctx, fault.Scanner)
	out.Scanner, out.Infection, out.Unchecked = v.Scanner, v.Signature, v.Unchecked
	return out, nil
}

// infected is the end of a bag in which a virus was found, and names the files.
func infected(files []*lists.File, list iter.Seq[lists.Format]) error {
	const most = 30
	var found []string
	i := 0
	for as := range list {
		if as.Infection != "" {
			found = append(found, fmt.Sprintf("The file %s is infected: %s finds %s.", files[i].Path, as.Scanner, as.Infection))
		}
		i++
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

// errOtherSignatures says that results in Redis are of another version of the signatures.
var errOtherSignatures = errors.New("the format signatures changed while files of the bag were being identified")

// unpack yields the list, which may be as long as the bag, from the results in Redis. If some
// are of another version, as after an upgrade of a worker, all are discarded, and the next
// attempt identifies all files.
func (s *identify) unpack(ctx context.Context, w *work, files []*lists.File, results map[int]string) (iter.Seq[lists.Format], error) {
	if len(files) == 0 {
		return func(func(lists.Format) bool) {}, nil
	}
	version, err := s.Formats.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify formats: %w", err)
	}
	tag := lists.VersionTag(version)
	for _, f := range files {
		if _, was, ok := lists.UnpackFormat(f.Index, results[f.Index]); !ok || was != "" && was != tag {
			return nil, errors.Join(errOtherSignatures, w.ProgressErr(w.Progress.ClearStage(ctx, w.Claim(), w.Pass())))
		}
	}
	return func(yield func(lists.Format) bool) {
		for _, f := range files {
			as, was, _ := lists.UnpackFormat(f.Index, results[f.Index])
			if was != "" {
				as.Version = version
			}
			if !yield(as) {
				return
			}
		}
	}, nil
}
