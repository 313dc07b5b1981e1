package registry_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

func (a *archive) status() record.FixityStatus {
	a.t.Helper()
	return must.Get(fixity.In(a.Registry).Status(context.Background(), fixity.StatusQuery{Days: 90, Tries: 3, Worst: 4}))(a.t)
}

func (a *archive) target(s record.FixityStatus, name string) record.FixityTarget {
	a.t.Helper()
	i := slices.IndexFunc(s.Targets, func(t record.FixityTarget) bool { return t.Target == name })
	if i < 0 {
		a.t.Fatalf("no target %s in %+v", name, s)
	}
	return s.Targets[i]
}

// The figures are those of the rows, and what nobody promised is no breach.
func TestStatusCountsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(10)
	a.exec(`UPDATE fixity_policies SET mode = 'report', interval_days = 365 WHERE target = 'Standard-OR'`)
	for path, ago := range map[string]time.Duration{"0": 100 * day, "1": 95 * day, "2": 200 * day, "3": 89 * day} {
		a.checked(path, "Standard-VA", ago)
	}
	a.checked("5", "Standard-OR", 400*day)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/9'`)
	list := a.claims(fixity.Claim{Most: 3})
	for range 3 {
		must.Get(fixity.In(a.Registry).Retry(t.Context(), fixity.Trouble{Hold: hold(list[1]), Error: "no answer"}))(t)
		a.exec(`UPDATE fixity_checks SET worker = 'w' WHERE storage_record_id = $1`, list[1].ID)
	}
	a.exec(`UPDATE fixity_checks SET worker = '' WHERE storage_record_id = $1`, list[1].ID)
	bad := matching(list[2])
	bad.Found, bad.Bytes = strings.Repeat("0", 64), 1000
	a.recorded(bad)

	s := a.status()
	va, or, wasabi := a.target(s, "Standard-VA"), a.target(s, "Standard-OR"), a.target(s, "Wasabi-VA")
	if va.Copies != 9 || va.Overdue != 2 || va.Running != 1 || va.Waiting != 1 || va.Stuck != 1 || va.Bad != 1 || va.Days != 90 || !va.ByDefault ||
		va.Checks24h != 1 || va.Bytes24h != 1000 || *va.Compliance < 66 || *va.Compliance > 67 || va.Oldest == nil || time.Since(*va.Oldest) < 199*day || va.PausedUntil != nil {
		t.Errorf("Standard-VA %+v", va)
	}
	if or.Copies != 9 || or.Overdue != 1 || or.Mode != "report" || or.Days != 365 || or.ByDefault {
		t.Errorf("Standard-OR %+v", or)
	}
	if wasabi.Copies != 0 || wasabi.Compliance != nil || wasabi.Oldest != nil {
		t.Errorf("Wasabi-VA %+v", wasabi)
	}
	if s.Copies != 18 || s.Overdue != 3 || s.Bad != 1 || s.Stuck != 1 || s.Checks24h != 1 || *s.Compliance < 77 || *s.Compliance > 78 {
		t.Errorf("in all %+v", s)
	}
	var worst []string
	for _, c := range s.Worst {
		worst = append(worst, strings.TrimPrefix(c.File, "test.edu/bag/data/")+" "+c.Target+" "+c.Late.Round(day).String()+" "+c.Error)
	}
	want := []string{"2 Standard-VA 2640h0m0s ", "5 Standard-OR 840h0m0s ", "0 Standard-VA 240h0m0s no answer"}
	if !slices.Equal(worst, want) {
		t.Errorf("worst %q, want %q", worst, want)
	}
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	if s := a.status(); s.Copies != 9 || s.Overdue != 2 || len(s.Worst) != 2 || a.target(s, "Standard-OR").Copies != 9 || a.target(s, "Standard-OR").Compliance != nil {
		t.Errorf("without a promise for Standard-OR %+v", s)
	}
}

// The forecast counts in what comes due until then, and goes by what is really done
// as far as that is less than what is allowed.
func TestStatusForecasts(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(400)
	// 200 are due, and one more of the rest every hour.
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	a.exec(`UPDATE storage_records s SET last_fixity_at = now() - interval '90 days' + CASE WHEN n > 200 THEN interval '1 hour' * (n - 200) ELSE interval '-1 hour' END
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM storage_records WHERE target = 'Standard-VA') r WHERE r.id = s.id`)
	a.exec(`UPDATE fixity_feed SET fed = 0, every = '0', fed_at = NULL`)
	if s := a.status(); s.DoneAt != nil || s.Rate != 0 {
		t.Errorf("while nothing is allowed %+v", s)
	}
	in := func(s record.FixityStatus) float64 {
		t.Helper()
		if s.DoneAt == nil {
			t.Errorf("never: %+v", s)
			return 0
		}
		return s.DoneAt.Sub(s.At).Hours()
	}
	a.exec(`UPDATE fixity_feed SET allowance = 0, fed = 3, every = '1 hour', fed_at = now()`)
	if s := a.status(); s.Measured || s.Rate*3600 < 2.99 || s.Rate*3600 > 3.01 || in(s) < 95 || in(s) > 105 { // 200 + t = 3 t
		t.Errorf("with 3 an hour it takes %.1f h: %+v", in(s), s)
	}
	a.exec(`INSERT INTO fixity_done (target, minute, checks) SELECT 'Standard-VA', date_trunc('minute', now()) - interval '1 hour' * h, 2 FROM generate_series(0, 10) h`)
	if s := a.status(); !s.Measured || s.Rate*3600 < 2.1 || s.Rate*3600 > 2.3 || in(s) < 155 || in(s) > 185 { // 200 + t = 2.2 t
		t.Errorf("with %.2f an hour really made it takes %.1f h", s.Rate*3600, in(s))
	}
	a.exec(`UPDATE fixity_feed SET drained_at = now() - interval '10 minutes'`)
	if s := a.status(); s.Measured || s.Rate*3600 < 2.99 {
		t.Errorf("when there was nothing left to do ten minutes ago %+v", s)
	}
	a.exec(`UPDATE fixity_done SET checks = 1`)
	a.exec(`UPDATE fixity_feed SET drained_at = NULL`)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '100 days'`)
	a.exec(`UPDATE fixity_policies SET interval_days = 7 WHERE target = 'Standard-VA'`)
	if s := a.status(); s.DoneAt != nil {
		t.Errorf("400 a week, one an hour: %v", s.DoneAt)
	}
	a.exec(`UPDATE storage_records SET last_fixity_at = now()`)
	if s := a.status(); s.DoneAt == nil || !s.DoneAt.Equal(s.At) {
		t.Errorf("nothing is due: %v", s.DoneAt)
	}
}

// Of very many copies not all are counted, and the figures are much the same.
func TestStatusOfManyCopiesIsEstimated(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(1)
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	a.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at)
		SELECT generic_file_id, url || n, target, bucket, key || n, now(), now(), now() - interval '100 days' * (n * 7919 % 20000) / 20000
		FROM storage_records, generate_series(1, 20000) n`)
	a.exec(`ANALYZE storage_records`)
	a.exec(`UPDATE fixity_feed SET allowance = 0, fed = 20, every = '1 hour', fed_at = now()`)
	exact := a.status()
	s := must.Get(fixity.In(a.Registry).Status(t.Context(), fixity.StatusQuery{Days: 90, Tries: 3, Worst: 4, Count: 4000}))(t)
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.93 || got > want*1.07 {
			t.Errorf("%s: %.2f, and %.2f if all are counted", what, got, want)
		}
	}
	if exact.Estimated || !s.Estimated || s.Overdue != exact.Overdue || exact.DoneAt == nil || s.DoneAt == nil || a.target(s, "Wasabi-VA").Copies != 0 {
		t.Fatalf("estimated %+v, exact %+v", s, exact)
	}
	near("copies", float64(s.Copies), float64(exact.Copies))
	near("compliance", *s.Compliance, *exact.Compliance)
	near("hours until all is done", s.DoneAt.Sub(s.At).Hours(), exact.DoneAt.Sub(exact.At).Hours())
}

// Who asks for a check gets it before all others, without the scheduler's leave.
func TestRequestedChecksGoFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(4)
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 hour'`) // none is recent
	a.checked("0", "Standard-VA", 500*day)
	list, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag/data/3", "", false)
	if err != nil || len(list) != 1 || list[0] != (record.FixityRequested{Identifier: "test.edu/bag/data/3", Target: "Standard-VA", Files: 1, Copies: 1}) {
		t.Errorf("RequestFixity = %+v, %v", list, err)
	}
	a.exec(`UPDATE fixity_feed SET allowance = 0`)
	got := a.claims(fixity.Claim{Most: 5})
	if names(got) != "3 VA" {
		t.Errorf("without allowance %s", names(got))
	}
	a.feed(1)
	if _, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag", "", false); err != nil {
		t.Error(err)
	}
	if list, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag", "", false); err != nil || len(list) != 1 || list[0].Copies != 4 || list[0].InProgress != 1 {
		t.Errorf("of the object %+v, %v", list, err)
	}
	if next := a.claims(fixity.Claim{Most: 5}); names(next) != "0 VA, 1 VA, 2 VA" {
		t.Errorf("of the object %s", names(next))
	}
	a.recorded(matching(got[0]))
	if n := value[int](a, `SELECT allowance FROM fixity_feed`); n != 1 {
		t.Errorf("the allowance is %d, want 1", n)
	}
	if n := value[int](a, `SELECT count(*) FROM topic_messages WHERE topic = 'fixity_check'`); n != 4 {
		t.Errorf("%d are announced, want 4", n)
	}
	// A target may be named that is not read otherwise; one that has none of it is not.
	if list, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag/data/3", "Standard-OR", false); err != nil || len(list) != 1 {
		t.Errorf("in Standard-OR %+v, %v", list, err)
	}
	if list, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag/data/3", "Wasabi-VA", false); err != nil || len(list) != 0 {
		t.Errorf("in Wasabi-VA %+v, %v", list, err)
	}
	if got := names(a.claims(fixity.Claim{Most: 5})); got != "3 OR" {
		t.Errorf("then %s", got)
	}
	// What was begun before comes behind it, and not at all once its target is off.
	a.exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.checked("1", "Standard-OR", 500*day)
	a.checked("2", "Standard-OR", 400*day)
	for _, c := range a.claims(fixity.Claim{Most: 1}) {
		must.Do(t, fixity.In(a.Registry).Release(t.Context(), hold(c)))
	}
	if _, err := fixity.In(a.Registry).Request(t.Context(), "test.edu/bag/data/2", "Standard-OR", false); err != nil {
		t.Error(err)
	}
	if got := names(a.claims(fixity.Claim{Most: 1})); got != "2 OR" {
		t.Errorf("before what was begun %s", got)
	}
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	if got := names(a.claims(fixity.Claim{Most: 5})); got != "" {
		t.Errorf("of a target that is off %s", got)
	}
	for _, unknown := range []string{"test.edu/bag/data/none", ""} {
		if _, err := fixity.In(a.Registry).Request(t.Context(), unknown, "", false); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%q: %v", unknown, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`UPDATE fixity_policies SET failures = 9, paused_until = 'infinity', pause_reason = 'archived' WHERE target = 'Glacier-VA'`)
	p, err := fixity.In(a.Registry).SetPolicy(t.Context(), "Glacier-VA", "report", 365)
	if err != nil || p.Target != "Glacier-VA" || p.Provider != "AWS" || p.Mode != "report" || *p.Days != 365 || p.PausedUntil != nil || p.PauseReason != "" {
		t.Errorf("SetFixityPolicy = %+v, %v", p, err)
	}
	if p, err = fixity.In(a.Registry).SetPolicy(t.Context(), "Glacier-VA", "off", 0); err != nil || p.Mode != "off" || p.Days != nil {
		t.Errorf("SetFixityPolicy = %+v, %v", p, err)
	}
	for mode, days := range map[string]int{"often": 1, "read": -1} {
		if _, err := fixity.In(a.Registry).SetPolicy(t.Context(), "Glacier-VA", mode, days); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s, %d days: %v", mode, days, err)
		}
	}
	if _, err := fixity.In(a.Registry).SetPolicy(t.Context(), "Attic", "read", 1); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("of no target: %v", err)
	}
}

// However many copies there are, and however many are due, a claim looks at a few, in
// the order of the index.
func TestClaimsGoByIndex(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(1)
	a.exec(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at, last_fixity_at)
		SELECT generic_file_id, url || n, target, bucket, key || n, now(), now(), now() - interval '1 hour' * n FROM storage_records, generate_series(1, 20000) n`)
	a.exec(`ANALYZE storage_records`)
	claim := must.Get(os.ReadFile("fixity/claim.sql"))(t)
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		must.Do(t, pgx.BeginFunc(t.Context(), a.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL plan_cache_mode = `+mode); err != nil {
				return err
			}
			rows, _ := tx.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS) `+string(claim), pgx.NamedArgs{
				"worker": "w", "targets": []string{"Standard-VA", "Standard-OR"}, "most": 5, "days": 90, "lease": time.Minute, "few": 5, "pause": time.Minute,
			})
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			text := strings.Join(lines, "\n")
			_, overdue, _ := strings.Cut(text, "CTE overdue")
			overdue, _, _ = strings.Cut(overdue, "CTE allowed")
			if !strings.Contains(overdue, "Index Scan using storage_records_fixity") || strings.Contains(overdue, "Sort") || strings.Contains(overdue, "rows=2000") {
				t.Errorf("%s:\n%s", mode, text)
			}
			return err
		}))
	}
}

// swell has the planner take the copies for so many, all in targets as they are now.
func (a *archive) swell(copies int) {
	a.t.Helper()
	a.exec(`ANALYZE storage_records`)
	a.exec(`UPDATE pg_class SET reltuples = $1, relpages = pg_relation_size(oid) / 8192 WHERE oid = 'storage_records'::regclass`, copies)
}

// A release follows what the policies need, by estimates: hundreds of millions of copies
// are not counted, and a small archive gets a release that is small for any store.
func TestReleaseFollowsThePolicies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(100)
	follow := func(every time.Duration) int {
		t.Helper()
		return must.Get(fixity.In(a.Registry).Follow(t.Context(), every, 90))(t)
	}
	near := func(what string, got, want int) {
		t.Helper()
		if got < want*97/100 || got > want*103/100 {
			t.Errorf("%s: %d copies, want about %d", what, got, want)
		}
	}
	near("few", follow(30*time.Minute), 2500)
	a.swell(400_000_000)
	near("at the default interval", follow(30*time.Minute), 4*400_000_000/90/48)
	near("once a day", follow(day), 4*400_000_000/90)
	a.exec(`UPDATE fixity_policies SET interval_days = 365 WHERE target = 'Standard-OR'`)
	near("with two intervals", follow(30*time.Minute), 4*(200_000_000/90+200_000_000/365)/48)
	a.exec(`UPDATE fixity_policies SET mode = 'report' WHERE target = 'Standard-OR'`)
	near("without what is not read", follow(30*time.Minute), 4*200_000_000/90/48)
	a.exec(`UPDATE fixity_policies SET mode = 'off'`)
	near("nothing is promised", follow(30*time.Minute), 2500)
}

// Who looks at the state of the checks is told when they cannot keep up, why, and which
// setting helps; and not while they can.
func TestStatusSaysWhenChecksCannotKeepUp(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(100)
	a.exec(`UPDATE fixity_policies SET mode = 'off' WHERE target = 'Standard-OR'`)
	short := func(want ...string) {
		t.Helper()
		pace := must.Get(fixity.In(a.Registry).Pace(t.Context(), 90))(t)
		what, next := pace.Short(func(n int64) string { return strconv.FormatInt(n/100_000, 10) + "e5" })
		for _, w := range want {
			if !strings.Contains(what+" "+next, w) {
				t.Errorf("%q, %q do not say %q", what, next, w)
			}
		}
		if (what == "") != (len(want) == 0) || pace.KeepsUp != (what == "") {
			t.Errorf("they say %q, %q; keeps up: %v", what, next, pace.KeepsUp)
		}
		all := a.status()
		if all.KeepsUp != pace.KeepsUp && !all.Estimated {
			t.Errorf("status says %v", all.KeepsUp)
		}
		if all.Needed = pace.Needed; what != "" && !strings.Contains(all.Outlook(human.Number, human.Duration), "cannot keep up") {
			t.Errorf("the outlook is %q", all.Outlook(human.Number, human.Duration))
		}
	}
	a.feed(2500)
	short()
	a.swell(80_000_000) // half of them in the target that is off
	short("cannot keep up: about 400e5 copies every 90 days need 4e5 checks a day", "allows 1e5", "FAROL_FIXITY_FEED")
	a.feed(10_000)
	short()
	// A release that is large enough is no use when nobody makes the checks.
	a.exec(`INSERT INTO fixity_done (target, minute, checks) SELECT 'Standard-VA', date_trunc('minute', now()) - interval '1 minute' * m, 200 FROM generate_series(0, 1400) m`)
	short() // not late yet: what is due is checked
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '92 days'`)
	a.swell(80_000_000)
	short("workers make 2e5, of 4e5 that are allowed", "FAROL_FIXITY_SLOTS")
	a.exec(`UPDATE fixity_policies SET paused_until = now() + interval '1 hour', pause_reason = 'no answer' WHERE target = 'Standard-VA'`)
	short() // more slots would not help
	a.exec(`UPDATE fixity_policies SET paused_until = '-infinity'`)
	a.exec(`UPDATE fixity_feed SET fed_at = now() - interval '3 hours'`)
	short("no release was made lately", "farol schedule")
	a.exec(`UPDATE fixity_feed SET every = '0', fed = 0, fed_at = NULL`)
	short("no release was made lately")
	must.Get(a.Pause(t.Context(), registry.FixityStage, "Upgrade"))(t)
	short()
}
