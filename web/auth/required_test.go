package auth

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
)

// Who is asked for a second factor and has none is out, and sets one up at the next sign-in.
func TestRequiredFactorEndsSessionsWithoutOne(t *testing.T) {
	t.Parallel()
	required := true
	for what, require := range map[string]func(d *door, p people.Person) error{
		"of the person": func(d *door, p people.Person) error {
			_, err := d.people.Change(t.Context(), registry.Everything(), p.ID, 0, people.Changes{FactorRequired: &required})
			return err
		},
		"of the institution": func(d *door, p people.Person) error {
			_, err := d.people.ChangeInstitution(t.Context(), registry.Everything(), p.InstitutionID, 0, people.InstitutionChanges{FactorRequired: &required})
			return err
		},
	} {
		d := newDoor(t)
		ann, bob := d.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), d.person("bob@test.edu", registry.RoleInstitutionalUser, "test.edu")
		other := d.enter(d.person("eve@other.edu", registry.RoleInstitutionalUser, "other.edu"))
		d.strong(bob)
		weak, strong := d.enter(ann), d.enter(bob)
		must.Do(t, errors.Join(require(d, ann), require(d, bob)))
		if !d.ended(weak.Secret) || d.ended(strong.Secret) || d.ended(other.Secret) {
			t.Errorf("required %s: ended %v, %v, %v", what, d.ended(weak.Secret), d.ended(strong.Secret), d.ended(other.Secret))
		}
		if s := d.enter(ann); s.Next != NextSetUp {
			t.Errorf("required %s: the next sign-in is %+v", what, s)
		}
	}
}
