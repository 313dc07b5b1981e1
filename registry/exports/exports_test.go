package exports_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// archive is a registry with two institutions, whose identifiers begin alike.
type archive struct {
	*registry.Registry
	t     testing.TB
	db    *pgxpool.Pool
	test  record.Institution
	other record.Institution
}

func newArchive(t testing.TB) *archive {
	t.Helper()
	db := testenv.Database(t)
	a := &archive{Registry: registry.New(db), t: t, db: db}
	add := func(identifier string) record.Institution {
		return must.Get(a.AddInstitution(context.Background(), record.Institution{Name: identifier, Identifier: identifier, ReceivingBucket: "in." + identifier, RestoreBucket: "out." + identifier}))(t)
	}
	a.test, a.other = add("test.edu"), add("test.education.edu")
	return a
}

func (a *archive) exec(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.db.Exec(context.Background(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

// object records an object of n files, each with a copy, two digests and two events; the
// object has an event of its own.
func (a *archive) object(in record.Institution, name string, n int) {
	a.t.Helper()
	a.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag)
		VALUES ($1, $2 || '/' || $3, 'A bag', $3, 'p', 'e')`, in.ID, in.Identifier, name)
	a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT o.institution_id, o.id, o.identifier || '/data/' || to_char(n, 'FM00000') || '.txt', gen_random_uuid(), 'text/plain', n, 'Standard', now()
		FROM intellectual_objects o CROSS JOIN generate_series(1, $2) n WHERE o.identifier = $1`, in.Identifier+"/"+name, n)
	of := `FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id WHERE o.identifier = $1`
	key := in.Identifier + "/" + name
	a.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at) SELECT f.id, 'https://x/' || f.uuid, 'Standard-VA', 'b', f.uuid, now(), now() `+of, key)
	a.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT f.id, 'sha256', encode(sha256(f.identifier::bytea), 'hex'), now() `+of, key)
	a.exec(`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT f.id, 'md5', md5(f.identifier), now() `+of, key)
	for _, kind := range []string{"ingestion", "identifier assignment"} {
		a.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, generic_file_id, identifier, event_type, date_time, detail, outcome, outcome_detail,
			outcome_information, object, agent) SELECT f.institution_id, o.id, f.id, gen_random_uuid(), $2, now(), 'd', 'Success', 'x', 'i', 'Farol', 'https://farol' `+of, key, kind)
	}
	a.exec(`INSERT INTO premis_events (institution_id, intellectual_object_id, identifier, event_type, date_time, detail, outcome, outcome_detail,
		outcome_information, object, agent) SELECT institution_id, id, gen_random_uuid(), 'ingestion', now(), 'd', 'Success', 'x', 'i', 'Another', 'a'
		FROM intellectual_objects WHERE identifier = $1`, key)
}

// written is an export as a command writes it.
func (a *archive) written(s registry.Scope, kind exports.Kind, institution, object string) string {
	a.t.Helper()
	records := exports.In(a.Registry, s)
	of := must.Get(records.Find(a.t.Context(), kind, institution, object))(a.t)
	var b bytes.Buffer
	must.Do(a.t, records.Snapshot(a.t.Context(), "", func(ctx context.Context, s *exports.Snapshot) error {
		_, err := s.WriteAll(ctx, &b, of)
		return err
	}))
	return b.String()
}

// Each kind has every record of its object or institution once, over pages, and none of
// another whose identifier begins alike.
func TestExportsAreWhole(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 2100) // three pages
	a.object(a.test, "bag2", 3)
	a.object(a.other, "bag", 4)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/bag/data/00007.txt'`)
	everything := registry.Everything()
	for _, c := range []struct {
		institution, object                   string
		objects, files, active, events, first int
	}{
		{"test.edu", "", 2, 2103, 2102, 4208, 2102},
		{"", "test.edu/bag", 1, 2100, 2099, 4201, 2099},
		{"", "test.edu/bag2", 1, 3, 3, 7, 3},
		{"test.education.edu", "", 1, 4, 4, 9, 4},
	} {
		rows, err := csv.NewReader(strings.NewReader(a.written(everything, exports.Inventory, c.institution, c.object))).ReadAll()
		if err != nil || len(rows) != c.active+1 || rows[0][0] != "identifier" {
			t.Errorf("%+v: %d rows, %v", c, len(rows), err)
		}
		seen := map[string]bool{}
		for _, row := range rows[1:] {
			if seen[row[0]] || !strings.HasPrefix(row[0], c.institution+c.object+"/") || row[5] != fmt.Sprintf("%x", sha256.Sum256([]byte(row[0]))) || row[8] != "Standard-VA" {
				t.Errorf("%+v: row %q", c, row)
			}
			seen[row[0]] = true
		}
		manifest := strings.Split(strings.TrimSuffix(a.written(everything, exports.Manifest, c.institution, c.object), "\n"), "\n")
		if len(manifest) != c.active || !slices.IsSortedFunc(manifest, func(x, y string) int { return strings.Compare(x[64:], y[64:]) }) {
			t.Errorf("%+v: %d lines in the manifest", c, len(manifest))
		}
		for _, line := range manifest {
			digest, path, _ := strings.Cut(line, "  ")
			if digest != fmt.Sprintf("%x", sha256.Sum256([]byte(c.institution+c.object+"/"+path))) {
				t.Fatalf("%+v: %q", c, line)
			}
		}
		if lines := strings.Count(a.written(everything, exports.Events, c.institution, c.object), "\n"); lines != c.events {
			t.Errorf("%+v: %d events", c, lines)
		}
		var doc struct {
			Objects []struct{} `xml:"object"`
			Events  []struct{} `xml:"event"`
			Agents  []string   `xml:"agent>agentName"`
		}
		must.Do(t, xml.Unmarshal([]byte(a.written(everything, exports.PREMIS, c.institution, c.object)), &doc))
		if len(doc.Objects) != c.objects+c.files || len(doc.Events) != c.events || !slices.Equal(doc.Agents, []string{"Another", "Farol"}) {
			t.Errorf("%+v: PREMIS has %d objects, %d events, agents %q", c, len(doc.Objects), len(doc.Events), doc.Agents)
		}
	}
}

// The pack of an object has each of the others, and says what is in it.
func TestEvidencePack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 3)
	a.object(a.test, "bag2", 1)
	a.exec(`INSERT INTO fixity_failures (generic_file_id, storage_record_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at)
		SELECT f.id, s.id, s.target, 'AWS', s.url, 'altered', 'sha256', 'aa', 'bb', now(), now() FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id`)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		VALUES ($1, 'Ingest', 'Receive', 'bag.tar', 'in', 'e', 7, now()), ($1, 'Ingest', 'Receive', 'bag2.tar', 'in', 'e', 7, now())`, a.test.ID)
	text := a.written(registry.Everything(), exports.Evidence, "", "test.edu/bag")
	z := must.Get(zip.NewReader(strings.NewReader(text), int64(len(text))))(t)
	files := map[string]string{}
	for _, f := range z.File {
		r := must.Get(f.Open())(t)
		content := must.Get(io.ReadAll(r))(t)
		files[f.Name] = string(content)
	}
	for name, count := range map[string]int{
		"object.json": 1, "inventory.csv": 4, "manifest-sha256.txt": 3, "events.jsonl": 7, "bad-copies.jsonl": 3, "deletion-receipts.jsonl": 0, "work-items.jsonl": 1, "sha256sums.txt": 8,
	} {
		if n := strings.Count(files[name], "\n"); n != count {
			t.Errorf("%s has %d lines, want %d: %s", name, n, count, files[name])
		}
	}
	if len(files) != 9 || !strings.HasSuffix(files["premis.xml"], "</premis>\n") || strings.Contains(text, "bag2") {
		t.Errorf("files: %d", len(files))
	}
	for line := range strings.Lines(files["sha256sums.txt"]) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if fmt.Sprintf("%x", sha256.Sum256([]byte(files[name]))) != digest {
			t.Errorf("%s is not what sha256sums.txt says", name)
		}
	}
	for _, name := range []string{"events.jsonl", "work-items.jsonl", "bad-copies.jsonl"} {
		for line := range strings.Lines(files[name]) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// An export that goes on in other snapshots has each record that was there all the time,
// once.
func TestExportGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 2100)
	records := exports.In(a.Registry, registry.Everything())
	for _, kind := range []exports.Kind{exports.Inventory, exports.Manifest, exports.Events, exports.PREMIS} {
		of := must.Get(records.Find(t.Context(), kind, "test.edu", ""))(t)
		var b bytes.Buffer
		pages := 0
		for c := (exports.Cursor{}); !c.Done; pages++ {
			text, err := json.Marshal(c) // as it is kept between two processes
			if err == nil {
				c = exports.Cursor{}
				err = json.Unmarshal(text, &c)
			}
			if err == nil {
				err = records.Snapshot(t.Context(), "", func(ctx context.Context, s *exports.Snapshot) error {
					c, err = s.Write(ctx, &b, of, c)
					return err
				})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if whole := a.written(registry.Everything(), kind, "test.edu", ""); pages < 4 || b.String() != whole {
			t.Errorf("%s: %d pages, %d bytes, want %d", kind, pages, b.Len(), len(whole))
		}
	}
}

// What is written is of one moment: what is recorded in between is not in it.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 1500)
	records := exports.In(a.Registry, registry.Everything())
	of := must.Get(records.Find(t.Context(), exports.Inventory, "test.edu", ""))(t)
	var b bytes.Buffer
	err := records.Snapshot(t.Context(), "", func(ctx context.Context, s *exports.Snapshot) error {
		c, err := s.Write(ctx, &b, of, exports.Cursor{})
		if _, err := a.db.Exec(ctx, `UPDATE generic_files SET state = 'D'`); err != nil {
			t.Error(err)
		}
		for err == nil && !c.Done {
			c, err = s.Write(ctx, &b, of, c)
		}
		if _, err := s.WriteAll(ctx, io.Discard, exports.Of{Kind: exports.Inventory, Identifier: "nobody.edu"}); err != nil {
			t.Error(err)
		}
		return err
	})
	if rows := strings.Count(b.String(), "\n"); err != nil || rows != 1501 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// A caller has two exports at once, however many processes there are; the third is told to
// wait, and one that has ended makes place.
func TestTwoExportsAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	records := exports.In(a.Registry, registry.Everything())
	nothing := func(context.Context, *exports.Snapshot) error { return nil }
	err := records.Snapshot(t.Context(), "user 1", func(ctx context.Context, _ *exports.Snapshot) error {
		return records.Snapshot(ctx, "user 1", func(ctx context.Context, _ *exports.Snapshot) error {
			if err := records.Snapshot(ctx, "user 1", nothing); !errors.Is(err, exports.ErrTooMany) {
				t.Errorf("the third: %v", err)
			}
			return errors.Join(records.Snapshot(ctx, "user 2", nothing), records.Snapshot(ctx, "", nothing))
		})
	})
	if err := errors.Join(err, records.Snapshot(t.Context(), "user 1", nothing)); err != nil {
		t.Error(err)
	}
}

// What is not in the scope is as if it were not.
func TestExportsAreOfTheScope(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 1)
	a.object(a.other, "bag", 1)
	for _, s := range []registry.Scope{registry.Only(a.other), {}} {
		records := exports.In(a.Registry, s)
		for _, of := range [][2]string{{"test.edu", ""}, {"", "test.edu/bag"}, {"nobody.edu", ""}, {"", "test.edu/nothing"}} {
			if _, err := records.Find(t.Context(), exports.Inventory, of[0], of[1]); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("%q: %v", of, err)
			}
		}
	}
	everything := exports.In(a.Registry, registry.Everything())
	of := must.Get(everything.Find(t.Context(), exports.Inventory, "", "test.edu/bag"))(t)
	id := must.Get(everything.Make(t.Context(), of))(t)
	if r, again, err := everything.Show(t.Context(), id, exports.Kinds()); err != nil || again != of || r.Object == nil || r.CompletedAt != nil {
		t.Errorf("%+v, %+v, %v", r, again, err)
	}
	if _, _, err := exports.In(a.Registry, registry.Only(a.other)).Show(t.Context(), id, exports.Kinds()); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("of another: %v", err)
	}
	if _, _, err := everything.Show(t.Context(), id, []exports.Kind{exports.Manifest}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("of another kind: %v", err)
	}
	if _, err := everything.Find(t.Context(), exports.Evidence, "test.edu", ""); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("an evidence pack of an institution: %v", err)
	}
	if n, err := everything.Files(t.Context(), exports.Of{Identifier: "test.edu", Institution: a.test.ID}, 5); n != 1 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
}

// A name may be anything: no line of an inventory or a manifest is two.
func TestNamesAreOneLine(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object(a.test, "bag", 1)
	const name = "test.edu/bag/data/a\r\nb%41\"=,\x7f漢\u202e"
	a.exec(`UPDATE generic_files SET identifier = $1`, name)
	if text := a.written(registry.Everything(), exports.Manifest, "", "test.edu/bag"); strings.Count(text, "\n") != 1 || !strings.Contains(text, "  data/a%0D%0Ab%2541\"=,\x7f漢") {
		t.Errorf("%q", text)
	}
	rows, err := csv.NewReader(strings.NewReader(a.written(registry.Everything(), exports.Inventory, "", "test.edu/bag"))).ReadAll()
	if err != nil || len(rows) != 2 || strings.ReplaceAll(rows[1][0], "\n", "\r\n") != name {
		t.Errorf("%q, %v", rows, err)
	}
}
