package registry_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Depositors filter events by their texts, which are those of the predecessor.
// "now" is the time of the recording; version 1 was digested on 1 January at
// midnight, and its copies stored one and two hours later.
func TestEventsSayWhatTheyAlwaysSaid(t *testing.T) {
	t.Parallel()
	const (
		read = "2026-01-01 00:00 Success | "
		md5  = "md5:11111111111111111111111111111111"
		sha1 = "sha1:1111111111111111111111111111111111111111"
		s256 = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
		s512 = "sha512:1111111111111111111111111111111111111111111111111111111111111111" +
			"1111111111111111111111111111111111111111111111111111111111111111"
		golang = " | Go language crypto/"
		manual = " | http://golang.org/pkg/crypto/"
		ours   = " | https://github.com/APTrust/preservation-services"
		google = " | Go uuid library + Minio S3 library | http://github.com/google/uuid"
		digest = "message digest calculation " + read + "Calculated fixity value | "
		fixity = "fixity check " + read + "Fixity check against registered hash | "
	)
	digests := []string{
		digest + md5 + " | Calculated fixity value" + golang + "md5" + manual + "md5/",
		digest + sha1 + " | Calculated fixity value" + golang + "sha1" + manual + "sha1/",
		digest + s256 + " | Calculated fixity value" + golang + "sha256" + manual + "sha256/",
		digest + s512 + " | Calculated fixity value" + golang + "sha512" + manual + "sha512/",
	}
	payload, tag := fileRecord("data/a.txt", 1), fileRecord("bag-info.txt", 1)
	tag.Copies = tag.Copies[:1]
	stored := func(f registry.FileRecord) []string {
		return []string{
			"identifier assignment now Success | Assigned new institution.bag/path identifier | " + f.Identifier +
				" | Assigned bag/filepath identifier | APTrust exchange/ingest processor" + ours,
			"identifier assignment now Success | Assigned new storage URL identifier | https://Standard-VA/" + f.UUID + " | Assigned url identifier" + google,
			"ingestion 2026-01-01 01:00 Success | Completed copy to preservation storage (" + f.UUID + ") | " + md5 +
				" | Put using md5 checksum | preservation-services + Minio S3 client | https://github.com/minio/minio-go v7",
		}
	}
	for name, tc := range map[string]struct {
		file registry.FileRecord
		want []string
	}{
		"payload file in two manifests and two copies": {payload, slices.Concat(digests, stored(payload), []string{
			fixity + md5 + " | Fixity matches" + golang + "md5" + manual + "md5/",
			fixity + s256 + " | Fixity matches" + golang + "sha256" + manual + "sha256/",
			"replication 2026-01-01 02:00 Success | Copied to replication storage and assigned replication URL identifier | https://Standard-OR/" +
				payload.UUID + " | Replicated to secondary storage" + google,
		})},
		"tag file in one copy": {tag, slices.Concat(digests, stored(tag))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.ingested(etag1, tc.file)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, a.events("generic_file_id IS NOT NULL")); diff != "" {
				t.Errorf("events of the file (-want +got):\n%s", diff)
			}
			want := []string{
				"access assignment now Success | Assigned object access rights | consortia | Set access to consortia | APTrust preservation services" + ours,
				"creation now Success | Object created | Intellectual object created | " +
					"Object created, files copied to preservation storage | APTrust preservation services" + ours,
				"identifier assignment now Success | Assigned object identifier test.edu/bag | test.edu/bag | Institution domain + tar file name | " +
					"APTrust preservation services" + ours,
				"ingestion now Success | Copied files to perservation storage | 5 files copied | Multipart put using s3 etags | " + //nolint:misspell // as every stored row spells it
					"Minio S3 client | https://github.com/minio/minio-go v7",
			}
			if diff := cmp.Diff(want, a.events("generic_file_id IS NULL")); diff != "" {
				t.Errorf("events of the object (-want +got):\n%s", diff)
			}
		})
	}
}

// events are sorted by their text; the columns' defaults tell the time of the
// transaction.
func (a *archive) events(where string) []string {
	a.t.Helper()
	rows, _ := a.db.Query(context.Background(), `
		SELECT event_type || ' ' || CASE WHEN date_time = created_at THEN 'now' ELSE to_char(date_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') END
			|| ' ' || concat_ws(' | ', outcome, detail, outcome_detail, outcome_information, object, agent)
		FROM premis_events WHERE `+where)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// Each ingest of an object and of a changed file has events of its own, also
// when a file is as it was two versions ago. What is named only once is named at
// the first ingest: 10 events of the new file, and 8 for each change of it.
func TestEachVersionHasItsEvents(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, object := a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.ingested(etag2, fileRecord("data/a.txt", 2))
	a.ingested("33333333333333333333333333333333", fileRecord("data/a.txt", 1))
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE generic_file_id IS NOT NULL`); n != 10+8+8 {
		t.Errorf("%d events of the file, want 26", n)
	}
	events, err := a.ObjectEvents(context.Background(), object)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, e.EventType)
	}
	want := []string{
		"creation", "identifier assignment", "ingestion", "access assignment",
		"ingestion", "access assignment", "ingestion", "access assignment",
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("events of the object, oldest first (-want +got):\n%s", diff)
	}
}
