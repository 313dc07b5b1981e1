package restore

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
)

// restoreFile restores one file. Its digest is computed on the way, and nothing appears in the
// restoration bucket before the digest has been found right.
type restoreFile struct{ pipeline.Deps }

func (s *restoreFile) Run(ctx context.Context, w *pipeline.Work) error {
	if _, err := beforeRestoring(ctx, s.Registry, w); err != nil {
		return err
	}
	file, err := s.file(ctx, w)
	if err != nil {
		return err
	}
	g := giveBack{
		key: file.Identifier, about: file.Identifier, mime: file.Format, size: file.Size, files: 1, id: fmt.Sprintf("%s %d %s", file.Identifier, file.Size, file.SHA256),
		note: func(url string) (string, string) {
			return fmt.Sprintf("File %s restored to %s.", file.Identifier, url), "File restoration complete"
		},
	}
	g.stream = stream{giving: newGiving(s.Deps, w), partSize: partSizeOf(file.Size), write: func(ctx context.Context, out *outlet) error {
		w.Hold.CurrentFile(file.Identifier)
		w.Count.Read(file.Identifier, 0, out.from)
		if file.Size > smallContent {
			return out.large(ctx, file)
		}
		content, err := out.small(ctx, file)
		if err != nil {
			return err
		}
		return out.put(content)
	}}
	return g.run(ctx)
}

// file looks up what is to be given back.
func (s *restoreFile) file(ctx context.Context, w *pipeline.Work) (registry.StoredFile, error) {
	for f, err := range s.Registry.StoredFiles(ctx, w.Item.Request.ObjectID, w.Item.Request.FileID) {
		if err == nil && f.SHA256 == "" {
			err = claim.Fatal("restore-digest", "There is no SHA-256 of %s on record to check it against.", f.Identifier)
		}
		return f, err
	}
	return registry.StoredFile{}, claim.Fatal("restore-deleted", "The file was deleted.")
}
