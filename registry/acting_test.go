package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// signedIn is the same archive as the server for people sees it.
func (a *archive) signedIn(url string) *registry.Registry {
	a.t.Helper()
	db := must.Get(pgxpool.New(context.Background(), testenv.WebURL(a.t, url)))(a.t)
	a.t.Cleanup(db.Close)
	return registry.New(db)
}

// webArchive is an archive, and the same one through a member of farol_web.
func webArchive(t *testing.T) (*archive, *registry.Registry) {
	t.Helper()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(db.Close)
	a := &archive{registry.New(db), t, db, record.Institution{}}
	a.in = a.institution("test.edu")
	return a, a.signedIn(url)
}

var ann = registry.Actor{Name: "ann@archive.org", UserID: 7, IP: netip.MustParseAddr("192.0.2.1")} //nolint:gochecknoglobals // a constant, but for Go

// Whatever is changed in the name of a person is on record with the person.
func TestEveryRecordNamesThePersonWhoActs(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) VALUES ($1, 'Ingest', 'Receive', 'bag.tar', 'b', 'e', 1, now())`, a.in.ID)
	item := value[int64](a, `SELECT id FROM work_items`)
	must.Do(t, web.As(t.Context(), ann, func(ctx context.Context) error {
		if _, err := web.Cancel(ctx, item, ""); err != nil {
			return err
		}
		if _, err := web.Pause(ctx, registry.Store, "new disks"); err != nil {
			return err
		}
		_, _, err := web.AddToken(ctx, record.Token{Name: "t", Rights: []string{registry.RightPull}})
		return err
	}))
	for what, sql := range map[string]string{
		"the change of the item":  `SELECT actor FROM work_item_audit`,
		"the note of the item":    `SELECT substring(note FROM 'ann@archive.org') FROM work_items`,
		"the change of the stage": `SELECT DISTINCT actor FROM stage_settings_audit`,
		"the pause":               `SELECT paused_by FROM stage_settings WHERE stage = 'Store'`,
		"the token":               `SELECT created_by FROM api_tokens`,
	} {
		if got := value[string](a, sql); got != "ann@archive.org" {
			t.Errorf("%s names %q", what, got)
		}
	}
	must.Get(web.Pause(t.Context(), registry.Store, "maintenance"))(t)
	if last := value[string](a, `SELECT actor FROM stage_settings_audit ORDER BY id DESC LIMIT 1`); strings.Contains(last, "ann") {
		t.Errorf("after her transaction ann acts on: %q", last)
	}
}

// A setting can be set by anyone: it counts for members of farol_web only.
func TestSettingTheActorInPsqlGainsNothing(t *testing.T) {
	t.Parallel()
	a, _ := webArchive(t) // a superuser, who is a member of every role by right
	a.exec(`SELECT set_config('farol.actor', 'ann@archive.org', false)`)
	for _, sql := range []string{
		`SELECT acting_user() FROM set_config('farol.actor', 'ann@archive.org', true)`,
		`WITH s AS MATERIALIZED (SELECT set_config('farol.actor', 'ann@archive.org', false)) SELECT coalesce(signed_in_actor(), 'nobody') FROM s`,
	} {
		if got := value[string](a, sql); strings.Contains(got, "ann") {
			t.Errorf("%s is %q", sql, got)
		}
	}
	// Nor is it ann's action, or one of her institution, that is recorded in psql.
	user := value[int64](a, `INSERT INTO users (email, name, role, institution_id) VALUES ('eve@test.edu', 'Eve', 'institutional_user', $1) RETURNING id`, a.in.ID)
	a.exec(`SELECT note_action('users.add', 'user', '7', NULL, 'done', NULL, $1, 1)`, user)
	if n := value[int](a, `SELECT count(*) FROM actions WHERE user_id IS NULL AND token_id IS NULL AND actor_institution_id IS NULL`); n != 1 {
		t.Error("psql has recorded an action as that of ann")
	}
}

// An action is recorded with what it did, or not at all; one that is refused is recorded too.
func TestActionsAreRecordedWithWhatTheyDid(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	entry := registry.AuditEntry{
		Operation: "institutions.add", SubjectType: "institution", SubjectID: "new.edu", Detail: map[string]any{"reason": `"quoted" ` + "\u202e"},
	}
	add := func(ctx context.Context) error {
		in, err := web.AddInstitution(ctx, record.Institution{Name: "New", Identifier: "new.edu", ReceivingBucket: "in", RestoreBucket: "out"})
		entry.Institution = in.ID
		return err
	}
	must.Do(t, web.Act(t.Context(), ann, &entry, add))
	if err := web.Act(t.Context(), ann, &entry, add); !errors.Is(err, registry.ErrRefused) {
		t.Fatalf("the same institution again: %v", err)
	}
	stop := errors.New("the process stops")
	err := web.Act(t.Context(), ann, &entry, func(ctx context.Context) error {
		_, err := web.AddInstitution(ctx, record.Institution{Name: "Other", Identifier: "other.edu", ReceivingBucket: "in2", RestoreBucket: "out2"})
		return errors.Join(err, stop)
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	got := value[string](a, `SELECT string_agg(concat_ws(' ', actor, user_id, host(ip), operation, subject_id, institution_id IS NOT NULL, outcome,
		detail->>'reason' IS NOT NULL, detail ? 'why'), E'\n' ORDER BY id) FROM actions`)
	want := "ann@archive.org 7 192.0.2.1 institutions.add new.edu t done t f\nann@archive.org 7 192.0.2.1 institutions.add new.edu f refused t t"
	if got != want {
		t.Errorf("actions:\n%s\nwant:\n%s", got, want)
	}
	if n := value[int](a, `SELECT count(*) FROM institutions WHERE identifier = 'other.edu'`); n != 0 {
		t.Error("what was not recorded was done")
	}
}

// Not even a superuser changes what is recorded by mistake; the role that works cannot
// write there at all.
func TestActionsAreKept(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	must.Do(t, web.Act(t.Context(), ann, &registry.AuditEntry{Operation: "users.add"}, func(context.Context) error { return nil }))
	part := value[string](a, `SELECT tableoid::regclass::text FROM actions`)
	for _, sql := range []string{`UPDATE actions SET actor = 'x'`, `DELETE FROM actions`, `UPDATE ` + part + ` SET actor = 'x'`, `DELETE FROM ` + part} {
		if _, err := a.db.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "kept as they were recorded") {
			t.Errorf("%s: %v", sql, err)
		}
		if _, err := web.DB().Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("the server: %s: %v", sql, err)
		}
	}
	for _, table := range []string{"actions", part, "actions_rest"} {
		sql := fmt.Sprintf(`INSERT INTO %s (actor, operation, outcome) VALUES ('bob@archive.org', 'users.add', 'done')`, table)
		if _, err := web.DB().Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("the server writes for another: %v", err)
		}
	}
	if part == "actions_rest" {
		t.Error("this month has no partition")
	}
}

// The person who has signed in requests and approves for herself only, and needs no paper.
func TestSignedInPeopleDecideForThemselves(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	as := func(email string, do func(context.Context) error) error {
		return web.As(t.Context(), registry.Actor{Name: email}, do)
	}
	var d record.DeletionRequest
	request := func(ctx context.Context) (err error) {
		d, err = requests.In(web).RequestDeletion(ctx, first, []string{"test.edu/o1"})
		return err
	}
	approve := func(ctx context.Context) error {
		_, err := requests.In(web).ApproveDeletion(ctx, d.ID, second, "a paper that nobody needs")
		return err
	}
	refusedFor(t, as(second, request), "cannot act for")
	must.Do(t, as(first, request))
	refusedFor(t, as(first, approve), "cannot act for")
	must.Do(t, as(strings.ToUpper(second), approve))
	if got := value[string](a, `SELECT concat_ws(' ', requested_as, approved_as, on_paper) FROM deletion_requests`); got != first+" "+strings.ToUpper(second) {
		t.Errorf("on record: %s", got)
	}
}

// The rule of two people is the database's: no statement goes round it.
func TestTwoPeopleInTheDatabase(t *testing.T) {
	t.Parallel()
	a, _ := webArchive(t)
	a.objects(2, "Standard")
	first, second := a.twoAdmins()
	a.user("reader@test.edu", registry.RoleInstitutionalUser, "test.edu")
	a.institution("other.edu")
	a.user("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	d := must.Get(requests.In(a.Registry).RequestDeletion(t.Context(), first, []string{"test.edu/o1"}))(t)
	id := fmt.Sprint(d.ID)
	who := func(email string) string { return `(SELECT id FROM users WHERE email = '` + email + `')` }
	for _, sql := range []string{
		`UPDATE deletion_requests SET approved_by = requested_by, approved_at = now(), on_paper = 'x'`,
		`UPDATE deletion_requests SET approved_by = ` + who(second) + `, approved_at = now()`,
		`UPDATE deletion_requests SET approved_by = ` + who("reader@test.edu") + `, approved_at = now(), on_paper = 'x'`,
		`UPDATE deletion_requests SET approved_by = ` + who("admin@other.edu") + `, approved_at = now(), on_paper = 'x'`,
		`UPDATE deletion_requests SET requested_by = ` + who(second) + `, approved_by = ` + who(first) + `, approved_at = now(), on_paper = 'x'`,
		`UPDATE deletion_requests SET requested_at = now()`,
		`INSERT INTO deletion_requests (institution_id, requested_by, approved_by, approved_at, on_paper)
			SELECT institution_id, requested_by, ` + who(second) + `, now(), 'x' FROM deletion_requests`,
		`INSERT INTO deletion_requests (institution_id, requested_by) SELECT institution_id, ` + who("admin@other.edu") + ` FROM deletion_requests`,
		`INSERT INTO deletion_requests_intellectual_objects SELECT ` + id + `, id FROM intellectual_objects WHERE identifier = 'test.edu/o2'`,
		`DELETE FROM deletion_requests_intellectual_objects`,
		`UPDATE deletion_requests_intellectual_objects SET intellectual_object_id = (SELECT id FROM intellectual_objects WHERE identifier = 'test.edu/o2')`,
	} {
		if _, err := a.db.Exec(t.Context(), sql); !errors.Is(registry.Refusal(err), registry.ErrRefused) {
			t.Errorf("%s: %v, want it refused", sql, err)
		}
	}
	must.Get(requests.In(a.Registry).ApproveDeletion(t.Context(), d.ID, second, paper))(t)
	a.refuses(`UPDATE deletion_requests SET approved_by = NULL, approved_at = NULL, on_paper = NULL`, "")
	a.refuses(`UPDATE deletion_requests SET on_paper = 'another'`, "")
}

// A statement that a deadlock ends, ends its transaction: the action is done again as a
// whole, and is on record once.
func TestActionsAreRepeatedAsAWhole(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	a.exec(`CREATE SEQUENCE tries; GRANT USAGE ON SEQUENCE tries TO PUBLIC;
		CREATE FUNCTION first_deadlocks() RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('tries') = 1 THEN
				RAISE EXCEPTION 'deadlock' USING ERRCODE = 'deadlock_detected';
			END IF;
			RETURN 'done';
		END $$`)
	type row struct{ Text string }
	calls := 0
	entry := registry.AuditEntry{Operation: "tests.deadlock", SubjectType: "test"}
	list, err := registry.Acted(t.Context(), web, ann, &entry, func(ctx context.Context) ([]row, error) {
		calls++
		return registry.Collect[row](ctx, web.DB(), "try", `SELECT first_deadlocks() AS text`)
	})
	if err != nil || calls != 2 || len(list) != 1 {
		t.Errorf("%v after %d calls, %v", list, calls, err)
	}
	if n := value[int](a, `SELECT count(*) FROM actions WHERE operation = 'tests.deadlock' AND outcome = 'done'`); n != 1 {
		t.Errorf("%d are on record", n)
	}
}

// What is done in transactions of its own is on record with its end, also when it was
// interrupted, and with texts that PostgreSQL does not take.
func TestWhatHasTransactionsOfItsOwnIsNoted(t *testing.T) {
	t.Parallel()
	a, web := webArchive(t)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for _, why := range []error{nil, fmt.Errorf("apply: %w: a\x00b", registry.ErrRefused), context.Canceled} {
		entry := registry.AuditEntry{Operation: "plans.apply", SubjectType: "plan", SubjectID: "7\x00", Detail: map[string]any{"a\x00": []string{"b\x00"}}}
		if err := web.Noted(stopped, ann, entry, why); !errors.Is(err, why) || why != nil && err.Error() != why.Error() {
			t.Errorf("%v, want %v", err, why)
		}
	}
	got := value[string](a, `SELECT string_agg(concat_ws(' ', outcome, actor, subject_id, detail->>'why', detail->>E'a\uFFFD'), '; ' ORDER BY id) FROM actions WHERE operation = 'plans.apply'`)
	want := "done ann@archive.org 7\uFFFD [\"b\uFFFD\"]; refused ann@archive.org 7\uFFFD apply: refused: a\uFFFDb [\"b\uFFFD\"]; done ann@archive.org 7\uFFFD context canceled [\"b\uFFFD\"]"
	if got != want {
		t.Errorf("on record: %s\nwant %s", got, want)
	}
}
