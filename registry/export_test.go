package registry

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// FiguresSQL are the statements by which Figures looks at the queue's tables.
func FiguresSQL() []string { return []string{cellsSQL, stagesSQL} }

// Look reads as Figures does.
func (r *Registry) Look(ctx context.Context, read func(pgx.Tx) error) error { return r.look(ctx, read) }
