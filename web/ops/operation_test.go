package ops

import (
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/permission"
)

// A row that does not say who it is for is for nobody, not even for staff with everything.
func TestRowThatGrantsByMistakeGrantsNothing(t *testing.T) {
	t.Parallel()
	staff := access.Caller{
		Person: people.Person{ID: 1}, Session: record.Session{ID: 1, Level: people.LevelFull, Fresh: true}, Permissions: permission.All(),
	}
	for name, o := range map[string]Operation{
		"nothing is said":                {},
		"anyone, with a permission":      {Access: Anyone, Needs: permission.ItemsRead},
		"signed in, with a permission":   {Access: SignedIn, Needs: permission.ItemsRead},
		"holders of no permission":       {Access: Holders},
		"holders of one that is unknown": {Access: Holders, Needs: "items.everything"},
	} {
		if o.refuses(staff) == nil {
			t.Errorf("%s: it is allowed", name)
		}
	}
	if p := (Operation{Access: Holders, Needs: permission.ItemsRead}).refuses(staff); p != nil {
		t.Errorf("a row that is right: %v", p)
	}
}
