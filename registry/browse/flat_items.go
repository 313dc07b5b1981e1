package browse

import (
	"context"
	"fmt"
	"time"
)

// ItemDetails narrow a list of items further. They have no indexes.
type ItemDetails struct {
	ETag            string
	Bucket          string
	User            string // e-mail of the person who asked for it
	ObjectID        int64
	FileID          int64
	File            string // identifier
	AltIdentifier   string // of its object, as the next two
	BagGroup        string
	Profile         string // identifier of the BagIt profile
	HasObject       *bool
	HasFile         *bool
	Queued          *bool // whether it has a time of queueing
	Retry           *bool
	NeedsReview     *bool // false, too; true alone has an index as Review
	BagDateAfter    time.Time
	BagDateBefore   time.Time
	ProcessedAfter  time.Time // of the request, then or later
	ProcessedBefore time.Time
}

// narrow adds the conditions for a row w.
func (d ItemDetails) narrow(q *query) {
	q.equal(`w.etag = @etag`, "etag", d.ETag)
	q.equal(`w.bucket = @bucket`, "bucket", d.Bucket)
	q.equal(`w."user" = @user`, "user", d.User)
	q.number(`w.intellectual_object_id = @object_id`, "object_id", d.ObjectID)
	q.number(`w.generic_file_id = @file_id`, "file_id", d.FileID)
	q.equal(`w.generic_file_id = (SELECT f.id FROM generic_files f WHERE f.identifier = @file)`, "file", d.File)
	q.equal(`EXISTS (SELECT FROM intellectual_objects o WHERE o.id = w.intellectual_object_id AND o.alt_identifier = @alt_identifier)`, "alt_identifier", d.AltIdentifier)
	q.equal(`EXISTS (SELECT FROM intellectual_objects o WHERE o.id = w.intellectual_object_id AND o.bag_group_identifier = @bag_group)`, "bag_group", d.BagGroup)
	q.equal(`EXISTS (SELECT FROM intellectual_objects o WHERE o.id = w.intellectual_object_id AND o.bagit_profile_identifier = @profile)`, "profile", d.Profile)
	q.truth(`(w.intellectual_object_id IS NOT NULL) = @has_object`, "has_object", d.HasObject)
	q.truth(`(w.generic_file_id IS NOT NULL) = @has_file`, "has_file", d.HasFile)
	q.truth(`(w.queued_at IS NOT NULL) = @queued`, "queued", d.Queued)
	q.truth(`w.retry = @retry`, "retry", d.Retry)
	q.truth(`w.needs_admin_review = @needs_review`, "needs_review", d.NeedsReview)
	q.since(`w.bag_date >= @bag_date_after`, "bag_date_after", d.BagDateAfter)
	q.since(`w.bag_date < @bag_date_before`, "bag_date_before", d.BagDateBefore)
	q.since(`w.date_processed >= @processed_after`, "processed_after", d.ProcessedAfter)
	q.since(`w.date_processed < @processed_before`, "processed_before", d.ProcessedBefore)
}

// FlatItem is a work item with what it refers to. What is absent is zero.
type FlatItem struct {
	ID                       int64  `json:"id"`
	Name                     string `json:"name"`
	ETag                     string `json:"etag" db:"etag"`
	InstitutionID            int64  `json:"institution_id"`
	InstitutionName          string `json:"institution_name"`
	InstitutionIdentifier    string `json:"institution_identifier"`
	IntellectualObjectID     int64  `json:"intellectual_object_id"`
	ObjectIdentifier         string `json:"object_identifier"`
	AltIdentifier            string `json:"alt_identifier"`
	BagGroupIdentifier       string `json:"bag_group_identifier"`
	StorageOption            string `json:"storage_option"`
	BagItProfileIdentifier   string `json:"bagit_profile_identifier" db:"bagit_profile_identifier"`
	SourceOrganization       string `json:"source_organization"`
	InternalSenderIdentifier string `json:"internal_sender_identifier"`
	GenericFileID            int64  `json:"generic_file_id"`
	GenericFileIdentifier    string `json:"generic_file_identifier"`
	Bucket                   string `json:"bucket"`
	User                     string `json:"user"`
	Note                     string `json:"note"`
	Action                   string `json:"action"`
	Stage                    string `json:"stage"`
	Status                   string `json:"status"`
	Outcome                  string `json:"outcome"`
	BagDate                  Time   `json:"bag_date"`
	DateProcessed            Time   `json:"date_processed"`
	Retry                    bool   `json:"retry"`
	Node                     string `json:"node"`
	PID                      int64  `json:"pid" db:"pid"`
	NeedsAdminReview         bool   `json:"needs_admin_review"`
	QueuedAt                 Time   `json:"queued_at"`
	Size                     int64  `json:"size"`
	StageStartedAt           Time   `json:"stage_started_at"`
	APTrustApprover          string `json:"aptrust_approver" db:"aptrust_approver"`
	InstApprover             string `json:"inst_approver"`
	DeletionRequestID        int64  `json:"deletion_request_id"`
	CreatedAt                Time   `json:"created_at"`
	UpdatedAt                Time   `json:"updated_at"`
}

const flatItemsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.name, p.etag, p.institution_id, i.name AS institution_name, i.identifier AS institution_identifier,
	coalesce(p.intellectual_object_id, 0) AS intellectual_object_id, p.object_identifier, coalesce(o.alt_identifier, '') AS alt_identifier,
	coalesce(o.bag_group_identifier, '') AS bag_group_identifier, coalesce(p.storage_option, '') AS storage_option,
	coalesce(o.bagit_profile_identifier, '') AS bagit_profile_identifier, coalesce(o.source_organization, '') AS source_organization,
	coalesce(o.internal_sender_identifier, '') AS internal_sender_identifier, coalesce(p.generic_file_id, 0) AS generic_file_id,
	coalesce(f.identifier, '') AS generic_file_identifier, p.bucket, p."user", p.note, p.action, p.stage, p.status, p.outcome, p.bag_date, p.date_processed,
	p.retry, coalesce(p.node, '') AS node, coalesce(p.pid, 0) AS pid, p.needs_admin_review, p.queued_at, p.size, p.stage_started_at,
	coalesce(p.aptrust_approver, '') AS aptrust_approver, coalesce(p.inst_approver, '') AS inst_approver,
	coalesce(p.deletion_request_id, 0) AS deletion_request_id, p.created_at, p.updated_at
FROM page p
JOIN institutions i ON i.id = p.institution_id
LEFT JOIN intellectual_objects o ON o.id = p.intellectual_object_id
LEFT JOIN generic_files f ON f.id = p.generic_file_id`

func flatItems() flat[FlatItem] {
	return flat[FlatItem]{
		what: "work items", from: `(%s) p`, row: `p`, show: flatItemsSQL,
		columns: map[string]string{
			"id": `p.id`, "updated_at": `p.updated_at`, "date_processed": `p.date_processed`, "created_at": `p.created_at`, "name": `p.name`,
			"identifier": `p.object_identifier`, "object_identifier": `p.object_identifier`,
		},
		own: Order{"id", true}, ownSQL: `p.id DESC`, tie: `p.id`, key: func(w FlatItem) Key { return Key{ID: w.ID} },
	}
}

// FlatItems lists work items with what they refer to, newest first or as the slice says.
// The errors are those of [Records.Items].
func (r Records) FlatItems(ctx context.Context, f ItemFilter, s Slice) (Part[FlatItem], error) {
	return part(ctx, r, flatItems(), f, s)
}

// FlatItem returns a work item with what it refers to, or [registry.ErrNotFound].
func (r Records) FlatItem(ctx context.Context, id int64) (FlatItem, error) {
	q := in(r.scope, "", itemAdvice)
	q.where(`w.id = @id`, "id", id)
	q.within(`w.institution_id`)
	return single(ctx, r, flatItems(), fmt.Sprintf("item %d", id), `SELECT w.* FROM all_work_items w`, q)
}
