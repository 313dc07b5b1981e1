package registry_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// archived is a file with the names and addresses of an archive: an identifier of 58
// characters, and copies at two targets of AWS.
func archived(n int) registry.FileRecord {
	f := fileRecord(fmt.Sprintf("data/photographs/1923/box-%03d/image-%06d.tif", n/1000, n), 1)
	f.UUID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, n)).String()
	f.Virus = registry.VirusCheck{Scanner: "ClamAV 1.4.3/27812", At: f.DigestedAt}
	for i := range f.Copies {
		c := &f.Copies[i]
		c.Bucket, c.Key = []string{"aptrust.preservation.storage", "aptrust.preservation.oregon"}[i], f.UUID
		c.URL = fmt.Sprintf("https://s3.us-%s-1.amazonaws.com/%s/%s", []string{"east", "west"}[i], c.Bucket, c.Key)
		c.ETag = fmt.Sprintf("%x", uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, n, i)))
	}
	return f
}

// sizes are the bytes of what records have, with their indexes.
func (a *archive) sizes() (sizes map[string]int64, all int64) {
	a.t.Helper()
	sizes = map[string]int64{}
	for _, table := range []string{"intellectual_objects", "generic_files", "storage_records", "file_digests", "event_records", "event_texts"} {
		n := value[int64](a, `SELECT sum(pg_total_relation_size(relid))::bigint FROM (
			SELECT relid FROM pg_partition_tree($1::text::regclass) WHERE isleaf UNION SELECT $1::text::regclass) t`, table)
		sizes[table] = n
		all += n
	}
	return sizes, all
}

// A file costs the registry 3,000 bytes at most, with indexes, eleven or twelve events, four
// digests and two copies (docs/scale.md), and a fixity check 400.
func TestFileCostsTheRegistryLittle(t *testing.T) {
	t.Parallel()
	const files, checks = 20_000, 4_000
	a := newArchive(t)
	vacuum := func() {
		a.exec(`VACUUM ANALYZE intellectual_objects, generic_files, storage_records, file_digests, event_records, event_texts`)
	}
	_, empty := a.sizes()
	list := make([]registry.FileRecord, files)
	for i := range list {
		list[i] = archived(i)
	}
	a.ingested(etag1, list...)
	vacuum()
	sizes, after := a.sizes()
	for table, n := range sizes {
		t.Logf("%s: %.0f bytes for each file", table, float64(n)/files)
	}
	if perFile := float64(after-empty) / files; perFile > 3000 {
		t.Errorf("%.0f bytes of registry for each file, want 3,000 at most", perFile)
	} else {
		t.Logf("%.0f bytes of registry for each file", perFile)
	}
	if n := value[int](a, `SELECT count(*) FROM event_texts`); n > 30 {
		t.Errorf("the dictionary has %d texts, want those of one kind of file", n)
	}

	a.exec(`INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome,
			outcome_detail, outcome_information, object, agent)
		SELECT event_identifier(s.id, s.url, 'fixity check', 'sha256'), f.institution_id, f.intellectual_object_id, f.id, 'fixity check', now(),
			'Fixity check against registered hash', 'Success', 'sha256:' || c.digest, 'Fixity matches at ' || s.url || ': ' || c.digest,
			'Go language crypto/sha256', 'http://golang.org/pkg/crypto/sha256/'
		FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		JOIN checksums c ON c.generic_file_id = f.id AND c.algorithm = 'sha256' ORDER BY s.id LIMIT $1`, checks)
	vacuum()
	checked, _ := a.sizes()
	perCheck := float64(checked["event_records"]-sizes["event_records"]) / checks
	t.Logf("%.0f bytes for each fixity check", perCheck)
	if perCheck > 400 {
		t.Errorf("%.0f bytes for each fixity check, want 400 at most", perCheck)
	}
}

// Copies and events that name addresses over plain HTTP are recorded as those over TLS are: the
// address of a bucket is in the dictionary once, and each file adds its uuid alone.
func TestEventsOverPlainHTTPShareTheirTexts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	list := make([]registry.FileRecord, 20)
	for i := range list {
		list[i] = archived(i)
	}
	a.ingested(etag1, list...)
	a.exec(`UPDATE storage_records SET url = replace(url, 'https:', 'http:')`)
	for _, scheme := range []string{"https", "http"} {
		before := value[int](a, `SELECT count(*) FROM event_texts`)
		a.exec(`INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail,
				outcome, outcome_detail, outcome_information, object, agent)
			SELECT gen_random_uuid(), f.institution_id, f.intellectual_object_id, f.id, e.type, now(), 'A detail', 'Success', e.text, e.information,
				'Farol', 'https://example.org'
			FROM generic_files f CROSS JOIN LATERAL (SELECT $1 || '://h%/b/' || f.uuid, repeat(md5(f.id::text), 2)) c (url, digest)
			CROSS JOIN LATERAL (VALUES ('replication', c.url, 'Replicated'),
				('fixity check', 'sha256:' || c.digest, 'Fixity matches at ' || c.url || ': ' || c.digest)) e (type, text, information)
			ORDER BY f.id`, scheme)
		if n := value[int](a, `SELECT count(*) FROM event_texts`) - before; n != 2 {
			t.Errorf("%s: %d texts for two events of each of 20 files, want 2", scheme, n)
		}
		if n := value[int](a, `SELECT count(*) FROM event_records r, unnest(r.facts) fact WHERE r.item IS NULL AND position('://'::bytea IN fact) > 0`); n != 0 {
			t.Errorf("%s: %d addresses are spelt out", scheme, n)
		}
		if n := value[int](a, `SELECT count(*) FROM premis_events e JOIN generic_files f ON f.id = e.generic_file_id
			WHERE e.outcome_detail = $1 || '://h%/b/' || f.uuid
				OR e.outcome_information = 'Fixity matches at ' || $1 || '://h%/b/' || f.uuid || ': ' || repeat(md5(f.id::text), 2)`, scheme); n != 40 {
			t.Errorf("%s: %d events read as they were written, want 40", scheme, n)
		}
	}
}

// counting counts the statements of a pool.
type counting struct{ n atomic.Int64 }

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A bag of three files is six statements, BEGIN and COMMIT among them, with no temporary
// table. A version of it is eleven.
func TestRecordingMakesFewStatements(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var count counting
	config := a.db.Config()
	config.ConnConfig.Tracer = &count
	db := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer db.Close()
	counted := registry.New(db)
	for version, want := range []int64{6, 11} {
		item := a.started(fmt.Sprintf("%032x", version+1), 1)
		count.n.Store(0)
		must.Get(counted.Record(t.Context(), a.recording(item, 1, fileRecord("data/a", version+1), fileRecord("data/b", version+1), fileRecord("bag-info.txt", version+1))))(t)
		if n := count.n.Load(); n != want {
			t.Errorf("version %d: %d statements, want %d", version+1, n, want)
		}
		a.exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Cleanup', status = 'Success', retry = false, lease_expires_at = NULL,
			node = NULL, pid = NULL, worker = NULL WHERE id = $1`, item)
	}
}
