package migrations_test

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/migrations"
)

// Actions that are on record get the institution of the person who acted, and are kept as
// they are again afterwards.
func TestEarlierActionsGetTheInstitutionOfWhoActed(t *testing.T) {
	t.Parallel()
	owner := at(t, 115)
	c := connect(t, owner)
	defer c.Close(context.Background()) //nolint:errcheck // the database goes with the test
	exec(t, c, `
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'r', 's');
		INSERT INTO users (email, name, role, institution_id) VALUES ('ann@test.edu', 'Ann', 'institutional_user', 1), ('staff@archive.org', 'Staff', 'admin', NULL);
		INSERT INTO actions (actor, user_id, operation, outcome) SELECT 'x', nullif(n, 3), 'users.add', 'done' FROM generate_series(1, 3) n;
		CREATE FUNCTION actions_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$;
		CREATE TRIGGER actions_are_kept BEFORE UPDATE OR DELETE ON actions FOR EACH ROW EXECUTE FUNCTION actions_are_kept()`)
	if err := migrations.Up(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if got := value[string](t, c, `SELECT string_agg(coalesce(actor_institution_id::text, '-'), ' ' ORDER BY id) FROM actions`); got != "1 - -" {
		t.Errorf("institutions %s", got)
	}
	if _, err := c.Exec(t.Context(), `UPDATE actions SET actor_institution_id = 2`); err == nil {
		t.Error("actions can be changed after the migration")
	}
}
