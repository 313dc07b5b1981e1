package browse

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/registry"
)

// planItemsSQL walks the items that a plan names (plan_items_pkey, work_items_pkey,
// work_items_archive_pkey).
const planItemsSQL = `
SELECT w.* FROM plan_items p CROSS JOIN LATERAL (
	SELECT * FROM work_items WHERE id = p.work_item_id UNION ALL SELECT * FROM work_items_archive WHERE id = p.work_item_id
) w
WHERE p.plan_id = @plan AND %s AND %s
ORDER BY p.work_item_id DESC LIMIT @n`

// newestOf is what each source finds, newest first.
func newestOf(sources []string) string {
	if len(sources) == 1 {
		return sources[0]
	}
	return `SELECT * FROM ((` + strings.Join(sources, `) UNION ALL (`) + `)) w ORDER BY w.id DESC LIMIT @n`
}

// Sources in the queue. It has at most a million rows, and no index of its own for lists:
// each transition of an item would write it. OFFSET 0 makes PostgreSQL read the small index,
// from its end or the page on where it has the order, where it might walk the primary key
// instead. The values are: all conditions, that of the page, and that of an object.
const (
	queueSQL   = `SELECT w.* FROM work_items w WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_pkey
	startedSQL = `SELECT w.* FROM (SELECT * FROM work_items WHERE status = 'Started' OFFSET 0) w
		WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_lease
	parkedSQL = `SELECT w.* FROM (SELECT * FROM work_items w WHERE status IN ('Failed', 'Suspended') AND %[2]s ORDER BY id DESC OFFSET 0) w
		WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_review
	reviewSQL = `SELECT w.* FROM (SELECT * FROM work_items w WHERE needs_admin_review AND %[2]s ORDER BY id DESC OFFSET 0) w
		WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_review
	requestsSQL = `SELECT w.* FROM (SELECT * FROM work_items w WHERE action <> 'Ingest' AND action = ANY (@action::text[]) AND %[3]s OFFSET 0) w
		WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_requests
	deletionItemsSQL = `SELECT w.* FROM (SELECT * FROM work_items WHERE deletion_request_id = @deletion OFFSET 0) w
		WHERE %[1]s ORDER BY w.id DESC LIMIT @n` // work_items_deletion
)

// candidatesSQL shows those of some IDs that meet all conditions, which are the second
// value; the first finds the IDs.
const candidatesSQL = `
SELECT w.* FROM (SELECT c.id FROM (%s) c ORDER BY c.id DESC) c
CROSS JOIN LATERAL (SELECT w.* FROM work_items w WHERE w.id = c.id AND %s OFFSET 0) w
ORDER BY c.id DESC LIMIT @n`

// liveRequestsSQL finds the live items that are no ingests and meet a condition
// (work_items_requests); live ingests are in uploads_in_work.
const liveRequestsSQL = `
(SELECT w.id FROM work_items w WHERE w.action <> 'Ingest' AND w.retry AND %s OFFSET 0)`

// institutionSQL finds the items of an institution in the queue. A part of the newest is
// read first, which is all for an institution that has many. If that is not enough, those
// of the others are found that are older: the ones that have ended (work_items_ended_bag), if
// the filter may have such, the ingests by the range of their objects' names
// (one_live_ingest), and the requests. The values are: the condition of the page, all
// conditions, and what finds the ended ones and the live requests.
const institutionSQL = `
WITH bound AS MATERIALIZED (
	SELECT min(id) AS id FROM (SELECT w.id FROM work_items w WHERE %[1]s ORDER BY w.id DESC LIMIT 5000) w
), near AS MATERIALIZED (
	SELECT w.* FROM work_items w WHERE w.id >= (SELECT id FROM bound) AND %[2]s ORDER BY w.id DESC LIMIT @n
)
SELECT * FROM near
UNION ALL
(SELECT w.* FROM (
	SELECT c.id FROM (
		%[3]s
		(SELECT u.work_item_id AS id FROM uploads_in_work u WHERE u.object_identifier >= @own_first AND u.object_identifier < @own_end OFFSET 0)
		UNION ALL
		%[4]s
	) c WHERE (SELECT count(*) FROM near) < @n AND (SELECT id FROM bound) IS NOT NULL AND c.id < (SELECT id FROM bound) ORDER BY c.id DESC
) c CROSS JOIN LATERAL (SELECT w.* FROM work_items w WHERE w.id = c.id AND %[2]s OFFSET 0) w ORDER BY c.id DESC LIMIT @n)`

// namedSQL finds the items of a tar in the queue: of each institution the ended ones
// (work_items_ended_bag) and the live ingests (one_live_ingest), and the requests.
const namedSQL = `
SELECT w.id FROM institutions n CROSS JOIN LATERAL (
	SELECT w.id FROM work_items w WHERE w.institution_id = n.id AND w.name = @name AND NOT w.retry OFFSET 0) w
UNION ALL
SELECT u.work_item_id FROM institutions n CROSS JOIN LATERAL (
	SELECT u.work_item_id FROM uploads_in_work u WHERE u.object_identifier = object_identifier_of(n.identifier, @name) AND u.name = @name OFFSET 0) u
UNION ALL`

// objectItemsSQL finds the items of an object in the queue: those that have ended
// (work_items_ended_object), the live ingests (one_live_ingest) and the requests.
const objectItemsSQL = `
(SELECT w.id FROM work_items w WHERE NOT w.retry AND w.object_identifier = @object OFFSET 0)
UNION ALL
(SELECT u.work_item_id FROM uploads_in_work u WHERE u.object_identifier = @object OFFSET 0)
UNION ALL`

// queue returns the sources in the queue.
func (f ItemFilter) queue(q *query) []string {
	object := `true`
	if f.Object != "" {
		object = `w.object_identifier = @object`
	}
	source := func(sql string) []string { return []string{fmt.Sprintf(sql, q.all(), cmp.Or(q.key, `true`), object)} }
	switch {
	case f.Deletion != 0:
		return source(deletionItemsSQL)
	case f.Worker != "":
		return source(startedSQL)
	case f.requests() && f.Name == "":
		return source(requestsSQL)
	case f.Object != "":
		return []string{fmt.Sprintf(candidatesSQL, objectItemsSQL+fmt.Sprintf(liveRequestsSQL, `w.object_identifier = @object`), q.all())}
	case f.Name != "":
		return []string{fmt.Sprintf(candidatesSQL, namedSQL+fmt.Sprintf(liveRequestsSQL, `w.name = @name`), q.all())}
	case f.Review:
		return source(reviewSQL)
	case f.only(registry.Failed, registry.Suspended, registry.Started):
		var sources []string
		if !f.only(registry.Started) {
			sources = source(parkedSQL)
		}
		if slices.Contains(f.Status, registry.Started) {
			sources = append(sources, source(startedSQL)...)
		}
		return sources
	case q.inside.one:
		return []string{f.ofInstitution(q)}
	}
	return source(queueSQL)
}

// ofInstitution is the source of items of one institution. Those that have ended are found
// without the condition of the page, for which the primary key would be read.
func (f ItemFilter) ofInstitution(q *query) string {
	q.args["own_first"], q.args["own_end"] = q.inside.identifier+"/", q.inside.identifier+"0"
	ended := fmt.Sprintf(`(SELECT w.id FROM work_items w WHERE w.institution_id = %s AND NOT w.retry AND %s OFFSET 0)
		UNION ALL`, q.inside.id, strings.Join(q.conds, ` AND `))
	if f.only(registry.Pending, registry.Started) { // no such item has ended
		ended = ""
	}
	return fmt.Sprintf(institutionSQL, cmp.Or(q.key, `true`), q.all(), ended, fmt.Sprintf(liveRequestsSQL, `w.institution_id = `+q.inside.id))
}

// only reports whether the filter has statuses, and none but these.
func (f ItemFilter) only(of ...registry.Status) bool {
	return len(f.Status) > 0 && !slices.ContainsFunc(f.Status, func(s registry.Status) bool { return !slices.Contains(of, s) })
}

// Sources in the archive, whose items have succeeded or were cancelled. Of a name, an object
// or a deletion request there are few, which are sorted (work_items_archive_name, _object,
// _deletion). All others are in the order of work_items_archive_institution, _review,
// _unsuccessful, _institution_unsuccessful or _pkey.
const (
	archivedOfName     = `(SELECT * FROM work_items_archive WHERE name = @name OFFSET 0)`
	archivedOfObject   = `(SELECT * FROM work_items_archive WHERE object_identifier = @object OFFSET 0)`
	archivedOfDeletion = `(SELECT * FROM work_items_archive WHERE deletion_request_id = @deletion OFFSET 0)`
)

// archive returns the sources in the archive.
func (f ItemFilter) archive(q *query) []string {
	if f.Worker != "" || f.only(registry.Pending, registry.Started, registry.Failed, registry.Suspended) {
		return nil
	}
	own := *q
	if f.requests() { // which have indexes of their own: work_items_archive_requests, _institution_requests
		own.conds = append([]string{`w.action <> 'Ingest'`}, own.conds...)
	}
	switch {
	case f.Deletion != 0:
		return []string{own.newest(archivedOfDeletion, `w`)}
	case f.Object != "":
		return []string{own.newest(archivedOfObject, `w`)}
	case f.Name != "":
		return []string{own.newest(archivedOfName, `w`)}
	case f.only(registry.Cancelled, registry.Pending, registry.Started, registry.Failed, registry.Suspended):
		own.conds = append([]string{`w.status = 'Cancelled'`}, own.conds...)
	}
	return []string{own.newest(`work_items_archive`, `w`)}
}

// requests reports whether the filter has actions, and no ingests.
func (f ItemFilter) requests() bool {
	return len(f.Action) > 0 && !slices.Contains(f.Action, "Ingest")
}
