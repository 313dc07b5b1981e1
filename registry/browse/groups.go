package browse

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// MostGrouped is how many parked items [Records.Groups] reads.
const MostGrouped = 10_000

// groupsSQL goes by work_items_review, as far as it reads at all. Each row is the part of a
// group that an institution has, of one of the last 24 hours or of all before them.
const groupsSQL = `
SELECT w.error_code, w.stage, w.action, i.identifier AS institution,
	CASE WHEN w.updated_at >= date_trunc('hour', now(), 'UTC') - interval '23 hours' THEN date_trunc('hour', w.updated_at, 'UTC') END AS hour,
	count(*) AS items, sum(w.size)::bigint AS bytes, min(w.updated_at) AS first, max(w.updated_at) AS last, max(w.id) AS example
FROM (
	SELECT w.* FROM (SELECT * FROM work_items WHERE needs_admin_review OR status IN ('Failed', 'Suspended') ORDER BY id DESC OFFSET 0) w WHERE %s ORDER BY w.id DESC LIMIT @n
) w JOIN institutions i ON i.id = w.institution_id
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5`

type groupRow struct {
	ErrorCode   string
	Stage       registry.Stage
	Action      registry.Action
	Institution string
	Hour        *time.Time
	Items       int64
	Bytes       int64
	First       time.Time
	Last        time.Time
	Example     int64
}

// Groups counts the items that wait for a person, by error code, stage and action, the
// largest group first. Of [MostGrouped] items or more it counts the newest, and complete is
// false.
func (r Records) Groups(ctx context.Context) (list []record.Group, complete bool, err error) {
	q := in(r.scope, "", "list them with review")
	q.within(`w.institution_id`)
	q.args["n"] = MostGrouped
	rows, err := read(ctx, r.db, q, fmt.Sprintf(groupsSQL, q.all()), pgx.RowToStructByName[groupRow])
	if err != nil {
		return nil, false, fmt.Errorf("group parked items: %w", err)
	}
	var items int64
	list = []record.Group{}
	for _, row := range rows {
		items += row.Items
		if n := len(list); n == 0 || list[n-1].ErrorCode != row.ErrorCode || list[n-1].Stage != row.Stage || list[n-1].Action != row.Action {
			list = append(list, record.Group{ErrorCode: row.ErrorCode, Stage: row.Stage, Action: row.Action, First: row.First, Last: row.Last, Hours: []record.GroupHour{}})
		}
		list[len(list)-1] = added(list[len(list)-1], row)
	}
	for _, g := range list {
		slices.SortStableFunc(g.Institutions, func(a, b record.GroupPart) int { return cmp.Compare(b.Items, a.Items) })
		slices.SortFunc(g.Hours, func(a, b record.GroupHour) int { return a.Hour.Compare(b.Hour) })
	}
	slices.SortStableFunc(list, func(a, b record.Group) int { return cmp.Compare(b.Items, a.Items) })
	return list, items < MostGrouped, nil
}

// added is a group with one more part. The parts of an institution follow each other.
func added(g record.Group, row groupRow) record.Group {
	g.Items, g.Bytes, g.Example = g.Items+row.Items, g.Bytes+row.Bytes, max(g.Example, row.Example)
	if row.First.Before(g.First) {
		g.First = row.First
	}
	if row.Last.After(g.Last) {
		g.Last = row.Last
	}
	if n := len(g.Institutions); n == 0 || g.Institutions[n-1].Institution != row.Institution {
		g.Institutions = append(g.Institutions, record.GroupPart{Institution: row.Institution})
	}
	g.Institutions[len(g.Institutions)-1].Items += row.Items
	if row.Hour == nil {
		return g
	}
	i := slices.IndexFunc(g.Hours, func(h record.GroupHour) bool { return h.Hour.Equal(*row.Hour) })
	if i < 0 {
		i, g.Hours = len(g.Hours), append(g.Hours, record.GroupHour{Hour: row.Hour.UTC()})
	}
	g.Hours[i].Items += row.Items
	return g
}
