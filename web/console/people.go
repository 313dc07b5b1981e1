package console

import (
	"net/url"
	"slices"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// peopleSheets are the pages about depositors, people and programs, and the settings.
func peopleSheets() []sheet {
	const nav = "Administration"
	return []sheet{
		{Path: "/institutions", Title: "Institutions", File: "institutions.html", Nav: nav, Shell: "farol institution list", Needs: permission.InstitutionsRead, Load: (*Pages).institutions},
		{Path: "/institutions/{id}", Title: "Institution", File: "institution.html", Shell: "farol institution list", Needs: permission.InstitutionsRead, Load: (*Pages).institution},
		{Path: "/users", Title: "Users", File: "users.html", Nav: nav, Key: "u", Shell: "farol user list", Needs: permission.UsersRead, Load: (*Pages).users},
		{Path: "/users/{id}", Title: "User", File: "user.html", Shell: "farol user list", Needs: permission.UsersRead, Load: (*Pages).user},
		{Path: "/tokens", Title: "Tokens", File: "tokens.html", Nav: nav, Shell: "farol token list", Needs: permission.TokensService, Load: (*Pages).tokens},
		{Path: "/settings", Title: "Settings", File: "settings.html", Nav: nav, Needs: permission.SettingsRead, Load: (*Pages).settings},
	}
}

func (p *Pages) institutions(v *visit) (any, error) {
	q := v.query("state", "after")
	found, err := get[listOf[record.Institution]](v, "institutions", q)
	return map[string]any{"Items": found.Items, "More": v.more(found.Next), "State": q.Get("state")}, err
}

// edited is one record, with the tag that decisions about it are sent with.
type edited[T any] struct {
	Of  T
	Tag string

	Roles []choice
}

func (p *Pages) institution(v *visit) (any, error) {
	i, tag, err := getTagged[record.Institution](v, "institutions/"+v.id(), nil)
	v.title = i.Identifier
	return edited[record.Institution]{Of: i, Tag: tag}, err
}

// usersPage are people, and who may what.
type usersPage struct {
	Users  []record.Profile
	More   string
	Filter url.Values
	Roles  []choice // that can be given
	All    bool
	Matrix []matrixRow
	Every  []string // roles, as the columns of the matrix
}

// matrixRow says which roles have a permission.
type matrixRow struct {
	Permission string
	Has        []bool // in the order of the roles
	Personal   bool   // no service has it
}

// everyRole is from the least to the most.
func everyRole() []string {
	return []string{registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin, registry.RoleAuditor, registry.RoleOperator, registry.RoleAdmin}
}

// matrix is who may what.
func matrix(costs bool) (list []matrixRow) {
	for _, one := range permission.All() {
		row := matrixRow{Permission: string(one), Personal: one.Personal()}
		for _, role := range everyRole() {
			has := slices.Contains(permission.Of(role, role == registry.RoleInstitutionalUser || role == registry.RoleInstitutionalAdmin), one)
			row.Has = append(row.Has, has || costs && one == permission.ReportsCosts && role == registry.RoleInstitutionalAdmin)
		}
		list = append(list, row)
	}
	return list
}

// rolesFor are the roles that a person may give.
func rolesFor(v *visit, chosen string) []choice {
	if v.Caller.Scope.All() {
		return choices(chosen, everyRole()...)
	}
	return choices(chosen, registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin)
}

func (p *Pages) users(v *visit) (any, error) {
	fields := []string{"role", "institution", "active"}
	d := usersPage{Filter: v.query(fields...), All: v.Caller.Scope.All(), Roles: rolesFor(v, ""), Matrix: matrix(p.web.Costs), Every: everyRole()}
	found, err := get[listOf[record.Profile]](v, "users", v.query(append(fields, "after")...))
	d.Users, d.More = found.Items, v.more(found.Next)
	return d, err
}

func (p *Pages) user(v *visit) (any, error) {
	u, tag, err := getTagged[record.Profile](v, "users/"+v.id(), nil)
	v.title = text(u.Name)
	return edited[record.Profile]{Of: u, Tag: tag, Roles: rolesFor(v, u.Role)}, err
}

// tokensPage are the tokens of services.
type tokensPage struct {
	Tokens      []record.ServiceToken
	Permissions []permission.Permission // that a service may have
	Rights      []choice
}

func (p *Pages) tokens(v *visit) (any, error) {
	found, err := get[listOf[record.ServiceToken]](v, "tokens", nil)
	return tokensPage{
		Tokens: found.Items, Permissions: permission.OfService(false),
		Rights: []choice{
			{Value: registry.RightPost, Name: "post: messages to queues"},
			{Value: registry.RightPull, Name: "pull: messages from queues and topics"},
			{Value: registry.RightLease, Name: "lease: items at stages that are processed over HTTP"},
		},
	}, err
}

func (p *Pages) settings(v *visit) (any, error) {
	s, tag, err := getTagged[record.Settings](v, "settings", nil)
	return edited[record.Settings]{Of: s, Tag: tag}, err
}
