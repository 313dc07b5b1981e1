package accounts

import (
	"net/url"
	"slices"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// Sheets are the pages about depositors, people and programs, and the settings.
func Sheets() []frame.Sheet {
	const nav = "Administration"
	return []frame.Sheet{
		{Path: "/audit", Title: "Audit", File: "audit.html", Nav: "Archive", Needs: permission.AuditRead, Load: loadAudit},
		{Path: "/institutions", Title: "Institutions", File: "institutions.html", Nav: nav, Shell: "farol institution list", Needs: permission.InstitutionsRead, Load: loadInstitutions},
		{Path: "/institutions/{id}", Title: "Institution", File: "institution.html", Shell: "farol institution list", Needs: permission.InstitutionsRead, Load: loadInstitution},
		{Path: "/users", Title: "Users", File: "users.html", Nav: nav, Key: "u", Shell: "farol user list", Needs: permission.UsersRead, Load: loadUsers},
		{Path: "/users/{id}", Title: "User", File: "user.html", Shell: "farol user list", Needs: permission.UsersRead, Load: loadUser},
		{Path: "/tokens", Title: "Tokens", File: "tokens.html", Nav: nav, Shell: "farol token list", Needs: permission.TokensService, Load: loadTokens},
		{Path: "/settings", Title: "Settings", File: "settings.html", Nav: nav, Needs: permission.SettingsRead, Load: loadSettings},
	}
}

func loadInstitutions(v *frame.Visit) (any, error) {
	q := v.Query("state", "after")
	found, err := frame.Get[frame.List[record.Institution]](v, "institutions", q)
	return map[string]any{"Items": found.Items, "More": v.More(found.Next), "State": q.Get("state")}, err
}

// edited is one record, with the tag that decisions about it are sent with.
type edited[T any] struct {
	Of  T
	Tag string

	Roles []frame.Choice
}

func loadInstitution(v *frame.Visit) (any, error) {
	i, tag, err := frame.GetTagged[record.Institution](v, "institutions/"+v.ID(), nil)
	v.Title = i.Identifier
	return edited[record.Institution]{Of: i, Tag: tag}, err
}

// usersPage are people, and who may what.
type usersPage struct {
	Users  []record.Profile
	More   string
	Filter url.Values
	Roles  []frame.Choice // that can be given
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
func rolesFor(v *frame.Visit, chosen string) []frame.Choice {
	if v.Caller.Scope.All() {
		return frame.Choices(chosen, everyRole()...)
	}
	return frame.Choices(chosen, registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin)
}

func loadUsers(v *frame.Visit) (any, error) {
	fields := []string{"role", "institution", "active"}
	d := usersPage{Filter: v.Query(fields...), All: v.Caller.Scope.All(), Roles: rolesFor(v, ""), Matrix: matrix(v.Frame.Web.Costs), Every: everyRole()}
	found, err := frame.Get[frame.List[record.Profile]](v, "users", v.Query(append(fields, "after")...))
	d.Users, d.More = found.Items, v.More(found.Next)
	return d, err
}

func loadUser(v *frame.Visit) (any, error) {
	u, tag, err := frame.GetTagged[record.Profile](v, "users/"+v.ID(), nil)
	v.Title = words.Text(u.Name)
	return edited[record.Profile]{Of: u, Tag: tag, Roles: rolesFor(v, u.Role)}, err
}

// tokensPage are the tokens of services.
type tokensPage struct {
	Tokens      []record.ServiceToken
	Permissions []permission.Permission // that a service may have
	Rights      []frame.Choice
}

func loadTokens(v *frame.Visit) (any, error) {
	found, err := frame.Get[frame.List[record.ServiceToken]](v, "tokens", nil)
	return tokensPage{
		Tokens: found.Items, Permissions: permission.OfService(false),
		Rights: []frame.Choice{
			{Value: registry.RightPost, Name: "post: messages to queues"},
			{Value: registry.RightPull, Name: "pull: messages from queues and topics"},
			{Value: registry.RightLease, Name: "lease: items at stages that are processed over HTTP"},
		},
	}, err
}

func loadSettings(v *frame.Visit) (any, error) {
	s, tag, err := frame.GetTagged[record.Settings](v, "settings", nil)
	return edited[record.Settings]{Of: s, Tag: tag}, err
}
