package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

// However workers go on and people type in between, sense or nonsense, as the
// owner of all tables: no item comes into a state that nobody gets it out of.
func TestNothingThatIsTypedSpoilsTheQueue(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.institution("other.edu")
	rapid.Check(t, func(t *rapid.T) {
		a.scene(`TRUNCATE work_items, work_item_attempts, work_items_archive, work_item_attempts_archive, retired_copies,
			work_item_audit, topic_messages, uploads_in_work, objects_in_work, institution_virtual_times RESTART IDENTITY`)
		a.exec(`UPDATE stage_settings SET paused = false, cap = NULL, max_attempts = 3`)
		m := &typist{archive: a, t: t}
		t.Repeat(map[string]func(*rapid.T){
			"arrive":   m.arrive,
			"claim":    func(t *rapid.T) { m.move(t, "Pending", claimed) },
			"done":     func(t *rapid.T) { m.move(t, "Started", done) },
			"fail":     func(t *rapid.T) { m.move(t, "Started", failing) },
			"park":     func(t *rapid.T) { m.move(t, "Started", parking) },
			"archive":  func(*rapid.T) { m.exec(toArchive) },
			"type":     func(t *rapid.T) { m.try(t, columns(t)) },
			"type two": func(t *rapid.T) { m.try(t, columns(t)) },
			"call":     func(t *rapid.T) { m.try(t, calls(t)) },
			"":         func(*rapid.T) { m.check() },
		})
		a.seen(t, "all of it")
	})
}

// What the engine does, for the item $1.
const (
	claimed = `WITH c AS (
			UPDATE work_items SET status = 'Started', claim_token = claim_token + 1, attempt = attempt + 1, node = 'n', pid = 1, worker = 'w',
				stage_started_at = now(), lease_expires_at = now() + interval '30 seconds', updated_at = now()
			WHERE id = $1 AND run_at <= now() + interval '1 day' RETURNING *)
		INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		SELECT id, claim_token, stage, attempt, node, pid, worker FROM c`
	leave = `WITH s AS (
			UPDATE work_items SET claim_token = claim_token + 1, lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL,
				run_at = now(), updated_at = now(), `
	ends    = ` WHERE id = $1 RETURNING id, claim_token) UPDATE work_item_attempts a SET ended_at = now(), outcome = `
	of      = ` FROM s WHERE a.work_item_id = s.id AND a.claim_token = s.claim_token - 1`
	failing = leave + `status = 'Pending', note = 'Trouble.', error_code = 'trouble'` + ends + `'transient'` + of
	parking = leave + `status = 'Suspended', retry = false, needs_admin_review = true, note = 'Gave up.'` + ends + `'transient'` + of
	done    = leave + `attempt = 0, entered_token = claim_token + 1,
		stage = CASE stage WHEN 'Receive' THEN 'Validate' WHEN 'Validate' THEN 'Store' ELSE 'Cleanup' END,
		status = CASE stage WHEN 'Cleanup' THEN 'Success' ELSE 'Pending' END, retry = stage <> 'Cleanup'` + ends + `'done'` + of
)

type typist struct {
	*archive
	t          *rapid.T
	identities map[int64]string
	tokens     map[int64]int64
}

func (m *typist) arrive(t *rapid.T) {
	key := rapid.SampledFrom([]string{"bag.tar", "bag.b01.of02.tar", "bag.b02.of02.tar", "other.tar"}).Draw(t, "key")
	m.upload(rapid.SampledFrom([]string{etag1, etag2}).Draw(t, "etag"), time.Now(), key)
}

// move lets the engine do something with an item of a status.
func (m *typist) move(t *rapid.T, status, how string) {
	ids := m.table(`SELECT id FROM work_items WHERE status = '` + status + `' ORDER BY id`)
	if len(ids) == 0 {
		return
	}
	sql := strings.ReplaceAll(how, "$1", rapid.SampledFrom(ids).Draw(t, "item"))
	m.exec(sql)
}

// try types a statement, which may be refused, but not by an accident.
func (m *typist) try(t *rapid.T, statement string) {
	t.Log(statement)
	_, err := m.db.Exec(context.Background(), statement)
	var refused *pgconn.PgError
	if err == nil || errors.As(err, &refused) && (slices.Contains([]string{"22", "23", "54"}, refused.Code[:2]) || refused.Code == "P0002") {
		return
	}
	t.Fatalf("%s: %v", statement, err)
}

func (m *typist) check() {
	m.fit(m.t, "this")
	identities, tokens := m.frozen(m.t)
	for id, was := range m.identities {
		if is, there := identities[id]; there && is != was || there && tokens[id] < m.tokens[id] {
			m.t.Fatalf("item %d was %s with token %d, and is %s with token %d", id, was, m.tokens[id], is, tokens[id])
		}
		if _, there := identities[id]; !there && value[int](m.archive, `SELECT count(*) FROM work_items_archive WHERE id = $1`, id) != 1 {
			m.t.Fatalf("item %d is gone", id)
		}
	}
	m.identities, m.tokens = identities, tokens
}

// values are what someone may type into a column of work_items.
func values() map[string]string {
	const times = `now()|now() + interval '1 hour'|now() - interval '1 hour'|'infinity'|'-infinity'|NULL`
	return map[string]string{
		"stage":                  `'Receive'|'Validate'|'Store'|'Record'|'Cleanup'|'store'|'Stroe'|'Requested'|NULL`,
		"status":                 `'Pending'|'Started'|'Success'|'Failed'|'Cancelled'|'Suspended'|'pending'|'Pendign'|NULL`,
		"retry":                  `true|false|NULL`,
		"attempt":                `-1|0|1|5|2147483647|NULL`,
		"entered_token":          `-1|0|99|claim_token + 1|NULL`,
		"run_at":                 times,
		"lease_expires_at":       times + `|now() + interval '1 year'`,
		"stage_started_at":       times,
		"size":                   `0|-1|73400320|9223372036854775807|NULL`,
		"size_band":              `-1|0|3|NULL`,
		"virtual_start":          `-1|0|9223372036854775807|NULL`,
		"waits_for":              `id|1|2|3|99|NULL`,
		"pid":                    `0|NULL`,
		"node":                   `'mine'|NULL`,
		"worker":                 `'mine'|NULL`,
		"priority":               `-100|0|100|101|99999|NULL`,
		"needs_admin_review":     `true|false|NULL`,
		"institution_id":         `1|2|99|NULL`,
		"action":                 `'Ingest'|'Delete'|'ingest'|NULL`,
		"name":                   `'bag.tar'|'new.tar'|''|NULL`,
		"bucket":                 `'other'|NULL`,
		"etag":                   `'e'|NULL`,
		"bag_date":               times,
		"object_identifier":      `'test.edu/bag'|'test.edu/new'|NULL`,
		"storage_option":         `'Standard'|'Attic'|NULL`,
		"intellectual_object_id": `99|NULL`,
		"generic_file_id":        `99|NULL`,
		`"user"`:                 `'a@b'|'nobody'|NULL`,
		"note":                   `''|'Look at it.'|NULL`,
		"outcome":                `''|'Well.'|NULL`,
		"error_code":             `''|'trouble'|NULL`,
		"date_processed":         times,
		"queued_at":              times,
		"created_at":             times,
		"updated_at":             times,
		"id":                     `DEFAULT`,
	}
}

// columns is an UPDATE of one, two or three columns, of one item or of all.
func columns(t *rapid.T) string {
	all := values()
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(all))), 1, 3, rapid.ID[string]).Draw(t, "columns")
	for i, name := range names {
		names[i] = name + " = " + rapid.SampledFrom(strings.Split(all[name], "|")).Draw(t, "value")
	}
	if rapid.IntRange(0, 3).Draw(t, "often") == 0 { // what is typed most is of use most often
		names = []string{
			"status = " + rapid.SampledFrom(strings.Split(all["status"], "|")).Draw(t, "status"),
			"stage = " + rapid.SampledFrom(strings.Split(all["stage"], "|")).Draw(t, "stage"),
		}
	}
	where := rapid.SampledFrom([]string{"", " WHERE id = 1", " WHERE id = 2", " WHERE id = 3", " WHERE id = 4"}).Draw(t, "where")
	return "UPDATE work_items SET " + strings.Join(names, ", ") + where
}

// calls is a function of the schema, or something else that may be typed.
func calls(t *rapid.T) string {
	id := rapid.IntRange(1, 6).Draw(t, "item")
	stage := rapid.SampledFrom([]string{"NULL", "'Receive'", "'Store'", "'store'", "'Cleanup'"}).Draw(t, "stage")
	return rapid.SampledFrom([]string{
		fmt.Sprintf(`SELECT requeue(%d)`, id),
		fmt.Sprintf(`SELECT requeue(%d, %s)`, id, stage),
		fmt.Sprintf(`SELECT cancel(%d, 'No longer wanted.')`, id),
		fmt.Sprintf(`SELECT release(%d)`, id),
		fmt.Sprintf(`SELECT set_priority(%d, %d)`, id, id*30-100),
		`SELECT requeue_where('status IN (''Failed'', ''Suspended'')', dry_run => false)`,
		fmt.Sprintf(`SELECT requeue_where('id > %d', %s, false)`, id, stage),
		fmt.Sprintf(`SELECT pause_stage(%s)`, stage),
		`SELECT pause_all('Wait.')`, `SELECT resume_all()`,
		`DELETE FROM work_items`, fmt.Sprintf(`DELETE FROM work_items WHERE id = %d`, id),
		`DELETE FROM work_item_attempts`,
		`TRUNCATE work_items CASCADE`, `TRUNCATE work_item_attempts`, `TRUNCATE uploads_in_work`, `TRUNCATE stage_settings`,
		`DELETE FROM uploads_in_work`, `UPDATE uploads_in_work SET work_item_id = 99`,
		`INSERT INTO uploads_in_work VALUES ('test.edu/bag', 'bag.tar', 'e', 99)`,
		`UPDATE work_item_attempts SET ended_at = NULL, outcome = NULL WHERE ended_at IS NOT NULL`,
		`UPDATE work_item_attempts SET outcome = 'done' WHERE ended_at IS NOT NULL`,
		`UPDATE work_item_attempts SET claim_token = claim_token + 1`,
		`UPDATE work_item_attempts SET heartbeat_at = 'infinity'`,
		`UPDATE work_items SET claim_token = claim_token - 1`,
		`UPDATE work_items SET claim_token = claim_token + 1`,
		`UPDATE work_items SET claim_token = 9223372036854775807`,
		`UPDATE stage_settings SET stage = 'Stroe' WHERE stage = 'Store'`,
		`UPDATE stage_settings SET ordinal = 1`,
		`UPDATE stage_settings SET topic = ''`,
		`UPDATE stage_settings SET max_attempts = -1`,
		`UPDATE stage_settings SET paused = true, paused_by = NULL`,
		`UPDATE stage_settings SET lease = '1 second'`,
		`UPDATE stage_settings SET backoff_most = NULL`,
		`UPDATE stage_settings SET cap = 1`,
		`DELETE FROM stage_settings WHERE stage = 'Receive' AND EXISTS (SELECT FROM work_items WHERE stage = 'Receive' AND status = 'Pending')`,
	}).Draw(t, "call")
}
