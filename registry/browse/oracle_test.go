package browse_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// place is where a row stands in its list, and whose it is.
type place struct {
	id          int64
	institution int64 // 0: nobody's
	key         browse.Key
}

// question is a list with a filter, and what it has to find in the scope of everything.
type question struct {
	filter browse.Filter
	list   func(browse.Records, browse.Page) ([]int64, browse.Key, error)
	places []place
}

// oracle has all rows, and finds by looking at each of them.
type oracle struct {
	items     []itemRow
	planned   map[int64][]int64 // items, by plan
	objects   []objectRow
	files     []fileRow
	checksums []checksumRow
	copies    []copyRow
	events    []eventRow
	deletions []deletionRow
	alerts    []alertRow
}

type itemRow struct {
	ID, InstitutionID, Size   int64
	Institution, Name, Object string
	Stage, Action, Status     string
	Worker, Option, Code      string
	Review, Node              bool
	Deletion                  int64
	UpdatedAt, CreatedAt      time.Time

	ETag, Bucket, User, File string
	Alt, Grp, Profile        string
	ObjectID, FileID         int64
	Queued, Retry            bool
	BagDate, ProcessedAt     time.Time
}

type objectRow struct {
	ID, InstitutionID                      int64
	Institution, Identifier, State, Access string
	Option, Grp, Alt                       string
	UpdatedAt, CreatedAt                   time.Time
	ETag, BagName, Profile, Source         string
	Sender, About                          string
}

type fileRow struct {
	ID, InstitutionID, ObjectID, Size      int64
	Institution, Object, Identifier, State string
	PUID, Name, UUID, Digests              string
	Option                                 string
	CreatedAt, UpdatedAt, CheckedAt        time.Time
}

type checksumRow struct {
	ID, InstitutionID, FileID      int64
	Institution, Algorithm, Digest string
	ObjectID                       int64
	State                          string
	At                             time.Time
}

type copyRow struct{ ID, InstitutionID, FileID int64 }

type eventRow struct {
	ID, InstitutionID, ObjectID            int64
	FileID                                 *int64
	Institution, Identifier, Type, Outcome string
	At, CreatedAt                          time.Time
}

type deletionRow struct {
	ID, InstitutionID  int64
	Institution, State string
	RequestedAt        time.Time
}

type alertRow struct {
	ID                int64
	InstitutionID     int64
	Institution, Type string
	CreatedAt         time.Time
}

func newOracle(a *archive) *oracle {
	o := &oracle{planned: map[int64][]int64{}}
	o.items = rows[itemRow](a, `SELECT w.id, w.institution_id, w.size, i.identifier AS institution, w.name, w.object_identifier AS object, w.stage, w.action, w.status,
		coalesce(w.worker, '') AS worker, coalesce(w.storage_option, '') AS option, w.error_code AS code, w.needs_admin_review AS review, w.node IS NOT NULL AS node,
		coalesce(w.deletion_request_id, 0) AS deletion, w.updated_at, w.created_at,
		w.etag AS e_tag, w.bucket, w."user", coalesce(f.identifier, '') AS file, coalesce(o.alt_identifier, '') AS alt, coalesce(o.bag_group_identifier, '') AS grp,
		coalesce(o.bagit_profile_identifier, '') AS profile, coalesce(w.intellectual_object_id, 0) AS object_id, coalesce(w.generic_file_id, 0) AS file_id,
		w.queued_at IS NOT NULL AS queued, w.retry, w.bag_date, w.date_processed AS processed_at
		FROM all_work_items w JOIN institutions i ON i.id = w.institution_id LEFT JOIN intellectual_objects o ON o.id = w.intellectual_object_id
		LEFT JOIN generic_files f ON f.id = w.generic_file_id ORDER BY w.id DESC`)
	for _, p := range rows[struct{ PlanID, WorkItemID int64 }](a, `SELECT plan_id, work_item_id FROM plan_items`) {
		o.planned[p.PlanID] = append(o.planned[p.PlanID], p.WorkItemID)
	}
	o.objects = rows[objectRow](a, `SELECT o.id, o.institution_id, i.identifier AS institution, o.identifier, o.state, o.access, o.storage_option AS option,
		o.bag_group_identifier AS grp, o.alt_identifier AS alt, o.updated_at,
		o.created_at, o.etag AS e_tag, o.bag_name, o.bagit_profile_identifier AS profile, o.source_organization AS source, o.internal_sender_identifier AS sender,
		o.internal_sender_description AS about FROM intellectual_objects o JOIN institutions i ON i.id = o.institution_id ORDER BY o.id DESC`)
	o.files = rows[fileRow](a, `SELECT f.id, f.institution_id, f.intellectual_object_id AS object_id, f.size, i.identifier AS institution, o.identifier AS object, f.identifier, f.state,
		f.storage_option AS option, f.created_at, f.updated_at, f.last_fixity_check AS checked_at,
		f.format_puid AS puid, f.format_name AS name, f.uuid::text AS uuid, coalesce((SELECT string_agg(c.digest, ' ') FROM checksums c WHERE c.generic_file_id = f.id), '') AS digests
		FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id JOIN institutions i ON i.id = f.institution_id ORDER BY f.id DESC`)
	o.checksums = rows[checksumRow](a, `SELECT c.id, f.institution_id, f.id AS file_id, i.identifier AS institution, c.algorithm, c.digest,
		f.intellectual_object_id AS object_id, f.state, c.datetime AS at
		FROM checksums c JOIN generic_files f ON f.id = c.generic_file_id JOIN institutions i ON i.id = f.institution_id ORDER BY f.id DESC, c.id DESC`)
	o.copies = rows[copyRow](a, `SELECT s.id, f.institution_id, f.id AS file_id FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id ORDER BY s.id DESC`)
	o.events = rows[eventRow](a, `SELECT e.id, e.institution_id, e.intellectual_object_id AS object_id, e.generic_file_id AS file_id, i.identifier AS institution, e.identifier::text AS identifier,
		e.event_type AS type, e.outcome, e.date_time AS at, e.created_at FROM premis_events e JOIN institutions i ON i.id = e.institution_id ORDER BY e.created_at DESC, e.id DESC`)
	o.deletions = rows[deletionRow](a, `SELECT d.id, d.institution_id, i.identifier AS institution,
		CASE WHEN d.approved_at IS NOT NULL THEN 'approved' WHEN d.cancelled_at IS NOT NULL THEN 'cancelled' ELSE 'open' END AS state, d.requested_at
		FROM deletion_requests d JOIN institutions i ON i.id = d.institution_id ORDER BY d.id DESC`)
	o.alerts = rows[alertRow](a, `SELECT a.id, coalesce(a.institution_id, 0) AS institution_id, coalesce(i.identifier, '') AS institution, a.type, a.created_at
		FROM alerts a LEFT JOIN institutions i ON i.id = a.institution_id ORDER BY a.id DESC`)
	return o
}

// found are the places of those rows that a filter matches.
func found[T any](list []T, matches func(T) bool, at func(T) place) (places []place) {
	for _, row := range list {
		if matches(row) {
			places = append(places, at(row))
		}
	}
	return places
}

func ids[T any](list []T, id func(T) int64) []int64 {
	var all []int64
	for _, row := range list {
		all = append(all, id(row))
	}
	return all
}

// some sets a field in one of n cases.
func some[T any](r *rand.Rand, n int, field *T, value T) {
	if r.IntN(n) == 0 {
		*field = value
	}
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func institution(r *rand.Rand) string {
	return pick(r, []string{"test.edu", "test.edu.org", "nobody.edu"})
}

func day(r *rand.Rand) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(300)) * time.Hour)
}

func or(set, met bool) bool { return !set || met }

func (o *oracle) itemQuestion(r *rand.Rand) question {
	like := pick(r, o.items)
	var f browse.ItemFilter
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			f.Status = append(f.Status, pick(r, []registry.Status{"Pending", "Started", "Failed", "Suspended", "Cancelled", "Success"}))
		}
	}
	some(r, 3, &f.Institution, institution(r))
	some(r, 8, &f.Name, like.Name)
	some(r, 8, &f.Object, like.Object)
	some(r, 8, &f.Review, true)
	some(r, 10, &f.Worker, "w1")
	some(r, 8, &f.Plan, 1+r.Int64N(3))
	some(r, 10, &f.Deletion, like.Deletion)
	some(r, 10, &f.Stage, []registry.Stage{registry.Stage(like.Stage), "Validate"})
	some(r, 10, &f.Action, []registry.Action{registry.Action(like.Action)})
	some(r, 10, &f.SizeMin, 20)
	some(r, 10, &f.SizeMax, &like.Size)
	some(r, 10, &f.UpdatedAfter, day(r))
	some(r, 10, &f.UpdatedBefore, day(r))
	some(r, 10, &f.CreatedAfter, day(r))
	some(r, 10, &f.ErrorCode, "invalid-bag")
	some(r, 10, &f.StorageOption, "Standard")
	node := r.IntN(2) == 0
	some(r, 10, &f.Node, &node)
	f.ItemDetails = itemDetails(r, like)
	matches := func(w itemRow) bool {
		return or(len(f.Status) > 0, slices.Contains(f.Status, registry.Status(w.Status))) && or(f.Institution != "", w.Institution == f.Institution) &&
			or(f.Name != "", w.Name == f.Name) && or(f.Object != "", w.Object == f.Object) && or(f.Review, w.Review) && or(f.Worker != "", w.Worker == f.Worker) &&
			or(f.Plan != 0, slices.Contains(o.planned[f.Plan], w.ID)) && or(f.Deletion != 0, w.Deletion == f.Deletion) &&
			or(f.Stage != nil, slices.Contains(f.Stage, registry.Stage(w.Stage))) && or(f.Action != nil, slices.Contains(f.Action, registry.Action(w.Action))) &&
			w.Size >= f.SizeMin && (f.SizeMax == nil || w.Size <= *f.SizeMax) && !w.UpdatedAt.Before(f.UpdatedAfter) &&
			or(!f.UpdatedBefore.IsZero(), w.UpdatedAt.Before(f.UpdatedBefore)) && !w.CreatedAt.Before(f.CreatedAfter) &&
			or(f.ErrorCode != "", w.Code == f.ErrorCode) && or(f.StorageOption != "", w.Option == f.StorageOption) && (f.Node == nil || w.Node == *f.Node) && w.meets(f.ItemDetails)
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Items(ctx, f, p)
			return ids(list, func(w record.WorkItem) int64 { return w.ID }), next, err
		},
		found(o.items, matches, func(w itemRow) place { return place{w.ID, w.InstitutionID, browse.Key{ID: w.ID}} }),
	}
}

func (o *oracle) objectQuestion(r *rand.Rand) question {
	like := pick(r, o.objects)
	var f browse.ObjectFilter
	some(r, 3, &f.Institution, institution(r))
	some(r, 10, &f.Identifier, like.Identifier)
	some(r, 3, &f.Prefix, like.Identifier[:r.IntN(len(like.Identifier))])
	f.Prefix = strings.ToValidUTF8(f.Prefix, "")
	some(r, 4, &f.UpdatedAfter, day(r))
	some(r, 4, &f.UpdatedBefore, day(r))
	some(r, 6, &f.State, like.State)
	some(r, 6, &f.Access, like.Access)
	some(r, 6, &f.StorageOption, like.Option)
	some(r, 6, &f.BagGroup, like.Grp)
	some(r, 6, &f.AltIdentifier, like.Alt)
	some(r, 6, &f.AltPrefix, "alt1")
	f.ObjectDetails = objectDetails(r, like)
	matches := func(x objectRow) bool {
		return or(f.Institution != "", x.Institution == f.Institution) && or(f.Identifier != "", x.Identifier == f.Identifier) && strings.HasPrefix(x.Identifier, f.Prefix) &&
			!x.UpdatedAt.Before(f.UpdatedAfter) && or(!f.UpdatedBefore.IsZero(), x.UpdatedAt.Before(f.UpdatedBefore)) && or(f.State != "", x.State == f.State) &&
			or(f.Access != "", x.Access == f.Access) && or(f.StorageOption != "", x.Option == f.StorageOption) && or(f.BagGroup != "", x.Grp == f.BagGroup) &&
			or(f.AltIdentifier != "", x.Alt == f.AltIdentifier) && strings.HasPrefix(x.Alt, f.AltPrefix) && x.meets(f.ObjectDetails)
	}
	list := slices.Clone(o.objects)
	key := func(x objectRow) browse.Key { return browse.Key{ID: x.ID} }
	switch {
	case f.Prefix != "" || f.Identifier != "":
		slices.SortFunc(list, func(a, b objectRow) int { return strings.Compare(a.Identifier, b.Identifier) })
		key = func(x objectRow) browse.Key { return browse.Key{Identifier: x.Identifier} }
	case !f.UpdatedAfter.IsZero() || !f.UpdatedBefore.IsZero() || f.ByUpdate:
		slices.SortFunc(list, func(a, b objectRow) int { return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(b.ID, a.ID)) })
		key = func(x objectRow) browse.Key { return browse.Key{ID: x.ID, At: x.UpdatedAt} }
	}
	return question{
		f, func(b browse.Records, p browse.Page) ([]int64, browse.Key, error) {
			list, next, err := b.Objects(ctx, f, p)
			return ids(list, func(x record.ListedObject) int64 { return x.ID }), next, err
		},
		found(list, matches, func(x objectRow) place { return place{x.ID, x.InstitutionID, key(x)} }),
	}
}
