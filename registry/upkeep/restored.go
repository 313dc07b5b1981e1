package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// A Restore is a registry that was restored from a backup and not yet brought up to date.
type Restore struct {
	NotedAt          time.Time  `json:"noted_at"`
	LastChange       *time.Time `json:"last_change"` // nil: no worker has run before
	DeletionsStopped int64      `json:"deletions_stopped"`
}

// Restored is the open restore; nil if there is none.
func (r Records) Restored(ctx context.Context) (*Restore, error) {
	rows, _ := r.db.Query(ctx, `SELECT noted_at, last_change, deletions_stopped FROM registry_restores WHERE reconciled_at IS NULL ORDER BY id LIMIT 1`)
	one, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByName[Restore])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // as said above
	}
	if err != nil {
		return nil, fmt.Errorf("ask whether the registry was restored: %w", err)
	}
	return one, nil
}

// NoteRestore says that the registry was restored from a backup that left no trace in it, such as a
// snapshot of a disk: all claims stop.
func (r Records) NoteRestore(ctx context.Context) error {
	return registry.Do(ctx, r.db, "note that the registry was restored", `SELECT registry_restored('a backup that a person named')`)
}

// Reconciled lets work go on after a restore.
func (r Records) Reconciled(ctx context.Context) error {
	return registry.Do(ctx, r.db, "end the pause of a restored registry", `SELECT registry_reconciled()`)
}

// IngestsAfter returns a page of the ingests that have not ended, those that wait for a person among
// them (work_items_pkey).
func (r Records) IngestsAfter(ctx context.Context, after int64, n int) ([]int64, error) {
	return r.itemIDs(ctx, `SELECT id FROM work_items WHERE id > $1 AND action = 'Ingest' AND status IN ('Pending', 'Started', 'Failed', 'Suspended') ORDER BY id LIMIT $2`, after, n)
}

// A FoundCopy is a copy that no record names, and whose bytes were read.
type FoundCopy struct{ Path, Key, SHA256 string }

// TakeFound has the next ingest of an object take copies over. The janitor leaves them alone.
func (r Records) TakeFound(ctx context.Context, object string, list []FoundCopy) error {
	var paths, keys, sums []string
	for _, f := range list {
		paths, keys, sums = append(paths, f.Path), append(keys, f.Key), append(sums, f.SHA256)
	}
	return registry.Do(ctx, r.db, "note found copies of "+object, `
		INSERT INTO found_copies (object_identifier, path, key, sha256)
		SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[])
		ON CONFLICT (object_identifier, path) DO UPDATE SET key = excluded.key, sha256 = excluded.sha256, found_at = now()`, object, paths, keys, sums)
}

// Found are the copies that an ingest of an object takes over, by their paths (found_copies_pkey).
func (r Records) Found(ctx context.Context, object string) (map[string]FoundCopy, error) {
	list, err := registry.Collect[FoundCopy](ctx, r.db, "look up found copies", `SELECT path, key, sha256 FROM found_copies WHERE object_identifier = $1`, object)
	found := make(map[string]FoundCopy, len(list))
	for _, f := range list {
		found[f.Path] = f
	}
	return found, err
}

// ForgetFound forgets copies that are on record by now (storage_records_copy).
func (r Records) ForgetFound(ctx context.Context, targets []string) error {
	return registry.Do(ctx, r.db, "forget found copies that are on record", `
		DELETE FROM found_copies f WHERE EXISTS (SELECT FROM storage_records s WHERE s.target = ANY ($1) AND s.key = f.key)`, targets)
}
