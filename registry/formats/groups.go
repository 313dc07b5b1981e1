package formats

import (
	"context"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// Counted is a group of active files, as far as they are not on record with given signatures.
type Counted struct {
	Group

	Files int64
	Bytes int64
}

// Groups lists all groups of active files that are not on record with the version notBy
// of signatures, by their PUIDs.
func (r Records) Groups(ctx context.Context, notBy string) ([]Counted, error) {
	return registry.Collect[Counted](ctx, r.db, "group files by their formats", `
		SELECT puid, method, ext, count(*) AS files, sum(size)::bigint AS bytes
		FROM (SELECT f.size, g.* FROM generic_files f CROSS JOIN LATERAL (SELECT `+groupOf+`) AS g (puid, method, ext)
			WHERE f.state = 'A' AND f.size > 0 AND f.format_signature_version <> @not_by) f
		GROUP BY puid, method, ext ORDER BY puid, method, ext`, Filter{NotBy: notBy}.args())
}

// Reading is what it costs to identify files again, where their copies are readable or in
// one class of an archive.
type Reading struct {
	Class    string  `json:"storage_class"` // "": some copy can be read as it is
	Files    int64   `json:"files"`
	Requests int64   `json:"requests"` // at most
	Bytes    int64   `json:"bytes"`    // read of them at most; in an archive all has to be retrieved
	Retrieve int64   `json:"retrieve_bytes"`
	Prices   []Price `db:"-" json:"prices,omitempty"`
}

// Price is what a retrieval costs.
type Price struct {
	Tier  string        `json:"tier"`
	USD   string        `json:"usd"`
	Takes time.Duration `json:"takes_ns"`
}

// Classes are the storage classes of targets: "" where copies can be read as they are.
type Classes map[string]string

// readingSQL takes, of the copies of a file, one that can be read, else one in the class
// that costs least. What is read of a file is bounded, and so is each request.
const readingSQL = `
WITH class AS (SELECT * FROM unnest(@targets::text[], @classes::text[]) AS c (target, class)
), file AS (
	SELECT f.size, (SELECT c.class FROM storage_records s JOIN class c ON c.target = s.target
		LEFT JOIN retrieval_prices p ON p.storage_class = c.class
		WHERE s.generic_file_id = f.id ORDER BY c.class <> '', p.per_gib, c.class LIMIT 1) AS class
	FROM generic_files f WHERE `

// Readings are what it costs to identify the files of a filter again.
func (r Records) Readings(ctx context.Context, f Filter, targets Classes, most, request int64) ([]Reading, error) {
	args := f.args()
	var names, classes []string
	for target, class := range targets {
		names, classes = append(names, target), append(classes, class)
	}
	args["targets"], args["classes"], args["most"], args["request"] = names, classes, most, request
	list, err := registry.Collect[Reading](ctx, r.db, "count what has to be read", readingSQL+f.where()+`
		)
		SELECT class, count(*) AS files, sum(ceil(least(size, @most)::numeric / @request))::bigint AS requests, sum(least(size, @most))::bigint AS bytes,
			CASE class WHEN '' THEN 0 ELSE sum(size) END::bigint AS retrieve
		FROM file WHERE class IS NOT NULL GROUP BY class ORDER BY class`, args)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Class == "" {
			continue
		}
		args["class"], args["bytes"], args["files"] = list[i].Class, list[i].Retrieve, list[i].Files
		list[i].Prices, err = registry.Collect[Price](ctx, r.db, "price a retrieval", `
			SELECT tier, round(@bytes::numeric / 1073741824 * per_gib + @files::numeric / 1000 * per_1000_requests, 2)::text AS usd, takes
			FROM retrieval_prices WHERE storage_class = @class ORDER BY takes`, args)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
