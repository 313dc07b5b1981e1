package monitor

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

func TestMailIsCounted(t *testing.T) {
	t.Parallel()
	db := must.Get(pgxpool.New(t.Context(), testenv.DatabaseURL(t)))(t)
	defer db.Close()
	must.Get(db.Exec(t.Context(), `
		INSERT INTO users (email, name, role) VALUES ('staff@archive.org', 'Staff', 'admin');
		INSERT INTO alerts (type, subject, content) VALUES ('Repair Stopped', 'A', 'A'), ('Repair Stopped', 'B', 'B'), ('Repair Stopped', 'C', 'C');
		UPDATE mail_outbox SET sent_at = now() WHERE id = 1;
		UPDATE mail_outbox SET attempts = 1, created_at = now() - interval '1 hour' WHERE id = 2;
		UPDATE mail_outbox SET created_at = now() - interval '2 hours' WHERE id = 3`))(t)
	runs := NewRuns([]string{"send-mail"})
	runs.Mail.Observe(3, 2, 1)
	runs.Registry.MustRegister(NewOutbox(registry.New(db)))
	got := gathered(t, runs.Registry)
	for name, want := range map[string]float64{"farol_mail_total sent": 3, "farol_mail_total failed": 1, "farol_mail_total given up": 1, "farol_mail_waiting": 2} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %v, %v; want %v", name, v, ok, want)
		}
	}
	if age := got["farol_mail_oldest_seconds"]; age < 3600 || age > 3700 {
		t.Errorf("the oldest that was tried has waited for %v s", age)
	}
	db.Close()
	r := prometheus.NewRegistry()
	r.MustRegister(NewOutbox(registry.New(db)))
	if left := gathered(t, r); len(left) != 0 {
		t.Errorf("without the database it exports %v", left)
	}
}
