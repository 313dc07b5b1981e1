package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// List is what a stage of an ingest has left with the end of its claim.
type List struct {
	Content   []byte // nil: it is in the staging bucket, or nowhere
	WrittenAt time.Time
}

// List returns a list of an item; that of an item that has none is empty.
func (r Records) List(ctx context.Context, item int64, name string) (List, error) {
	l, err := registry.One[List](ctx, r.db, fmt.Sprintf("read %s of item %d", name, item),
		`SELECT content, written_at FROM work_item_lists WHERE work_item_id = $1 AND name = $2`, item, name)
	if errors.Is(err, registry.ErrNotFound) {
		return List{}, nil
	}
	return l, err
}

// Lists are those of an item that are here, and not in the staging bucket.
type Lists struct {
	Count, Bytes   int64
	Staged         bool // that bucket has something of the item too, or nothing is known of its lists
	Oldest, Newest time.Time
}

// Lists counts the lists of an item.
func (r Records) Lists(ctx context.Context, item int64) (Lists, error) {
	return registry.One[Lists](ctx, r.db, fmt.Sprintf("count the lists of item %d", item), `
		SELECT count(content), coalesce(sum(length(content)), 0)::bigint AS bytes, coalesce(bool_or(staged), true) AS staged,
			coalesce(min(written_at), now()) AS oldest, coalesce(max(written_at), now()) AS newest
		FROM work_item_lists WHERE work_item_id = $1`, item)
}

// ItemsWithLists returns up to n items, after one, that have lists (work_item_lists_pkey).
func (r Records) ItemsWithLists(ctx context.Context, after int64, n int) ([]int64, error) {
	return r.itemIDs(ctx, `SELECT DISTINCT work_item_id FROM work_item_lists WHERE work_item_id > $1 ORDER BY work_item_id LIMIT $2`, after, n)
}

// DropLists deletes the lists of an item unless it was requeued since.
func (r Records) DropLists(ctx context.Context, s ItemState) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("delete the lists of item %d", s.ID), `
		DELETE FROM work_item_lists WHERE work_item_id = $1
			AND NOT EXISTS (SELECT FROM work_items WHERE id = $1 AND claim_token <> $2)`, s.ID, s.Token)
}
