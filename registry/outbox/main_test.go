package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/outbox"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// house is a registry with two institutions and people of each role.
type house struct {
	outbox.Records
	t  testing.TB
	db *pgxpool.Pool
}

// people are all by the part of their address before the @: of a university the first
// letter says which one.
const people = `
INSERT INTO institutions (id, name, identifier, receiving_bucket, restore_bucket) OVERRIDING SYSTEM VALUE VALUES
	(1001, 'University A', 'a.edu', 'receiving.a.edu', 'restore.a.edu'), (1002, 'University B', 'b.edu', 'receiving.b.edu', 'restore.b.edu');
INSERT INTO users (email, name, institution_id, role, deactivated_at) VALUES
	('a-admin@a.edu', 'A Admin', 1001, 'institutional_admin', NULL), ('a-second@a.edu', 'A Second', 1001, 'institutional_admin', NULL),
	('a-user@a.edu', 'A User', 1001, 'institutional_user', NULL), ('a-auditor@a.edu', 'A Auditor', 1001, 'auditor', NULL),
	('a-gone@a.edu', 'A Gone', 1001, 'institutional_admin', now()),
	('b-admin@b.edu', 'B Admin', 1002, 'institutional_admin', NULL), ('b-user@b.edu', 'B User', 1002, 'institutional_user', NULL),
	('staff@archive.org', 'Staff', NULL, 'admin', NULL), ('operator@archive.org', 'Operator', NULL, 'operator', NULL),
	('auditor@archive.org', 'Auditor', NULL, 'auditor', NULL), ('staff-gone@archive.org', 'Gone', NULL, 'admin', now())`

func newHouse(t testing.TB) *house {
	t.Helper()
	db := testenv.Database(t)
	h := &house{outbox.In(registry.New(db)), t, db}
	h.exec(people)
	return h
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if _, err := h.db.Exec(context.Background(), sql, args...); err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](h *house, sql string, args ...any) T {
	h.t.Helper()
	rows, _ := h.db.Query(context.Background(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		h.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// alert writes an alert of a type for an institution; 0 is none.
func (h *house) alert(kind string, institution int64) int64 {
	h.t.Helper()
	return value[int64](h, `INSERT INTO alerts (type, institution_id, subject, content) VALUES ($1, nullif($2::bigint, 0), 'About ' || $1, 'Text') RETURNING id`, kind, institution)
}

// mailedTo are those who get a mail for an alert, with its kind.
func (h *house) mailedTo(alert int64) string {
	h.t.Helper()
	return value[string](h, `SELECT coalesce(string_agg(split_part(u.email, '@', 1) || CASE m.kind WHEN 'alert' THEN '' ELSE ' ' || m.kind END, ', ' ORDER BY u.email), '')
		FROM mail_outbox m JOIN users u ON u.id = m.user_id WHERE m.alert_id = $1`, alert)
}

func (h *house) claim(n int) []outbox.Mail {
	h.t.Helper()
	return must.Get(h.Claim(h.t.Context(), n, time.Minute))(h.t)
}

func (h *house) sent(list ...outbox.Mail) {
	h.t.Helper()
	for _, m := range list {
		must.Do(h.t, h.Sent(h.t.Context(), m.ID))
	}
}

// lapse makes all that waits due, as time would.
func (h *house) lapse() {
	h.t.Helper()
	h.exec(`UPDATE mail_outbox SET due_at = now() - interval '1 second' WHERE sent_at IS NULL AND gave_up_at IS NULL`)
}
