package browse

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// MostSampled is how many files a sample has at most.
const MostSampled = 1000

// SampleOf says which sample is drawn.
type SampleOf struct {
	Institution string // identifier; "": all in the scope
	Seed        string
	Files       int   // up to MostSampled
	Through     int64 // highest ID that is drawn from; 0: the highest there is
}

// Both read one row at the end of an index: generic_files_pkey, or
// intellectual_objects_of_institution.
const (
	lastFileSQL   = `SELECT id FROM (SELECT f.id FROM generic_files f ORDER BY f.id DESC LIMIT 1) x`
	lastObjectSQL = `SELECT id FROM (SELECT o.id FROM intellectual_objects o WHERE o.institution_id = %s ORDER BY o.id DESC LIMIT 1) x`
)

// drawnFiles finds a file for each place in the range of IDs (generic_files_pkey).
const drawnFiles = `
SELECT DISTINCT f.id FROM unnest(@places::float8[]) p (place) CROSS JOIN LATERAL (
	SELECT f.id FROM generic_files f WHERE f.id >= ceil(p.place * @through::bigint)::bigint AND f.id <= @through ORDER BY f.id LIMIT 1) f`

// drawnOfObjects finds an object of the institution for each place in the range of IDs
// (intellectual_objects_of_institution), and one of its first hundred files
// (object_holdings_pkey, generic_files_identifier_key): files have no index by institution.
const drawnOfObjects = `
SELECT DISTINCT f.id FROM unnest(@places::float8[], @seconds::float8[]) p (place, second) CROSS JOIN LATERAL (
	SELECT o.id, o.identifier FROM intellectual_objects o
	WHERE o.institution_id = %[1]s AND o.id >= ceil(p.place * @through::bigint)::bigint AND o.id <= @through ORDER BY o.institution_id, o.id LIMIT 1) o
CROSS JOIN LATERAL (
	SELECT f.id FROM generic_files f WHERE f.identifier > o.identifier || '/' AND f.identifier < o.identifier || '0' AND f.institution_id = %[1]s
	ORDER BY f.identifier OFFSET floor(p.second * (
		SELECT least(greatest(max(h.files), 1), 100) FROM object_holdings h WHERE h.intellectual_object_id = o.id))::bigint LIMIT 1) f`

// sampleSQL has the copies by storage_records_generic_file_id_url_key, and bad ones by
// fixity_failures_open.
const sampleSQL = `
SELECT f.id, f.identifier, i.identifier AS institution, f.size, f.state, c.copies, c.unread, c.bad, c.oldest, c.newest
FROM (%s) d JOIN generic_files f ON f.id = d.id JOIN institutions i ON i.id = f.institution_id CROSS JOIN LATERAL (
	SELECT count(*) AS copies, count(*) FILTER (WHERE s.last_fixity_at IS NULL) AS unread, min(s.last_fixity_at) AS oldest, max(s.last_fixity_at) AS newest,
		count(*) FILTER (WHERE EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')) AS bad
	FROM (SELECT * FROM storage_records s WHERE s.generic_file_id = f.id AND s.active OFFSET 0) s) c`

// Sample draws files from the range of their IDs by a seed: each file has the same chance, as
// far as IDs have no gaps. In the scope of an institution, or of one, objects are drawn, and of
// each one of its first hundred files. Deleted files are among them.
func (r Records) Sample(ctx context.Context, of SampleOf) (record.Sample, error) {
	s := record.Sample{Seed: of.Seed, Through: of.Through, Files: []record.SampledFile{}}
	q := in(r.scope, of.Institution, "draw fewer files")
	if q.nothing {
		return s, nil
	}
	last, drawn := lastFileSQL, drawnFiles
	if q.inside.one {
		last, drawn = fmt.Sprintf(lastObjectSQL, q.inside.id), fmt.Sprintf(drawnOfObjects, q.inside.id)
	}
	if s.Through == 0 {
		found, err := read(ctx, r.db, q, last, pgx.RowTo[int64])
		if err != nil {
			return record.Sample{}, fmt.Errorf("draw a sample: %w", err)
		}
		if len(found) == 0 {
			return s, nil
		}
		s.Through = found[0]
	}
	q.args["through"], q.args["places"] = s.Through, places(of.Seed+" places", min(of.Files, MostSampled))
	if q.inside.one {
		q.args["seconds"] = places(of.Seed+" files", min(of.Files, MostSampled))
	}
	files, err := read(ctx, r.db, q, fmt.Sprintf(sampleSQL, drawn), pgx.RowToStructByName[record.SampledFile])
	if err != nil {
		return record.Sample{}, fmt.Errorf("draw a sample: %w", err)
	}
	slices.SortFunc(files, func(x, y record.SampledFile) int { return int(x.ID - y.ID) })
	s.Files = append(s.Files, files...)
	return s, nil
}

// places are random numbers from 0 to 1 that a seed makes, wherever it is drawn.
func places(seed string, n int) []float64 {
	sum := sha256.Sum256([]byte(seed))
	// It is to be drawn again by others, and not to be secret.
	random := rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])))
	list := make([]float64, n)
	for i := range list {
		list[i] = random.Float64()
	}
	return list
}
