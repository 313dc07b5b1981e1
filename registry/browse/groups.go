package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Group counts the parked items that ended in the same way at the same stage.
type Group struct {
	ErrorCode string          `json:"error_code"` // "" if none is on record
	Stage     registry.Stage  `json:"stage"`
	Action    registry.Action `json:"action"`
	Items     int64           `json:"items"`
	Bytes     int64           `json:"bytes"`
	First     time.Time       `json:"first_at"` // when the first of them was changed last
	Last      time.Time       `json:"last_at"`
	Example   int64           `json:"example"` // ID of the newest
}

// MostGrouped is how many parked items [Records.Groups] reads.
const MostGrouped = 10_000

// groupsSQL goes by work_items_review, as far as it reads at all.
const groupsSQL = `
SELECT w.error_code, w.stage, w.action, count(*) AS items, sum(w.size)::bigint AS bytes, min(w.updated_at) AS first, max(w.updated_at) AS last,
	max(w.id) AS example
FROM (
	SELECT w.* FROM (SELECT * FROM work_items WHERE needs_admin_review OR status IN ('Failed', 'Suspended') OFFSET 0) w WHERE %s LIMIT @n
) w
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3`

// Groups counts the items that wait for a person, by error code, stage and action, the
// largest group first. Of more than [MostGrouped] items it counts so many, and complete is
// false.
func (r Records) Groups(ctx context.Context) (list []Group, complete bool, err error) {
	q := in(r.scope, "", "list them with review")
	q.within(`w.institution_id`)
	q.args["n"] = MostGrouped + 1
	list, err = read(ctx, r.db, q, fmt.Sprintf(groupsSQL, q.all()), pgx.RowToStructByName[Group])
	if err != nil {
		return nil, false, fmt.Errorf("group parked items: %w", err)
	}
	var items int64
	for _, g := range list {
		items += g.Items
	}
	return append([]Group{}, list...), items <= MostGrouped, nil
}
