package op

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
)

type thing struct {
	Title string `json:"short_title"`
	ID    int64  `json:"id"`
	Parts []int  `json:"parts"`
}

type things struct {
	Items []thing `json:"items"`
}

type (
	setInput struct {
		ID    int64 `path:"id"`
		After bool  `query:"after" doc:"Whether it comes last"`
		Body  struct {
			Title string     `json:"short_title" doc:"What people call it" maxLength:"100" example:"A thing"`
			Size  int        `json:"size" minimum:"1" maximum:"9" doc:"How large it is"`
			Kind  string     `json:"kind,omitempty" enum:"old,new" doc:"Its kind"`
			Until *time.Time `json:"until,omitempty" doc:"When it ends"`
			Of    struct {
				Owner string `json:"owner,omitempty" doc:"Whose it is"`
			} `json:"of,omitempty"`
		}
	}
	setAnswer   struct{ Body thing }
	listAnswer  struct{ Body things }
	emptyAnswer struct{}
)

// rowsOf is a small table.
func rowsOf() []ops.Row {
	return ops.Rows(func(a *ops.API) {
		ops.Register(a, ops.Operation{ID: "things.set", Method: "POST", Path: "/api/v1/things/{id}", Summary: "Set a thing", About: "It stays set.", Command: "thing set ID SHORT_TITLE", Access: ops.SignedIn},
			func(context.Context, access.Caller, *setInput) (*setAnswer, error) { return nil, nil }) //nolint:nilnil // it is not called
		ops.Register(a, ops.Operation{ID: "things.list", Method: "GET", Path: "/api/v1/things", Summary: "List things", Command: "thing list", Access: ops.SignedIn},
			func(context.Context, access.Caller, *emptyAnswer) (*listAnswer, error) { return nil, nil }) //nolint:nilnil // it is not called
	})
}

// A command has the arguments, the flags and the help of its row.
func TestCommandsAreMadeOfRows(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "farol"}
	root.AddCommand(&cobra.Command{Use: "thing"})
	Add(root, rowsOf())
	c, _, err := root.Find([]string{"thing", "set"})
	if err != nil || c.Use != "set ID SHORT_TITLE" || c.Short != "Set a thing" || c.Long != "Set a thing. It stays set." {
		t.Fatalf("%v: %q, %q, %q", err, c.Use, c.Short, c.Long)
	}
	if got, want := strings.Fields(c.Example), strings.Fields("farol thing set 7 'A thing' --size 1 farol thing set 7 'A thing' --size 1 --json"); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("examples: %q", got)
	}
	for flag, help := range map[string]string{
		"after": "whether it comes last", "size": "how large it is", "kind": "its kind: old, new", "until": "when it ends", "of-owner": "whose it is", "json": "print JSON",
	} {
		if f := c.Flags().Lookup(flag); f == nil || f.Usage != help {
			t.Errorf("--%s: %+v", flag, f)
		}
	}
	if c.Flags().Lookup("short-title") != nil || c.Flags().Lookup("id") != nil {
		t.Error("an argument is a flag, too")
	}
	if c.Args(c, []string{"7"}) == nil || c.Args(c, []string{"7", "A thing"}) != nil {
		t.Error("the arguments are not those of the row")
	}
}

// An answer without a sentence of its own is told as its fields, and a list as a table.
func TestAnswersAreToldAsTheirFields(t *testing.T) {
	t.Parallel()
	rows, b := rowsOf(), strings.Builder{}
	one := thing{"A thing\x1b", 7, []int{1}}
	if err := (made{Row: rows[0]}).tell(&b, one); err != nil || b.String() != "Short title: A thing\\x1b\nID: 7\n" {
		t.Errorf("%v: %q", err, b.String())
	}
	b.Reset()
	if err := (made{Row: rows[1]}).tell(&b, things{[]thing{one}}); err != nil || strings.Join(strings.Fields(b.String()), " ") != `SHORT TITLE ID A thing\x1b 7` {
		t.Errorf("%v: %q", err, b.String())
	}
	body := map[string]any{}
	put(body, "of.owner", "x")
	put(body, "of.since", 7)
	if of, _ := body["of"].(map[string]any); len(body) != 1 || of["owner"] != "x" || of["since"] != 7 {
		t.Errorf("fields within a field: %v", body)
	}
}
