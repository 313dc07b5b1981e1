package browse

import (
	"context"
	"time"
)

// countTime bounds a page of objects whose files are counted.
const countTime = 10 * time.Second

// ObjectDetails narrow a list of objects further. They have no indexes.
type ObjectDetails struct {
	ETag                      string
	BagName                   string
	Profile                   string // identifier of the BagIt profile
	SourceOrganization        string
	InternalSenderIdentifier  string
	InternalSenderDescription string
	BagGroupPrefix            string
	Parent                    int64 // ID of the institution that its institution belongs to
	CreatedAfter              time.Time
	CreatedBefore             time.Time
	ByUpdate                  bool // the list is in the order of the last update, the latest first
}

// narrow adds the conditions for a row o.
func (d ObjectDetails) narrow(q *query) {
	q.equal(`o.etag = @etag`, "etag", d.ETag)
	q.equal(`o.bag_name = @bag_name`, "bag_name", d.BagName)
	q.equal(`o.bagit_profile_identifier = @profile`, "profile", d.Profile)
	q.equal(`o.source_organization = @source`, "source", d.SourceOrganization)
	q.equal(`o.internal_sender_identifier = @sender`, "sender", d.InternalSenderIdentifier)
	q.equal(`o.internal_sender_description = @sender_description`, "sender_description", d.InternalSenderDescription)
	q.equal(`starts_with(o.bag_group_identifier, @bag_group_prefix)`, "bag_group_prefix", d.BagGroupPrefix)
	q.number(`EXISTS (SELECT FROM institutions m WHERE m.id = o.institution_id AND m.member_institution_id = @parent)`, "parent", d.Parent)
	q.since(`o.created_at >= @created_after`, "created_after", d.CreatedAfter)
	q.since(`o.created_at < @created_before`, "created_before", d.CreatedBefore)
}

// FlatObject is an object with its institution and what is kept of it. What is absent is zero.
type FlatObject struct {
	ID                        int64  `json:"id"`
	Title                     string `json:"title"`
	Description               string `json:"description"`
	Identifier                string `json:"identifier"`
	AltIdentifier             string `json:"alt_identifier"`
	Access                    string `json:"access"`
	BagName                   string `json:"bag_name"`
	InstitutionID             int64  `json:"institution_id"`
	CreatedAt                 Time   `json:"created_at"`
	UpdatedAt                 Time   `json:"updated_at"`
	State                     string `json:"state"`
	ETag                      string `json:"etag" db:"etag"`
	BagGroupIdentifier        string `json:"bag_group_identifier"`
	StorageOption             string `json:"storage_option"`
	BagItProfileIdentifier    string `json:"bagit_profile_identifier" db:"bagit_profile_identifier"`
	SourceOrganization        string `json:"source_organization"`
	InternalSenderIdentifier  string `json:"internal_sender_identifier"`
	InternalSenderDescription string `json:"internal_sender_description"`
	InstitutionName           string `json:"institution_name"`
	InstitutionIdentifier     string `json:"institution_identifier"`
	InstitutionType           string `json:"institution_type"`
	InstitutionParentID       int64  `json:"institution_parent_id"`
	FileCount                 int64  `json:"file_count"` // active files, as in the next three
	Size                      int64  `json:"size"`
	PayloadFileCount          int64  `json:"payload_file_count"`
	PayloadSize               int64  `json:"payload_size"`
}

// flatObjectsSQL shows objects with what they have (object_holdings).
const flatObjectsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.title, p.description, p.identifier, p.alt_identifier, p.access, p.bag_name, p.institution_id, p.created_at, p.updated_at, p.state, p.etag,
	p.bag_group_identifier, p.storage_option, p.bagit_profile_identifier, p.source_organization, p.internal_sender_identifier,
	p.internal_sender_description, i.name AS institution_name, i.identifier AS institution_identifier, i.type AS institution_type,
	coalesce(i.member_institution_id, 0) AS institution_parent_id, coalesce(h.files, 0) AS file_count, coalesce(h.bytes, 0) AS size,
	coalesce(h.payload_files, 0) AS payload_file_count, coalesce(h.payload_bytes, 0) AS payload_size
FROM page p
JOIN institutions i ON i.id = p.institution_id
LEFT JOIN object_holdings h ON h.intellectual_object_id = p.id`

// flatObjects has as its own order that of the filter.
func flatObjects(order string) flat[FlatObject] {
	l := flat[FlatObject]{
		what: "objects", from: `(%s) p`, row: `p`, show: flatObjectsSQL,
		columns: map[string]string{
			"id": `p.id`, "updated_at": `p.updated_at`, "created_at": `p.created_at`, "identifier": `p.identifier COLLATE "C"`, "name": `p.bag_name`, "bag_name": `p.bag_name`,
		},
		own: Order{"id", true}, ownSQL: `p.id DESC`, tie: `p.id`, timeout: countTime, key: func(o FlatObject) Key { return Key{ID: o.ID} },
	}
	switch order {
	case objectsByName:
		l.own, l.ownSQL = Order{"identifier", false}, `p.identifier COLLATE "C"`
		l.key = func(o FlatObject) Key { return Key{Identifier: o.Identifier} }
	case objectsByUpdate:
		l.own, l.ownSQL = Order{"updated_at", true}, `p.updated_at DESC, p.id DESC`
		l.key = func(o FlatObject) Key { return Key{ID: o.ID, At: o.UpdatedAt.Time} }
	}
	return l
}

// FlatObjects lists objects with what is kept of them, in the order that [Records.Objects]
// has or as the slice says. The errors are those of [Records.Objects].
func (r Records) FlatObjects(ctx context.Context, f ObjectFilter, s Slice) (Part[FlatObject], error) {
	return part(ctx, r, flatObjects(f.order()), f, s)
}

// FlatObject returns the object with an ID, or else an identifier, in whichever state, with
// what is kept of it, or [registry.ErrNotFound].
func (r Records) FlatObject(ctx context.Context, id int64, identifier string) (FlatObject, error) {
	q := in(r.scope, "", objectAdvice)
	what := q.named("object", `o`, id, identifier)
	return single(ctx, r, flatObjects(objectsByID), what, `SELECT o.* FROM intellectual_objects o`, q)
}
