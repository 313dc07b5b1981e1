package settings

import (
	"os/user"
	"strings"
	"testing"
)

// Who runs a command goes with it to the database, in a name that PostgreSQL neither
// cuts nor changes; a service is no person's.
func TestPersonGoesWithTheCommand(t *testing.T) {
	t.Parallel()
	of := func(person string) (Database, error) {
		return Load(map[string]string{"FAROL_DATABASE_URL": "postgres://localhost/farol", "FAROL_USER": person}, Database{})
	}
	c, err := of("ann@archive.org")
	if err != nil || c.Program("item") != "farol-item ann@archive.org" || c.Program("work") != "farol-work" {
		t.Errorf("%q, %q, %v", c.Program("item"), c.Program("work"), err)
	}
	long, err := of(strings.Repeat("x", mostPerson))
	if name := long.Program("institution"); err != nil || len(name) > 63 {
		t.Errorf("%q has %d bytes, %v", name, len(name), err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := of(""); err != nil || c.Person != inName(me.Username) {
		t.Errorf("person %q, %v; want %q", c.Person, err, me.Username)
	}
	for _, person := range []string{strings.Repeat("x", mostPerson+1), "Zoë", "ann\x1b[31m", "ann\nbob", " ", " ann"} {
		if c, err := of(person); err == nil || !strings.Contains(err.Error(), "FAROL_USER") {
			t.Errorf("%q is taken as %q, %v", person, c.Person, err)
		}
	}
}
