package reports_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/reports"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// archive is a registry with three institutions: a parent, its subscriber, and another.
type archive struct {
	reports.Records
	t  *testing.T
	db *pgxpool.Pool
	in map[string]record.Institution
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	db := testenv.Database(t)
	r := registry.New(db)
	a := &archive{reports.In(r), t, db, map[string]record.Institution{}}
	for _, name := range []string{"parent.edu", "sub.edu", "other.edu"} {
		in := must.Get(r.AddInstitution(t.Context(), record.Institution{Name: name, Identifier: name, ReceivingBucket: "in." + name, RestoreBucket: "out." + name}))(t)
		a.in[name] = in
	}
	a.exec(`UPDATE institutions SET type = 'SubscriptionInstitution', member_institution_id = $1 WHERE identifier = 'sub.edu'`, a.in["parent.edu"].ID)
	return a
}

func (a *archive) exec(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.db.Exec(context.Background(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](a *archive, sql string, args ...any) (v T) {
	a.t.Helper()
	if err := a.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// object records an object with files of these sizes, and returns its ID.
func (a *archive) object(institution, name, option string, sizes ...int) int64 {
	a.t.Helper()
	id := value[int64](a, `INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, storage_option)
		VALUES ($1, $2, 'A title', $3, 'x', 'e', $4) RETURNING id`, a.in[institution].ID, institution+"/"+name, name, option)
	for i, size := range sizes {
		a.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
			VALUES ($1, $2, $3, gen_random_uuid(), 'text/plain', $4, $5, now())`, a.in[institution].ID, id, fmt.Sprintf("%s/%s/data/%d", institution, name, i), size, option)
	}
	return id
}

func (a *archive) count(all bool) record.Counted {
	a.t.Helper()
	return must.Get(a.Count(a.t.Context(), all))(a.t)
}

// rows are the rows of both tables, as text.
func (a *archive) rows() string {
	a.t.Helper()
	return value[string](a, `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
		SELECT 'holds ' || d::text AS line FROM holdings_daily d WHERE day = (now() AT TIME ZONE 'UTC')::date
		UNION ALL SELECT 'ended ' || o::text FROM daily_outcomes o) l`)
}

// deposits are the rows of a report as text.
func (a *archive) deposits(s registry.Scope, by reports.Grouping, institution, on string) string {
	a.t.Helper()
	list := must.Get(a.Deposits(a.t.Context(), s, reports.DepositQuery{By: by, Institution: institution, Months: 12, On: on}))(a.t)
	var lines []string
	for _, d := range list {
		lines = append(lines, fmt.Sprintf("%s %d %d %d", d.Key, d.Objects, d.Files, d.Bytes))
	}
	return strings.Join(lines, "; ")
}

// item puts an item into the queue that has ended.
func (a *archive) item(institution, action, status string, size int, ago time.Duration) int64 {
	a.t.Helper()
	id := value[int64](a, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier)
		VALUES ($1, $2::text, CASE $2::text WHEN 'Ingest' THEN 'Receive' ELSE 'Requested' END, $3, 'b', 'e', $4, now(), $5) RETURNING id`,
		a.in[institution].ID, action, fmt.Sprintf("%d.tar", rand.Int64()), size, institution+"/x"+fmt.Sprint(rand.Int64()))
	testenv.Scene(a.t, a.db, `UPDATE work_items SET status = $2::text, retry = false, stage = CASE WHEN $2::text = 'Success' THEN CASE action WHEN 'Ingest' THEN 'Cleanup' ELSE 'Resolve' END ELSE stage END,
		updated_at = now() - $3::interval WHERE id = $1`, id, status, ago)
	return id
}

// A report has what is in storage, and each institution sees its own sums and those of its
// subscribers.
func TestDepositsAreOfTheScope(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object("parent.edu", "one", "Standard", 10, 20)
	a.object("sub.edu", "two", "Standard", 5)
	a.object("sub.edu", "three", "Glacier-VA")
	gone := a.object("other.edu", "gone", "Standard", 1000)
	a.object("other.edu", "four", "Standard", 100, 200, 300)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE size = 300 OR intellectual_object_id = $1`, gone)
	a.exec(`UPDATE intellectual_objects SET state = 'D' WHERE id = $1`, gone)
	a.count(false)
	everything, parent, sub, other := registry.Everything(), registry.Only(a.in["parent.edu"]), registry.Only(a.in["sub.edu"]), registry.Only(a.in["other.edu"])
	month := time.Now().UTC().Format("2006-01")
	for _, c := range []struct {
		s           registry.Scope
		by          reports.Grouping
		institution string
		want        string
	}{
		{everything, reports.ByInstitution, "", "other.edu 1 2 300; parent.edu 1 2 30; sub.edu 2 1 5"},
		{everything, reports.ByOption, "", "Glacier-VA 1 0 0; Standard 3 5 335"},
		{everything, reports.ByMonth, "", month + " 4 5 335"},
		{everything, reports.ByInstitution, "other.edu", "other.edu 1 2 300"},
		{parent, reports.ByInstitution, "", "parent.edu 1 2 30; sub.edu 2 1 5"},
		{parent, reports.ByOption, "", "Glacier-VA 1 0 0; Standard 2 3 35"},
		{parent, reports.ByMonth, "sub.edu", month + " 2 1 5"},
		{parent, reports.ByInstitution, "other.edu", ""},
		{sub, reports.ByInstitution, "", "sub.edu 2 1 5"},
		{sub, reports.ByInstitution, "parent.edu", ""},
		{other, reports.ByOption, "", "Standard 1 2 300"},
		{registry.Scope{}, reports.ByInstitution, "", ""},
		{registry.Scope{}, reports.ByMonth, "", ""},
	} {
		if got := a.deposits(c.s, c.by, c.institution, ""); got != c.want {
			t.Errorf("by %s of %q: %s, want %s", c.by, c.institution, got, c.want)
		}
	}
	if list, err := a.Deposits(t.Context(), everything, reports.DepositQuery{By: reports.ByAction, Months: 1}); err == nil {
		t.Errorf("deposits by action: %v", list)
	}
	if list, err := a.Outcomes(t.Context(), everything, reports.ByMonth, "", "2026-01-01", "2026-01-02"); err == nil {
		t.Errorf("outcomes by month: %v", list)
	}
}

// A report of a day in the past has what was counted last until then, and never what came later.
func TestDepositsOnADay(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object("sub.edu", "one", "Standard", 10)
	a.count(false)
	for n, day := range []string{"2026-01-31", "2026-02-03", "2026-02-27"} {
		a.exec(`INSERT INTO holdings_daily SELECT $1::date, institution_id, storage_option, $2, $2, $2 FROM holdings_daily ORDER BY day DESC LIMIT 1`, day, 100*(n+1))
	}
	for _, c := range []struct {
		by       reports.Grouping
		on, want string
	}{
		{reports.ByInstitution, "2026-01-30", ""},
		{reports.ByInstitution, "2026-01-31", "sub.edu 100 100 100"},
		{reports.ByOption, "2026-02-02", "Standard 100 100 100"},
		{reports.ByInstitution, "2026-02-03", "sub.edu 200 200 200"},
		{reports.ByInstitution, "2026-05-05", "sub.edu 300 300 300"},
		{reports.ByInstitution, "", "sub.edu 1 1 10"},
		{reports.ByMonth, "2026-02-26", "2026-01 100 100 100; 2026-02 200 200 200"},
		{reports.ByMonth, "2026-02-28", "2026-01 100 100 100; 2026-02 300 300 300"},
	} {
		if got := a.deposits(registry.Everything(), c.by, "", c.on); got != c.want {
			t.Errorf("by %s on %q: %s, want %s", c.by, c.on, got, c.want)
		}
	}
}

// What was counted from changes is what a count of everything finds, whatever happened in
// between, however often a count was repeated.
func TestCountingChangesIsCountingEverything(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	names, options := []string{"parent.edu", "sub.edu", "other.edu"}, []string{"Standard", "Wasabi-OR", "Glacier-Deep-OH"}
	a.object("sub.edu", "kept", "Standard", 5)
	var objects []int64
	for step := range 40 {
		in := names[rand.IntN(len(names))]
		switch rand.IntN(6) {
		case 0, 1:
			objects = append(objects, a.object(in, fmt.Sprint("bag", step), options[rand.IntN(3)], rand.IntN(1000), rand.IntN(1000)))
		case 2: // an ingest ended
			a.item(in, "Ingest", []string{"Success", "Cancelled", "Failed", "Suspended"}[rand.IntN(4)], rand.IntN(1000), time.Duration(rand.IntN(24))*time.Hour)
		case 3: // a parked item is requeued, and succeeds
			testenv.Scene(t, a.db, `UPDATE work_items SET status = 'Success', stage = 'Cleanup', updated_at = now() WHERE id = (SELECT min(id) FROM work_items WHERE status IN ('Failed', 'Suspended'))`)
		case 4: // an item deleted a file of an object, and did not write the object
			if len(objects) == 0 {
				continue
			}
			o := objects[rand.IntN(len(objects))]
			item := a.item(in, "Restore Object", "Success", 1, 0)
			testenv.Scene(t, a.db, `UPDATE work_items SET action = 'Delete', intellectual_object_id = $2, institution_id = (SELECT institution_id FROM intellectual_objects WHERE id = $2) WHERE id = $1`, item, o)
			a.exec(`UPDATE generic_files SET state = 'D', updated_at = now() WHERE id = (SELECT min(id) FROM generic_files WHERE intellectual_object_id = $1 AND state = 'A')`, o)
		case 5: // an object was deleted
			if len(objects) > 0 {
				a.exec(`UPDATE intellectual_objects SET state = 'D', updated_at = now() WHERE id = $1`, objects[0])
				objects = objects[1:]
			}
		}
		if rand.IntN(2) == 0 {
			a.count(false)
		}
	}
	a.count(false)
	changes := a.rows()
	if again := a.count(false); again.Since == nil || a.rows() != changes {
		t.Errorf("a second count: %+v\n%s\nafter\n%s", again, a.rows(), changes)
	}
	if all := a.count(true); all.Since != nil || a.rows() != changes {
		t.Errorf("everything: %+v\n%s\nfrom changes:\n%s", all, a.rows(), changes)
	}
}

// counts are the figures of objects that are wrong, as text.
func (a *archive) wrong() string {
	a.t.Helper()
	return value[string](a, `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
		SELECT format('object %s has %s, and is said to have %s', o.id, n, h) FROM intellectual_objects o CROSS JOIN LATERAL (
			SELECT count(*), coalesce(sum(size), 0), count(*) FILTER (WHERE starts_with(f.identifier, o.identifier || '/data/')),
				coalesce(sum(size) FILTER (WHERE starts_with(f.identifier, o.identifier || '/data/')), 0)
			FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A') n (files, bytes, payload_files, payload_bytes)
		LEFT JOIN object_holdings h ON h.intellectual_object_id = o.id
		WHERE (n.files, n.bytes, n.payload_files, n.payload_bytes) <> (coalesce(h.files, 0), coalesce(h.bytes, 0), coalesce(h.payload_files, 0), coalesce(h.payload_bytes, 0))) w (line)`)
}

// Whatever statement changes files, the figures of their objects are those of the files
// afterwards.
func TestFilesAreCountedWhateverChangesThem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for i := range 4 {
		a.object("sub.edu", fmt.Sprint("bag", i), "Standard")
	}
	const add = `INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, state, storage_option, last_fixity_check)
		SELECT o.institution_id, o.id, o.identifier || (ARRAY['/data/', '/', '/data', '/tags/data/'])[1 + n % 4] || n, gen_random_uuid(), 'text/plain', n * 7 % 100, (ARRAY['A', 'A', 'D'])[1 + n % 3], o.storage_option, now()
		FROM intellectual_objects o, generate_series($1::int, $1::int + $2::int) n WHERE o.id % 3 <> $2::int % 3 OR $2::int % 3 = 0
		ON CONFLICT (identifier) DO UPDATE SET size = excluded.size + 1, state = 'A'`
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		n := r.IntN(50)
		switch r.IntN(8) {
		case 0, 1, 2:
			a.exec(add, n, r.IntN(20))
		case 3:
			a.exec(`UPDATE generic_files SET state = 'D' WHERE id % 5 = $1::int % 5`, n)
		case 4:
			a.exec(`UPDATE generic_files SET state = CASE state WHEN 'A' THEN 'D' ELSE 'A' END, size = size + $1::int WHERE id % 3 = $1::int % 3`, n)
		case 5:
			a.exec(`UPDATE generic_files SET last_fixity_check = now(), updated_at = now()`)
		case 6:
			a.exec(`DELETE FROM generic_files WHERE id % 11 = $1::int % 11`, n)
		case 7:
			a.exec(`UPDATE generic_files SET identifier = replace(identifier, '/data/', '/' || gen_random_uuid() || '/') WHERE id % 7 = $1::int % 7`, n)
		}
		if wrong := a.wrong(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM generic_files WHERE state = 'A' AND identifier LIKE '%/data/%'`); n < 10 {
		t.Errorf("only %d files are there", n)
	}
}

// A statement that changes nothing that is counted waits for nobody who records.
func TestWhatIsNotCountedLocksNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.object("sub.edu", "bag", "Standard", 1, 2, 3)
	tx := must.Get(a.db.Begin(t.Context()))(t)
	t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // nothing is to stay
	must.Get(tx.Exec(t.Context(), `SELECT FROM object_holdings WHERE intellectual_object_id = $1 FOR UPDATE`, id))(t)
	a.exec(`SET lock_timeout = '5s'; UPDATE generic_files SET last_fixity_check = now(), format_puid = 'fmt/1'; RESET lock_timeout`)
}

// All is counted again while files are recorded and deleted, and figures that were changed by
// hand are corrected.
func TestAllIsCountedAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const objects = 250
	for i := range objects {
		a.object("sub.edu", fmt.Sprint("bag", i), "Standard", 1, 2)
	}
	a.exec(`UPDATE object_holdings SET files = 7, bytes = 9, payload_files = 3 WHERE intellectual_object_id % 2 = 0`)
	a.exec(`DELETE FROM object_holdings WHERE intellectual_object_id % 5 = 1`)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprint("/data/", w, " ", n)
				for _, sql := range []string{
					`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
						SELECT institution_id, id, identifier || $1, gen_random_uuid(), 'text/plain', 5, storage_option, now() FROM intellectual_objects WHERE id % 50 = $2::int % 50`,
					`UPDATE generic_files f SET state = 'D' FROM intellectual_objects o WHERE f.identifier = o.identifier || $1 AND o.id % 100 = $2::int % 100`,
				} {
					if _, err := a.db.Exec(context.Background(), sql, name, n); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	corrected := a.count(true).Corrected
	again := a.count(true)
	close(stop)
	writers.Wait()
	if wrong := a.wrong(); wrong != "" {
		t.Error(wrong)
	}
	if corrected < objects/2 || again.Objects != objects || again.Corrected != 0 {
		t.Errorf("corrected %d; then %+v", corrected, again)
	}
}

// What an institution had yesterday and has no longer is zero today, and nothing is said of
// it from then on.
func TestWhatIsGoneIsZero(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.object("sub.edu", "one", "Standard", 7)
	a.count(false)
	a.exec(`UPDATE holdings_daily SET day = day - 1`)
	a.exec(`UPDATE intellectual_objects SET state = 'D', updated_at = now() WHERE id = $1`, id)
	a.count(false)
	a.count(false)
	if got := a.deposits(registry.Everything(), reports.ByInstitution, "", ""); got != "sub.edu 0 0 0" {
		t.Error(got)
	}
	a.exec(`UPDATE holdings_daily SET day = day - 1`)
	a.count(false)
	if n := value[int](a, `SELECT count(*) FROM holdings_daily`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// Costs are of the mean of the days that were counted, less what is included.
func TestCosts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`UPDATE storage_options SET per_gib_month = 0.5, included_tib = 0.001 WHERE name = 'Standard'`)
	a.exec(`UPDATE storage_options SET per_gib_month = 1 WHERE name = 'Glacier-VA'`)
	const gib = 1 << 30
	for _, row := range []struct {
		day, in, option string
		bytes           int64
	}{
		{"2026-03-01", "sub.edu", "Standard", 2 * gib},
		{"2026-03-02", "sub.edu", "Standard", 4 * gib},
		{"2026-03-02", "sub.edu", "Glacier-VA", 3 * gib}, // nothing the day before
		{"2026-03-02", "other.edu", "Wasabi-OR", 1},
		{"2026-03-31", "other.edu", "Standard", gib}, // less than is included
		{"2026-04-01", "sub.edu", "Standard", 100 * gib},
	} {
		a.exec(`INSERT INTO holdings_daily VALUES ($1::text::date, $2, $3, 1, 1, $4)`, row.day, a.in[row.in].ID, row.option, row.bytes)
	}
	costs := func(s registry.Scope, institution string) (lines []string) {
		list := must.Get(a.Costs(t.Context(), s, institution, "2026-03-01"))(t)
		for _, c := range list {
			cost := "none"
			if c.Cost != nil {
				cost = *c.Cost
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %d %s", c.Institution, c.StorageOption, c.Days, c.Bytes, cost))
		}
		return lines
	}
	// (2 + 4 + 0) / 3 GiB less 1.024 GiB at 0.5, and 1 GiB at 1.
	want := []string{"other.edu Standard 3 357913941 0.00", "other.edu Wasabi-OR 3 0 none", "sub.edu Glacier-VA 3 1073741824 1.00", "sub.edu Standard 3 2147483648 0.49"}
	if got := costs(registry.Everything(), ""); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := costs(registry.Only(a.in["parent.edu"]), ""); !slices.Equal(got, want[2:]) {
		t.Errorf("the parent: %q", got)
	}
	if got := costs(registry.Only(a.in["other.edu"]), "sub.edu"); len(got) != 0 {
		t.Errorf("another: %q", got)
	}
}

// An item counts once, as it ended last, in the queue and in the archive.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.object("other.edu", "x", "Standard") // with which there is a first count
	a.item("sub.edu", "Ingest", "Success", 10, 0)
	a.item("sub.edu", "Ingest", "Success", 5, 0)
	parked := a.item("sub.edu", "Ingest", "Failed", 3, 120*time.Hour)
	a.item("other.edu", "Restore Object", "Cancelled", 7, 0)
	a.count(false)
	testenv.Scene(t, a.db, `UPDATE work_items SET status = 'Success', stage = 'Cleanup', updated_at = now() WHERE id = $1`, parked)
	testenv.Scene(t, a.db, `INSERT INTO work_items_archive SELECT * FROM work_items WHERE size = 10`)
	testenv.Scene(t, a.db, `DELETE FROM work_items WHERE size = 10`)
	a.count(false)
	today := time.Now().UTC()
	outcomes := func(s registry.Scope, by reports.Grouping, institution string) (lines []string) {
		list := must.Get(a.Outcomes(t.Context(), s, by, institution, today.AddDate(0, 0, -1).Format(time.DateOnly), today.Format(time.DateOnly)))(t)
		for _, o := range list {
			lines = append(lines, fmt.Sprintf("%s %s %d %d", o.Key, o.Result, o.Items, o.Bytes))
		}
		return lines
	}
	for _, c := range []struct {
		s    registry.Scope
		by   reports.Grouping
		in   string
		want string
	}{
		{registry.Everything(), reports.ByAction, "", "Ingest Success 3 18; Restore Object Cancelled 1 7"},
		{registry.Everything(), reports.ByInstitution, "", "other.edu Cancelled 1 7; sub.edu Success 3 18"},
		{registry.Only(a.in["parent.edu"]), reports.ByAction, "", "Ingest Success 3 18"},
		{registry.Only(a.in["other.edu"]), reports.ByAction, "sub.edu", ""},
		{registry.Scope{}, reports.ByDay, "", ""},
	} {
		if got := strings.Join(outcomes(c.s, c.by, c.in), "; "); got != c.want {
			t.Errorf("by %s of %q: %s, want %s", c.by, c.in, got, c.want)
		}
	}
	if n := value[int](a, `SELECT count(*) FROM daily_outcomes WHERE result = 'Failed'`); n != 0 {
		t.Errorf("%d rows say that the item which was requeued failed", n)
	}
	if got := outcomes(registry.Everything(), reports.ByDay, "sub.edu"); len(got) != 1 || !strings.HasSuffix(got[0], " Success 3 18") {
		t.Errorf("by day: %q", got)
	}
}
