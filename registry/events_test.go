package registry_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// Depositors filter events by their texts, which are those of the predecessor; its
// agents are for those who ask for them.
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
	identified := "format identification 2026-01-01 00:01 Success | Identified file format | PUID x-fmt/111, text/plain, Plain Text File, by signature, " +
		"siegfried 1.2.3, DROID_SignatureFile_V120.xml; container-signature-20240715.xml | Identified by siegfried | " +
		"siegfried 1.2.3, DROID_SignatureFile_V120.xml; container-signature-20240715.xml | https://github.com/richardlehane/siegfried"
	digests := []string{
		identified,
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
			a.Registry = a.Signed(registry.APTrust())
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
				"ingestion now Success | Copied files to perservation storage | 1 files copied | Multipart put using s3 etags | " + //nolint:misspell // as every stored row spells it
					"Minio S3 client | https://github.com/minio/minio-go v7",
				"validation 2025-12-31 23:00 Success | Validated bag by its profile | https://example.org/profile.json, BagIt 1.0 | Bag is valid | " +
					"Farol 1.2.3 | https://github.com/farol-preservation/farol",
			}
			if diff := cmp.Diff(want, a.events("generic_file_id IS NULL")); diff != "" {
				t.Errorf("events of the object (-want +got):\n%s", diff)
			}
		})
	}
}

// events are sorted by their text; the columns' defaults are the time of the
// transaction.
func (a *archive) events(where string) []string {
	a.t.Helper()
	rows, _ := a.db.Query(context.Background(), `
		SELECT event_type || ' ' || CASE WHEN date_time = created_at THEN 'now' ELSE to_char(date_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') END
			|| ' ' || concat_ws(' | ', outcome, detail, outcome_detail, outcome_information, object, agent)
		FROM premis_events WHERE `+where)
	list := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(a.t)
	slices.Sort(list)
	return list
}

// Each ingest of an object and of a changed file has events of its own, also
// when a file is as it was two versions ago. Its identifier is assigned only once, and
// each version has an address: 11 events of the new file, and 10 for each change of it.
func TestEachVersionHasItsEvents(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, object := a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.ingested(etag2, fileRecord("data/a.txt", 2))
	a.ingested("33333333333333333333333333333333", fileRecord("data/a.txt", 1))
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE generic_file_id IS NOT NULL`); n != 11+10+10 {
		t.Errorf("%d events of the file, want 31", n)
	}
	events := must.Get(a.ObjectEvents(context.Background(), object))(t)
	var types []string
	for _, e := range events {
		types = append(types, e.EventType)
		if e.EventTypeURI == "" {
			t.Errorf("%s has no term", e.EventType)
		}
	}
	want := []string{
		"validation", "validation", "validation", // all before the first recording
		"creation", "identifier assignment", "ingestion", "access assignment",
		"ingestion", "access assignment", "ingestion", "access assignment",
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("events of the object, oldest first (-want +got):\n%s", diff)
	}
}

// What the identifier and the virus scanner could not do is on record as that.
func TestEventsOfIdentificationAndVirusChecks(t *testing.T) {
	t.Parallel()
	const version = "siegfried 1.2.3, DROID_SignatureFile_V120.xml; container-signature-20240715.xml"
	const siegfried = " | " + version + " | https://github.com/richardlehane/siegfried"
	const farol = " | Farol | https://github.com/farol-preservation/farol"
	format := registry.Format{MIME: "image/tiff", Method: "extension", IdentifiedBy: "ext map", SignatureVersion: version}
	with := func(reason string) registry.Format {
		f := format
		f.Reason = reason
		return f
	}
	empty := with("empty")
	empty.SignatureVersion = ""
	word := registry.Format{
		MIME: "application/msword", PUID: "fmt/40", Name: "Microsoft Word Document", Method: "container", IdentifiedBy: "siegfried", SignatureVersion: version,
	}
	const failed, done, identified = "format identification Failure | ", "format identification Success | ", "Identified file format | "
	for name, tc := range map[string]struct {
		format registry.Format
		virus  registry.VirusCheck
		want   []string
	}{
		"crashed": {with("crashed: signal: killed"), registry.VirusCheck{}, []string{
			failed + identified + "PUID unknown, image/tiff, by extension, crashed, " + version + " | crashed: signal: killed" + siegfried,
		}},
		"stalled": {with("timed out: no answer in 30s"), registry.VirusCheck{}, []string{
			failed + identified + "PUID unknown, image/tiff, by extension, timed out, " + version + " | timed out: no answer in 30s" + siegfried,
		}},
		"refused": {with("refused: broken"), registry.VirusCheck{}, []string{
			failed + identified + "PUID unknown, image/tiff, by extension, refused, " + version + " | refused: broken" + siegfried,
		}},
		"unknown": {with("unknown"), registry.VirusCheck{}, []string{
			done + identified + "PUID unknown, image/tiff, by extension, unknown, " + version + " | unknown" + siegfried,
		}},
		"empty": {empty, registry.VirusCheck{}, []string{
			done + identified + "PUID unknown, image/tiff, by extension, empty | empty" + farol,
		}},
		"by container, and clean": {word, registry.VirusCheck{Scanner: "ClamAV 1.4.3/27812"}, []string{
			done + identified + "PUID fmt/40, application/msword, Microsoft Word Document, by container, " + version + " | Identified by siegfried" + siegfried,
			"virus check Success | Checked file for viruses | No virus found | Whole content scanned | ClamAV 1.4.3/27812 | https://www.clamav.net",
		}},
		"too large for the scanner": {word, registry.VirusCheck{Scanner: "ClamAV 1.4.3/27812", Unchecked: "it is too large"}, []string{
			done + identified + "PUID fmt/40, application/msword, Microsoft Word Document, by container, " + version + " | Identified by siegfried" + siegfried,
			"virus check Failure | Checked file for viruses | Not checked | it is too large | ClamAV 1.4.3/27812 | https://www.clamav.net",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			f := fileRecord("data/a", 1)
			f.Format, f.Virus = tc.format, tc.virus
			f.Format.At = f.DigestedAt.Add(time.Hour)
			if f.Virus.Scanner != "" {
				f.Virus.At = f.Format.At
			}
			a.ingested(etag1, f)
			var got []string
			for _, e := range a.events("event_type IN ('format identification', 'virus check')") {
				got = append(got, strings.Replace(e, " 2026-01-01 01:00", "", 1))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			var kept registry.Format
			must.Do(t, a.db.QueryRow(context.Background(), `SELECT file_format, format_puid, format_name, format_method, format_identified_by,
				format_signature_version, format_reason, format_identified_at FROM generic_files`).Scan(&kept.MIME, &kept.PUID, &kept.Name,
				&kept.Method, &kept.IdentifiedBy, &kept.SignatureVersion, &kept.Reason, &kept.At))
			kept.At = kept.At.UTC()
			if diff := cmp.Diff(f.Format, kept); diff != "" {
				t.Errorf("format (-want +got):\n%s", diff)
			}
		})
	}
}

// The terms are those of id.loc.gov/vocabulary/preservation/eventType; a column
// that is derived cannot say something else than the type.
func TestEventTypesHaveTheirTerms(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	const loc = "http://id.loc.gov/vocabulary/preservation/eventType/"
	rows, _ := a.db.Query(context.Background(), `SELECT DISTINCT event_type, event_type_uri FROM premis_events`)
	got := map[string]string{}
	var eventType, uri string
	must.Get(pgx.ForEachRow(rows, []any{&eventType, &uri}, func() error { got[eventType] = uri; return nil }))(t)
	want := map[string]string{
		"access assignment": loc + "poa", "creation": loc + "cre", "fixity check": loc + "fix", "format identification": loc + "for",
		"identifier assignment": "https://github.com/farol-preservation/farol/blob/main/docs/auditors.md#identifier-assignment",
		"ingestion":             loc + "ing", "message digest calculation": loc + "mes", "replication": loc + "rep", "validation": loc + "val",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
	for eventType, code := range map[string]string{
		"virus check": "vir", "deletion": "del", "deaccession": "dea", "migration": "mig", "digital signature validation": "dig",
	} {
		if got := value[string](a, `SELECT event_type_uri($1)`, eventType); got != loc+code {
			t.Errorf("%s is %s, want %s", eventType, got, loc+code)
		}
	}
	testenv.Refused(t, a.db, `column "event_type_uri" can only be updated to DEFAULT`, `UPDATE premis_events SET event_type_uri = 'x'`)
}

// Without a word from anyone, events name Farol and what it did.
func TestEventsNameWhoDidTheWork(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Registry = a.Signed(registry.Farol("1.2.3", "a library"))
	file := fileRecord("data/a.txt", 1)
	file.Copies[0].VerifiedBy = "read"
	a.ingested(etag1, file)
	const stores = " | Farol 1.2.3, a library | https://github.com/farol-preservation/farol"
	want := []string{
		"identifier assignment now Success | Assigned new institution.bag/path identifier | " + file.Identifier +
			" | Assigned bag/filepath identifier | Farol 1.2.3 | https://github.com/farol-preservation/farol",
		"identifier assignment now Success | Assigned new storage URL identifier | " + file.Copies[0].URL + " | Assigned url identifier" + stores,
		"ingestion 2026-01-01 01:00 Success | Completed copy to preservation storage (" + file.UUID + ") | md5:" + file.MD5 +
			" | Stored, read back and verified by its SHA-256" + stores,
		"ingestion now Success | Copied files to preservation storage | 1 files copied | Each copy was verified at its provider" + stores,
	}
	if diff := cmp.Diff(want, a.events("event_type IN ('ingestion', 'identifier assignment') AND outcome_detail <> 'test.edu/bag'")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := a.events("object || agent ~* 'minio|aptrust'"); len(got) != 0 {
		t.Errorf("events of software that did nothing: %q", got)
	}
}
