package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/reference"
	"github.com/farol-preservation/farol/web/ops"
)

// docs/reference/operations.md is the table of operations. After a change:
// go test ./web/api -run OperationsAreListed -update.
func TestOperationsAreListed(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Operations of the REST API\n\nThis page is generated: `go test ./web/api -run OperationsAreListed -update` writes it. Paths are below `/api/v1`.\n" +
		"`GET /api` on the server has parameters and answers. [Security](../security.md#people-who-sign-in) says which role has which permission;\n" +
		"*browser*: no token may do it; *proof*: it needs a proof of the last ten minutes; *person*: the token of a service may not.\n" +
		"An operation without a permission has that of the one before it. Where a command stands, it is made of the operation.\n\n| path | operations, with the permission |\n|---|---|\n")
	var group, at, permission, end string
	list := newSite(t).table.Rows()
	slices.SortStableFunc(list, func(x, y ops.Row) int { return strings.Compare(x.Path, y.Path) })
	for _, o := range list {
		may := []string{string(o.Needs)}
		switch o.Access {
		case ops.Anyone:
			may[0] = "anyone"
		case ops.Half, ops.SignedIn:
			may[0] = "signed in"
		case ops.Holders, ops.Here: // of the permission
		}
		if o.Session {
			may = append(may, "browser")
		}
		if o.Fresh {
			may = append(may, "proof")
		}
		if o.Person && !o.Session {
			may = append(may, "person")
		}
		path := strings.TrimPrefix(o.Path, "/api/v1")
		of, _, _ := strings.Cut(path[1:], "/")
		switch {
		case of != group:
			fmt.Fprintf(&b, "%s| `/%s` | ", end, of)
			group, at, permission = of, "/"+of, ""
		default:
			b.WriteString(", ")
		}
		if path != at {
			fmt.Fprintf(&b, "`%s` ", strings.TrimPrefix(path, "/"+of))
		}
		at, end = path, " |\n"
		fmt.Fprintf(&b, "%s `%s`", o.Method, o.ID)
		if o.Command != "" {
			fmt.Fprintf(&b, " `farol %s`", o.Command)
		}
		if now := strings.Join(may, ", "); now != permission {
			permission = now
			fmt.Fprintf(&b, " (%s)", permission)
		}
	}
	b.WriteString(end)
	reference.Fresh(t, "../../docs/reference/operations.md", b.String())
}
