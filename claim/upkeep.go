package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// upkeepStore clears away what is over.
type upkeepStore interface {
	tidy(ctx context.Context) error
	archive(ctx context.Context, after time.Duration, most int) (int, error)
}

// archiveMost is how many items one statement archives.
const archiveMost = 1000

func (p *postgres) tidy(ctx context.Context) error {
	for _, task := range []struct{ what, sql string }{
		{"tidy the queue", tidySQL},
		{"move items on from stages that were removed", `SELECT move_stranded()`},
		{"alert about failing services", `SELECT tell_of_services()`},
		{"park items that need more memory than any worker has", `SELECT park_memory_needs()`},
	} {
		if _, err := p.upkeep.Exec(ctx, task.sql); err != nil {
			return fmt.Errorf("%s: %w", task.what, err)
		}
	}
	return nil
}

func (p *postgres) archive(ctx context.Context, after time.Duration, most int) (n int, err error) {
	err = p.upkeep.Transact(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, archiveSQL, after, most)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		if _, err := tx.Exec(ctx, `DELETE FROM work_item_attempts WHERE work_item_id = ANY ($1)`, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM work_items WHERE id = ANY ($1)`, ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("archive ended items: %w", err)
	}
	return n, nil
}
