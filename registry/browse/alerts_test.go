package browse_test

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// What was written to one person is read by that person, and by nobody of the staff.
func TestAlertForOnePersonIsReadByThatPerson(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	var ann, eve, alert int64
	for email, id := range map[string]*int64{"ann@archive.org": &ann, "eve@archive.org": &eve} {
		must.Do(t, db.QueryRow(t.Context(), `INSERT INTO users (email, name, role) VALUES ($1, 'Staff', 'admin') RETURNING id`, email).Scan(id))
	}
	must.Do(t, db.QueryRow(t.Context(), `INSERT INTO alerts (user_id, type, subject, content) VALUES ($1, 'Token Made', 's', 'c') RETURNING id`, ann).Scan(&alert))
	b := browse.In(registry.New(db), registry.Everything())
	for reader, want := range map[int64]int{ann: 1, eve: 0, 0: 0} {
		list, _, err := b.Alerts(t.Context(), browse.AlertFilter{For: reader}, browse.Page{Limit: 10})
		if err != nil || len(list) != want {
			t.Errorf("person %d reads %d alerts, %v", reader, len(list), err)
		}
		part, err := b.FlatAlerts(t.Context(), browse.AlertFilter{For: reader}, browse.Slice{Limit: 10})
		if err != nil || len(part.Rows) != want {
			t.Errorf("person %d reads %d flat alerts, %v", reader, len(part.Rows), err)
		}
		if _, err := b.FlatAlert(t.Context(), alert, browse.AlertFilter{For: reader}); (err == nil) != (want == 1) || err != nil && !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("person %d looks it up: %v", reader, err)
		}
		if a, err := b.Alert(t.Context(), alert, browse.AlertFilter{For: reader}); (err == nil) != (want == 1) || err != nil && !errors.Is(err, registry.ErrNotFound) || a.ID != alert*int64(want) {
			t.Errorf("person %d looks up %+v, %v", reader, a, err)
		}
	}
}
