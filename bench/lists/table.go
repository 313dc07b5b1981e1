package lists

import "github.com/farol-preservation/farol/web/permission"

// list is one of the lists, with one filter.
type list struct {
	name  string
	path  string
	needs permission.Permission
	query string // in which %s is a value
	// values finds values for the query: up to some texts. In {in} is the condition that keeps
	// others' rows out. ""; the query has none.
	values string
	of     string // table with an alias, and conditions of its own: the rows of the list, where {v} is the value; "": one page has all
	key    key    // by which the pages follow each other
	in     string // column of the institution; "": there is none, and only staff reads the list
}

// key are the columns of a row's place in a list.
type key struct {
	id, at, identifier string
	up                 bool // the list begins with the lowest
}

func byID(column string) key { return key{id: column} }

const (
	archived = `work_items_archive w WHERE {in}`
	// some are values at a few places of a table of so many IDs.
	some = `(SELECT (SELECT max(id) FROM {table}) * n / 12 AS id FROM generate_series(1, 11) n) s,
		LATERAL (SELECT * FROM {table} x WHERE x.id >= s.id AND {in} ORDER BY x.id LIMIT 1) x`
)

// table are all lists with each filter that has an index.
func table() []list {
	return append(append(itemLists(), recordLists()...), requestLists()...)
}

func itemLists() []list {
	const path = "/api/v1/items"
	l := func(name, query, values, of string) list {
		return list{name: "items " + name, path: path, needs: permission.ItemsRead, query: query, values: values, of: of, key: byID("w.id"), in: "w.institution_id"}
	}
	item := func(column string) string { return `SELECT x.` + column + `::text FROM ` + from("work_items_archive") }
	worker := l("worker", "worker=%s", `SELECT DISTINCT x.worker FROM work_items x WHERE x.status = 'Started' LIMIT 5`, `work_items w WHERE w.status = 'Started' AND w.worker = {v} AND {in}`)
	worker.needs = permission.ItemsWorkers
	plan := l("plan", "plan=%s", `SELECT DISTINCT p.plan_id::text FROM plan_items p LIMIT 5`, `plan_items w WHERE w.plan_id = {v}::bigint AND {in}`)
	plan.needs, plan.key, plan.in = permission.PlansRead, byID("w.work_item_id"), ""
	return []list{
		l("", "", "", archived),
		l("institution", "institution=%s", institutions, archived),
		l("status=Pending", "status=Pending", "", `work_items w WHERE w.status = 'Pending' AND {in}`),
		l("status=Started", "status=Started", "", `work_items w WHERE w.status = 'Started' AND {in}`),
		l("status=Failed,Suspended", "status=Failed&status=Suspended", "", `work_items w WHERE w.status IN ('Failed', 'Suspended') AND {in}`),
		l("status=Cancelled", "status=Cancelled", "", `work_items_archive w WHERE w.status <> 'Success' AND {in}`),
		l("review", "review=true", "", `work_items_archive w WHERE w.needs_admin_review AND {in}`),
		l("name", "name=%s", item("name"), ""),
		l("object", "object=%s", item("object_identifier"), ""),
		l("deletion", "deletion=%s", `SELECT x.id::text FROM `+from("deletion_requests"), ""),
		worker, plan,
	}
}

// institutions are those by which staff narrows a list: of all sizes.
const institutions = `SELECT x.identifier FROM institutions x WHERE x.id IN (1, 2, 5, 15, 30, 60) AND {in}`

func recordLists() []list {
	const (
		objects = `intellectual_objects o WHERE {in}`
		files   = `generic_files f WHERE f.identifier >= {v} || '/' AND f.identifier < {v} || '0' AND {in}`
		events  = `event_records r WHERE {in}`
		month   = `SELECT to_char(now() AT TIME ZONE 'UTC' - n * interval '1 year', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM generate_series(1, 4) n`
	)
	object := func(name, query, values, of string, k key) list {
		return list{"objects " + name, "/api/v1/objects", permission.ObjectsRead, query, values, of, k, "o.institution_id"}
	}
	file := func(name, query, values, of string, k key) list {
		return list{"files " + name, "/api/v1/files", permission.FilesRead, query, values, of, k, "f.institution_id"}
	}
	event := func(name, query, values, of string) list {
		return list{"events " + name, "/api/v1/events", permission.EventsRead, query, values, of, key{id: "r.id", at: "r.created_at"}, "r.institution_id"}
	}
	named := key{identifier: `f.identifier`, up: true}
	return []list{
		object("", "", "", objects, byID("o.id")),
		object("institution", "institution=%s", institutions, objects, byID("o.id")),
		object("identifier", "identifier=%s", `SELECT x.identifier FROM `+from("intellectual_objects"), "", key{}),
		object("prefix", "identifier_prefix=%s", `SELECT left(x.identifier, -6) FROM `+from("intellectual_objects"),
			`intellectual_objects o WHERE o.identifier COLLATE "C" >= {v} AND o.identifier COLLATE "C" < {v} || '~' AND {in}`, key{identifier: `o.identifier COLLATE "C"`, up: true}),
		object("updated", "updated_after=%s", month, `intellectual_objects o WHERE o.updated_at >= {v}::timestamptz AND {in}`, key{id: "o.id", at: "o.updated_at"}),
		file("institution", "institution=%s", institutions, files, named),
		file("object", "object=%s", `SELECT x.identifier FROM (SELECT * FROM intellectual_objects ORDER BY id LIMIT 20) x WHERE {in}`,
			`generic_files f WHERE f.identifier >= {v} || '/' AND f.identifier < {v} || '0' AND {in}`, named),
		file("identifier", "identifier=%s", `SELECT x.identifier FROM `+from("generic_files"), "", named),
		file("prefix", "identifier_prefix=%s", `SELECT split_part(x.identifier, '/data', 1) || '/data/im' FROM `+from("generic_files"),
			`generic_files f WHERE f.identifier >= {v} AND f.identifier < {v} || '~' AND {in}`, named),
		file("uuid", "uuid=%s", `SELECT x.uuid::text FROM `+from("generic_files"), "", named),
		file("digest", "digest=%s", `SELECT md5(x.id::text) FROM generate_series(1, 10) x (id)`, `generic_files f JOIN file_digests d ON d.generic_file_id = f.id
			WHERE substr(d.md5, 1, 8) = substr(decode({v}, 'hex'), 1, 8) AND {in}`, byID("f.id")),
		event("object", "object=%s", `SELECT x.id::text FROM `+from("intellectual_objects"), ""),
		event("file", "file=%s", `SELECT x.id::text FROM `+from("generic_files"), ""),
		event("failed", "failed=true", "", events+` AND 0 > ANY (r.texts)`),
		event("type=deletion", "type=deletion", "", events+` AND 0 > ANY (r.texts)`),
		event("recorded", "%s", `SELECT 'recorded_after=' || to_char(t - interval '31 days', f) || '&recorded_before=' || to_char(t, f)
			FROM generate_series(1, 2) n, LATERAL (SELECT now() AT TIME ZONE 'UTC' - n * interval '1 year' AS t, 'YYYY-MM-DD"T"HH24:MI:SS"Z"' AS f) w`,
			events+` AND r.created_at >= substr({v}, 16, 20)::timestamptz AND r.created_at < right({v}, 20)::timestamptz`),
	}
}

func requestLists() []list {
	l := func(name, path string, needs permission.Permission, query, values, of, in string) list {
		return list{name: name, path: "/api/v1/" + path, needs: needs, query: query, values: values, of: of, key: byID("w.id"), in: in}
	}
	const (
		one       = "w.institution_id"
		restored  = `work_items_archive w WHERE w.action IN ('Restore Object', 'Restore File', 'Glacier Restore') AND {in}`
		deletions = `deletion_requests w WHERE {in}`
		alerts    = `alerts w WHERE {in}`
		acted     = `actions w WHERE {in}`
	)
	action := func(name, query, values, of string) list {
		a := l("actions "+name, "actions", permission.AuditRead, query, values, of, one)
		a.key.at = "w.at"
		return a
	}
	return []list{
		l("deletions", "deletions", permission.DeletionsRead, "", "", deletions, one),
		l("deletions institution", "deletions", permission.DeletionsRead, "institution=%s", institutions, deletions, one),
		l("deletions state=open", "deletions", permission.DeletionsRead, "state=open", "", deletions+` AND num_nonnulls(w.approved_at, w.cancelled_at) = 0`, one),
		l("restorations", "restorations", permission.ItemsRead, "", "", restored, one),
		l("restorations institution", "restorations", permission.ItemsRead, "institution=%s", institutions, restored, one),
		l("restorations object", "restorations", permission.ItemsRead, "object=%s", `SELECT x.object_identifier FROM `+from("work_items_archive"), "", one),
		l("alerts", "alerts", permission.AlertsRead, "", "", alerts, one),
		l("alerts institution", "alerts", permission.AlertsRead, "institution=%s", institutions, alerts, one),
		l("alerts unread", "alerts", permission.AlertsRead, "unread=true", "", alerts, one),
		action("", "", "", acted),
		action("institution", "institution=%s", institutions, acted),
		action("actor", "actor=%s", `SELECT x.email FROM users x WHERE x.id % 10 = 3 AND {in} LIMIT 10`, acted+` AND w.actor = {v}`),
		action("subject", "subject_type=item&subject_id=%s", `SELECT x.subject_id FROM actions x WHERE {in} ORDER BY x.at DESC LIMIT 10`, ""),
		action("since", "since=%s", `SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 year', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`, acted+` AND w.at >= {v}::timestamptz`),
		l("plans", "plans", permission.PlansRead, "", "", `plans w WHERE {in}`, ""),
		l("plans state=ready", "plans", permission.PlansRead, "state=ready", "", `plans w WHERE w.state = 'ready' AND {in}`, ""),
	}
}
