package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// identify asks Siegfried what each file is, by its bytes and not only by its
// name. It reads ranges of the tar: small files whole and several in a request,
// of large ones only what the signatures look at, within a budget. Siegfried
// runs in child processes; a file that kills one keeps the type that its
// extension suggests, and the bag goes on.
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
			result, err := s.one(ctx, f, content)
			if err != nil {
				return w.receivingErr(err)
			}
			finished(f, result)
			return nil
		}
		return readGroup(ctx, tar, group, atTar, func(f *file, content []byte) error {
			result, err := s.one(ctx, f, bytes.NewReader(content))
			if err != nil {
				return err
			}
			finished(f, result)
			return nil
		})
	})
	if err != nil {
		return err
	}
	return s.write(ctx, w, inventoryID, results)
}

func (s *identify) one(ctx context.Context, f *file, content io.ReaderAt) (string, error) {
	if f.size == 0 {
		return encode(identified{Index: f.index, MIME: f.format, By: "ext map"})
	}
	result, err := s.Formats.Identify(ctx, f.path, f.size, content)
	if err != nil {
		return "", fmt.Errorf("identify the format: %w", err)
	}
	return encode(identified{Index: f.index, MIME: result.MIME, PUID: result.PUID, By: result.IdentifiedBy})
}

func (s *identify) write(ctx context.Context, w *work, inventoryID string, results map[int]string) error {
	rows := slices.Sorted(maps.Keys(results))
	return writeList(ctx, w, s.Deps, formatsName, inventoryID, nil, len(rows), func(yield func(json.RawMessage) bool) {
		for _, i := range rows {
			if !yield(json.RawMessage(results[i])) {
				return
			}
		}
	})
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode a result: %w", err)
	}
	return string(b), nil
}
