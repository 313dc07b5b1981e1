package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/formats"
)

// toIdentify pages through what a filter takes, three at a time, and returns the
// paths.
func (a *archive) toIdentify(f formats.Filter) (paths []string) {
	a.t.Helper()
	ctx := context.Background()
	count := must.Get(formats.In(a.Registry).Count(ctx, f))(a.t)
	var after *formats.File
	for {
		batch := must.Get(formats.In(a.Registry).ToIdentify(ctx, f, count.At.Add(time.Second), after, 3))(a.t)
		if len(batch) == 0 {
			break
		}
		for _, file := range batch {
			paths = append(paths, file.Path)
		}
		after = &batch[len(batch)-1]
	}
	if count.Files != int64(len(paths)) {
		a.t.Errorf("%d files were counted, and %d listed", count.Files, len(paths))
	}
	slices.Sort(paths)
	return paths
}

func (a *archive) withFiles(n int) {
	a.t.Helper()
	var files []registry.FileRecord
	for i := range n {
		files = append(files, fileRecord(fmt.Sprintf("data/%d", i), 1))
	}
	a.ingested(etag1, files...)
}

func TestFilesToIdentify(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withFiles(10)
	set := func(path, change string) {
		a.exec(`UPDATE generic_files SET ` + change + ` WHERE identifier = 'test.edu/bag/data/` + path + `'`)
	}
	for _, path := range []string{"0", "1", "2", "3", "4"} {
		set(path, `format_puid = '', format_signature_version = ''`)
	}
	set("4", `format_reason = 'crashed: signal: killed'`)
	set("3", `state = 'D'`)
	set("5", `format_signature_version = 'siegfried 1.9.0, DROID_SignatureFile_V99.xml; container-signature-20300101.xml'`)
	set("6", `format_signature_version = 'siegfried 1.9.0, DROID_SignatureFile_V9.xml'`)
	set("7", `size = 0, format_signature_version = '', format_reason = 'empty'`)
	for name, tc := range map[string]struct {
		filter formats.Filter
		want   string
	}{
		"missing":              {formats.Filter{}, "data/0 data/1 data/2"},
		"older than the first": {formats.Filter{OlderThan: 1}, "data/0 data/1 data/2 data/4"},
		"older than 99":        {formats.Filter{OlderThan: 99}, "data/0 data/1 data/2 data/4 data/6"},
		"older than 100":       {formats.Filter{OlderThan: 100}, "data/0 data/1 data/2 data/4 data/5 data/6"},
		"older than 121":       {formats.Filter{OlderThan: 121}, "data/0 data/1 data/2 data/4 data/5 data/6 data/8 data/9"},
		"of the institution":   {formats.Filter{Institution: "test.edu"}, "data/0 data/1 data/2"},
		"of another":           {formats.Filter{Institution: "other.edu"}, ""},
		"of the object":        {formats.Filter{OlderThan: 99, Object: "test.edu/bag"}, "data/0 data/1 data/2 data/4 data/6"},
		"of another object":    {formats.Filter{Object: "test.edu/other"}, ""},
	} {
		if got := strings.Join(a.toIdentify(tc.filter), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	// What was changed since the beginning is not visited again.
	began := value[time.Time](a, `SELECT now()`)
	set("0", `updated_at = now()`)
	list, err := formats.In(a.Registry).ToIdentify(t.Context(), formats.Filter{}, began, nil, 10)
	if err != nil || len(list) != 2 {
		t.Errorf("%d files, %v; want the two that nobody has changed", len(list), err)
	}
	want := fileRecord("data/1", 1)
	if f := list[0]; f.Identifier != want.Identifier || f.Size != want.Size || f.MIME != "text/plain" || !slices.Equal(f.Targets, []string{"Standard-VA", "Standard-OR"}) ||
		!slices.Equal(f.Keys, []string{want.UUID, want.UUID}) || f.ETags[1] != want.Copies[1].ETag || f.Buckets[0] != want.Copies[0].Bucket {
		t.Errorf("file = %+v", f)
	}
}

// What was found of a file counts only while it is as it was when it was read.
func TestOnlyUnchangedFilesAreIdentified(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	a.withFiles(5)
	a.exec(`UPDATE generic_files SET format_puid = ''`)
	files, err := formats.In(a.Registry).ToIdentify(ctx, formats.Filter{}, time.Now().Add(time.Hour), nil, 10)
	if err != nil || len(files) != 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var found []formats.Identified
	for _, f := range files {
		found = append(found, formats.Identified{File: f, Format: registry.Format{
			MIME: "application/pdf", PUID: "fmt/18", Name: "PDF", Method: "signature", IdentifiedBy: "siegfried",
			SignatureVersion: "siegfried 2.0.0, DROID_SignatureFile_V130.xml", At: time.Now(),
		}})
	}
	a.ingested(etag2, fileRecord("data/0", 2))
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/1'`)
	tx := must.Get(a.db.Begin(ctx))(t)
	must.Get(tx.Exec(ctx, `UPDATE generic_files SET mod_time = now() WHERE identifier LIKE '%/2'`))(t)
	for try, want := range [][]int64{{files[3].ID, files[4].ID}, nil} { // again, it is not what was read
		ids, err := formats.In(a.Registry).Identify(ctx, found)
		slices.Sort(ids)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("try %d: Identify = %v, %v; want %v", try, ids, err, want)
		}
	}
	must.Do(t, tx.Rollback(ctx))
	rows, _ := a.db.Query(ctx, `SELECT concat_ws(' ', right(f.identifier, 1), e.outcome, e.outcome_detail) FROM premis_events e
		JOIN generic_files f ON f.id = e.generic_file_id WHERE e.event_type = 'format identification' AND e.outcome_detail LIKE '%V130%'
		AND e.identifier = event_identifier(0, f.identifier || ' ' || (SELECT digest FROM checksums WHERE generic_file_id = f.id AND algorithm = 'sha256'),
			e.event_type, e.outcome_detail) ORDER BY f.identifier`)
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	const said = " Success PUID fmt/18, application/pdf, PDF, by signature, siegfried 2.0.0, DROID_SignatureFile_V130.xml"
	if diff := cmp.Diff([]string{"3" + said, "4" + said}, events); diff != "" || err != nil {
		t.Errorf("events: %v (-want +got):\n%s", err, diff)
	}
	// Read again and found the same, it is no other event.
	files = must.Get(formats.In(a.Registry).ToIdentify(ctx, formats.Filter{OlderThan: 131}, time.Now().Add(time.Hour), nil, 10))(t)
	for _, f := range files {
		for i := range found {
			if found[i].File.ID == f.ID {
				found[i].File = f
			}
		}
	}
	before := a.counts()["premis_events"]
	if ids, err := formats.In(a.Registry).Identify(ctx, found[3:]); err != nil || len(ids) != 2 {
		t.Errorf("Identify = %v, %v", ids, err)
	}
	if n := a.counts()["premis_events"]; n != before {
		t.Errorf("%d more events", n-before)
	}
}

// Both ways to ask go by their index, in its order, however many files there are.
func TestFilesToIdentifyAreFoundByIndex(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withFiles(1)
	a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, format_puid, size, storage_option, last_fixity_check,
			format_signature_version)
		SELECT institution_id, intellectual_object_id, identifier || n, gen_random_uuid(), file_format, 'fmt/1', size, storage_option, now(), format_signature_version
		FROM generic_files, generate_series(1, 20000) n`)
	a.exec(`ANALYZE generic_files`)
	for sql, index := range map[string]string{
		`SELECT id FROM generic_files f WHERE f.state = 'A' AND f.format_puid = '' AND f.format_reason = '' AND f.id > 5 ORDER BY f.id LIMIT 100`: "generic_files_without_format",
		`SELECT id FROM generic_files f WHERE f.state = 'A' AND signature_number(f.format_signature_version) < 120 AND f.size > 0
			AND (signature_number(f.format_signature_version), f.id) > (0, 5)
			ORDER BY signature_number(f.format_signature_version), f.id LIMIT 100`: "generic_files_signatures",
	} {
		rows, _ := a.db.Query(context.Background(), `EXPLAIN `+sql)
		plan := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		if text := strings.Join(plan, "\n"); !strings.Contains(text, index) || strings.Contains(text, "Sort") {
			t.Errorf("%s\n%s", sql, text)
		}
	}
}

// The number is that of the first signature file whose name has the form, also where another
// name, which has not, comes before.
func TestSignatureNumberIsThatOfItsPattern(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const file = "DROID_SignatureFile_V"
	for _, version := range []string{
		"", "siegfried 1.2.3", file, file + "120", file + ".xml", file + "120.xml", "siegfried, " + file + "7.xml; container", file + "1234567.xml", file + "123456.xml",
		file + "12a.xml", file + file + "3.xml", file + "x" + file + "4.xml", file + "5.xml " + file + "6.xml", file + " 8.xml", file + "-9.xml", "droid_signaturefile_v1.xml",
	} {
		want := value[int](a, `SELECT coalesce(substring($1 FROM 'DROID_SignatureFile_V([0-9]{1,6})[.]')::integer, 0)`, version)
		if got := value[int](a, `SELECT signature_number($1)`, version); got != want {
			t.Errorf("%q is number %d, want %d", version, got, want)
		}
	}
}
