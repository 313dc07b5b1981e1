package browse

import (
	"context"
	"fmt"
	"time"
)

// ChecksumDetails narrow a list of checksums further. They have no indexes.
type ChecksumDetails struct {
	ObjectID int64
	State    string    // of the file, A or D
	At       time.Time // exactly then
}

// narrow adds the conditions for a row d with its file f.
func (d ChecksumDetails) narrow(q *query) {
	q.number(`f.intellectual_object_id = @object_id`, "object_id", d.ObjectID)
	q.equal(`f.state = @state`, "state", d.State)
	q.since(`d.datetime = @datetime`, "datetime", d.At)
}

// FlatChecksum is a digest with the file that has, or has had, it.
type FlatChecksum struct {
	ID                    int64  `json:"id"`
	Algorithm             string `json:"algorithm"`
	DateTime              Time   `json:"datetime" db:"datetime"`
	Digest                string `json:"digest"`
	State                 string `json:"state"` // of the file
	GenericFileIdentifier string `json:"generic_file_identifier"`
	GenericFileID         int64  `json:"generic_file_id"`
	IntellectualObjectID  int64  `json:"intellectual_object_id"`
	InstitutionID         int64  `json:"institution_id"`
	CreatedAt             Time   `json:"created_at"`
	UpdatedAt             Time   `json:"updated_at"`
}

const flatChecksumsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.algorithm, p.at AS datetime, p.digest, f.state, p.file AS generic_file_identifier, p.file_id AS generic_file_id, f.intellectual_object_id,
	f.institution_id, p.created_at, p.updated_at
FROM page p JOIN generic_files f ON f.id = p.file_id`

func flatChecksums() flat[FlatChecksum] {
	return flat[FlatChecksum]{
		what: "checksums", from: `(%s) p`, row: `p`, show: flatChecksumsSQL,
		columns: map[string]string{"id": `p.id`, "datetime": `p.at`, "created_at": `p.created_at`, "updated_at": `p.updated_at`},
		own:     Order{"generic_file_id", true}, ownSQL: `p.file_id DESC, p.id DESC`, tie: `p.id`,
		key: func(c FlatChecksum) Key { return Key{ID: c.ID, Of: c.GenericFileID} },
	}
}

// FlatChecksums lists digests, those of the newest files first or as the slice says. The
// errors are those of [Records.Checksums].
func (r Records) FlatChecksums(ctx context.Context, f ChecksumFilter, s Slice) (Part[FlatChecksum], error) {
	return part(ctx, r, flatChecksums(), f, s)
}

// oneChecksumSQL finds digests of a file (file_digests_file): their IDs have no index.
const oneChecksumSQL = `
SELECT c.id, c.generic_file_id AS file_id, f.identifier AS file, c.algorithm, c.digest, c.datetime AS at, c.created_at, c.updated_at
FROM checksums c JOIN generic_files f ON f.id = c.generic_file_id`

// FlatChecksum returns the digest with an ID of a file, or [registry.ErrNotFound]. An ID
// alone does not lead to a digest.
func (r Records) FlatChecksum(ctx context.Context, file, id int64) (FlatChecksum, error) {
	q := in(r.scope, "", checksumAdvice)
	q.where(`c.generic_file_id = @file`, "file", file)
	q.where(`c.id = @id`, "id", id)
	q.within(`f.institution_id`)
	return single(ctx, r, flatChecksums(), fmt.Sprintf("checksum %d", id), oneChecksumSQL, q)
}

// FlatEvent is a PREMIS event with what it is about. What is absent is zero.
type FlatEvent struct {
	ID                           int64  `json:"id"`
	Agent                        string `json:"agent"`
	CreatedAt                    Time   `json:"created_at"`
	DateTime                     Time   `json:"date_time"`
	Detail                       string `json:"detail"`
	EventType                    string `json:"event_type"`
	GenericFileID                int64  `json:"generic_file_id"`
	GenericFileIdentifier        string `json:"generic_file_identifier"`
	Identifier                   string `json:"identifier"`
	InstitutionID                int64  `json:"institution_id"`
	InstitutionName              string `json:"institution_name"`
	IntellectualObjectID         int64  `json:"intellectual_object_id"`
	IntellectualObjectIdentifier string `json:"intellectual_object_identifier"`
	Object                       string `json:"object"`
	OldUUID                      string `json:"old_uuid" db:"old_uuid"`
	Outcome                      string `json:"outcome"`
	OutcomeDetail                string `json:"outcome_detail"`
	OutcomeInformation           string `json:"outcome_information"`
	UpdatedAt                    Time   `json:"updated_at"` // an event does not change
}

const flatEventsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT s.id + s.n - 1 AS id, t.agent, r.created_at, ` + eventTime + ` AS date_time, event_words(t.id = s.text, t.detail, ` + eventFile + ` AS detail, t.event_type,
	coalesce(r.generic_file_id, 0) AS generic_file_id, coalesce(r.file_identifier, f.identifier, '') AS generic_file_identifier,
	(` + eventIdentifier + `)::text AS identifier, r.institution_id, i.name AS institution_name, o.id AS intellectual_object_id,
	o.identifier AS intellectual_object_identifier, t.object, '' AS old_uuid, t.outcome, ` + eventDetail + ` AS outcome_detail,
	event_words(t.id = s.text, t.outcome_information, ` + eventFile + ` AS outcome_information, r.created_at AS updated_at
FROM page r CROSS JOIN LATERAL (SELECT r.id, r.text, r.n) s
JOIN event_texts t ON t.id = r.text
JOIN institutions i ON i.id = r.institution_id
JOIN intellectual_objects o ON o.id = r.intellectual_object_id
LEFT JOIN generic_files f ON f.id = r.generic_file_id`

func flatEvents() flat[FlatEvent] {
	return flat[FlatEvent]{
		what: "events", from: `(%s) r JOIN event_texts t ON t.id = r.text`, row: `r`, show: flatEventsSQL,
		columns: map[string]string{"id": `(r.id + r.n)`, "created_at": `r.created_at`, "updated_at": `r.created_at`, "date_time": eventTime},
		own:     Order{"created_at", true}, ownSQL: `r.created_at DESC, r.id DESC, r.n DESC`, tie: `(r.id + r.n)`,
		key: func(e FlatEvent) Key { return Key{ID: e.ID, At: e.CreatedAt.Time} },
	}
}

// FlatEvents lists PREMIS events with what they are about, those recorded last first or as
// the slice says. The errors are those of [Records.Events].
func (r Records) FlatEvents(ctx context.Context, f EventFilter, s Slice) (Part[FlatEvent], error) {
	return part(ctx, r, flatEvents(), f, s)
}
