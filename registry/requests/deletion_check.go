package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// mostListed is how many names of each kind a check lists.
const mostListed = 1000

// checkedBytesSQL sums up the active files of a request, each once
// (deletion_requests_*_pkey, generic_files_object).
const checkedBytesSQL = `
SELECT coalesce(sum(size), 0)::bigint FROM (
	SELECT f.id, f.size FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id
	WHERE d.deletion_request_id = $1 AND f.state = 'A'
	UNION
	SELECT f.id, f.size FROM deletion_requests_intellectual_objects d JOIN generic_files f ON f.intellectual_object_id = d.intellectual_object_id
	WHERE d.deletion_request_id = $1 AND f.state = 'A') f`

// CheckDeletion reports what [Records.RequestDeletion] would do, and changes nothing.
func (r Records) CheckDeletion(ctx context.Context, by string, identifiers []string) (c record.DeletionCheck, err error) {
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		if c, err = r.checkDeletion(ctx, tx, by, identifiers); err != nil {
			return err
		}
		return errOnlyAsked
	})
	if !errors.Is(err, errOnlyAsked) {
		return c, fmt.Errorf("check a deletion: %w", registry.Refusal(err))
	}
	return c, nil
}

func (r Records) checkDeletion(ctx context.Context, tx pgx.Tx, by string, identifiers []string) (c record.DeletionCheck, err error) {
	u, err := r.requester(ctx, tx, by, identifiers)
	if err != nil {
		return c, err
	}
	n, err := lookUp(ctx, tx, identifiers, u.InstitutionID)
	if err != nil {
		return c, err
	}
	id, err := noteNamed(ctx, tx, u, n)
	if err != nil {
		return c, err
	}
	refused, err := undeletable(ctx, tx, id)
	if err != nil {
		return c, err
	}
	c = record.DeletionCheck{
		Objects: int64(len(n.objects)), Files: int64(len(n.files)),
		Unknown: firstOf(n.unknown), UnknownCount: int64(len(n.unknown)), Refused: firstOf(refused), RefusedCount: int64(len(refused)),
	}
	return c, tx.QueryRow(ctx, checkedBytesSQL, id).Scan(&c.Bytes)
}

// firstOf are the first of many; null is no list in JSON.
func firstOf[T any](list []T) []T { return append([]T{}, list[:min(len(list), mostListed)]...) }
