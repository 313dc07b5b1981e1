package explain

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/reference"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// codesInUse are those that the code base gives to findings, errors and items,
// each with where.
func codesInUse(t *testing.T) map[string]string {
	t.Helper()
	codes := map[string]string{}
	inSQL := regexp.MustCompile(`(?:error_code|m\.code|m\.end_code)\s*:?=(?:\s*'[a-z-]+'|\s*CASE .*)|CASE .* AS code`)
	given := regexp.MustCompile(`(?:=|THEN|ELSE)\s*'([a-z-]+)'`)
	must.Do(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.Base(filepath.Dir(path))
		switch {
		case strings.HasSuffix(path, ".sql"), strings.HasSuffix(path, ".go") && dir == "claim":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, assignment := range inSQL.FindAllString(string(text), -1) {
				for _, m := range given.FindAllStringSubmatch(assignment, -1) {
					codes[m[1]] = path
				}
			}
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, code := range codesOf(n, dir) {
				codes[code] = path
			}
			return true
		})
		return nil
	}))
	for _, code := range []string{
		"record-refused", "storage-digest", "target-missing", "virus-scanner", // of earlier versions, which may be on record
	} {
		codes[code] = "the record"
	}
	for service, kinds := range faultKinds() {
		for _, k := range kinds {
			codes[(&fault.Error{Service: service, Kind: k}).Code()] = "fault"
		}
	}
	delete(codes, "")
	return codes
}

// faultKinds are what can be wrong with each service.
func faultKinds() map[string][]fault.Kind {
	server := []fault.Kind{fault.Unavailable, fault.Overloaded, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly, fault.WrongAnswer, fault.Refused}
	return map[string][]fault.Kind{
		fault.Bucket("any"): append(slices.Clone(server), fault.Skewed),
		fault.Redis:         server,
		fault.Database:      server,
		fault.Scanner:       {fault.Unavailable, fault.WrongAnswer},
		fault.Disk:          {fault.Unavailable, fault.Denied, fault.Missing, fault.Full, fault.ReadOnly},
		fault.Memory:        {fault.Full},
		fault.Identifier:    {fault.Unavailable, fault.Denied, fault.Missing},
		fault.Settings:      {fault.Missing},
	}
}

// codesOf are the codes that a piece of code names: in claim.Fatal("code", and its
// kin, as the constants of bag/finding and code… of claim, as the field code, and as what
// claim.Code returns.
func codesOf(n ast.Node, dir string) (codes []string) {
	text := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				codes = append(codes, s)
			}
		}
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			if of, ok := f.X.(*ast.Ident); ok && of.Name == "claim" {
				name = f.Sel.Name
			}
		case *ast.Ident:
			if dir == "claim" {
				name = f.Name
			}
		}
		if slices.Contains([]string{"Fatal", "Transient", "Suspend", "Cancel", "SendBackAs", "SnoozeAs"}, name) && len(n.Args) > 1 {
			text(n.Args[0])
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if (dir == "finding" || dir == "claim" && strings.HasPrefix(name.Name, "code")) && i < len(n.Values) {
				text(n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "code" && dir == "claim" {
			text(n.Value)
		}
	case *ast.FuncDecl:
		if dir == "claim" && n.Name.Name == "Code" {
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
					text(r.Results[0])
				}
				return true
			})
		}
	}
	return codes
}

// Anyone who reads a code anywhere gets to know whose fault it is, and what to do.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	used, explained := codesInUse(t), Verdicts()
	for _, known := range []string{
		"invalid-bag", "storage-denied", "bag-gone", "bag-changed", "bad-copy", "sent-back", "transient", "timeout", "lost", "released", "snoozed",
		"panic", "superseded", "by-hand", "oom", "killed", "lease-expired", "unreachable", "digest-mismatch", "not-a-tar",
	} {
		if used[known] == "" {
			t.Errorf("the search does not find %s", known)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(used)) {
		v, ok := explained[code]
		if !ok {
			t.Errorf("%s, in %s, has no row in codes.txt", code, used[code])
			continue
		}
		if Faults()[v.Fault] == "" || v.Fault == "unknown" || !strings.HasSuffix(v.Means, ".") || !strings.HasSuffix(v.Todo, ".") {
			t.Errorf("the row of %s is not complete: %+v", code, v)
		}
	}
	for code := range explained {
		if used[code] == "" {
			t.Errorf("codes.txt explains %s, which nothing uses", code)
		}
	}
	rows := 0
	for line := range strings.Lines(codesText) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rows++
		}
	}
	if rows != len(explained) {
		t.Errorf("codes.txt has %d rows, of which %d can be read", rows, len(explained))
	}
}

// The pages about codes are codes.txt, which farol item explain reads. After a change:
// go test ./explain -run EveryCodeIsDocumented -update.
func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	for name, bags := range map[string]bool{"validation-codes.md": true, filepath.Join("reference", "codes.md"): false} {
		path := filepath.Join("..", "docs", name)
		page := must.Get(os.ReadFile(path))(t)
		const begin = "<!-- generated: begin -->\n"
		before, _, _ := strings.Cut(string(page), begin)
		reference.Fresh(t, path, before+begin+codesTables(bags))
	}
}

// codesTables are the codes of bags, with what to do, or all others.
func codesTables(bags bool) string {
	var b, services strings.Builder
	ofBags, head, last := false, "", ""
	for line := range strings.Lines(codesText) {
		line = strings.TrimSpace(line)
		if subject, ok := strings.CutPrefix(line, "# "); ok {
			ofBags = ofBags || strings.HasPrefix(subject, "Of bags")
			if i := strings.Index(subject, "First the "); i >= 0 {
				subject = "The " + subject[i+len("First the "):]
			}
			head, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSuffix(subject, "."), "Of "), ", see")
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 4 || ofBags != bags {
			continue
		}
		code, fault, means, todo := fields[0], fields[1], fields[2], fields[3]
		if service, ok := ofService(code); ok {
			kind := strings.TrimPrefix(code, service+"-")
			if service != last {
				fmt.Fprintf(&services, "\n| `%s-` | `%s`", service, kind)
			} else {
				fmt.Fprintf(&services, ", `%s`", kind)
			}
			last = service
			continue
		}
		if head != "" {
			title := strings.ToUpper(head[:1]) + head[1:]
			if bags {
				fmt.Fprintf(&b, "\n## %s\n\n| code | what it means | what to do |\n|---|---|---|\n", title)
			} else {
				fmt.Fprintf(&b, "\n## %s\n\n| code | fault | what it means |\n|---|---|---|\n", title)
			}
			head = ""
		}
		if bags {
			if strings.HasPrefix(todo, "Nothing") {
				todo = ""
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, means, todo)
		} else {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", code, fault, strings.TrimSuffix(means, " The attempt does not count."))
		}
	}
	if !bags {
		b.WriteString("\n## Codes of services\n\nA [service](../runbook.md#codes-of-services) and a [kind](../runbook.md#kinds), such as `storage-denied`. The item waits and continues by itself; `farol services` shows what is held.\n\n" +
			"| service | kinds |\n|---|---|" + strings.ReplaceAll(services.String()+"\n", "`\n", "` |\n"))
	}
	return b.String() + "\n<!-- generated: end -->\n"
}

// ofService reports whether a code is a service with what is wrong with it.
func ofService(code string) (service string, ok bool) {
	for service, kinds := range faultKinds() {
		for _, k := range kinds {
			e := &fault.Error{Service: service, Kind: k}
			if e.Code() == code {
				return strings.TrimSuffix(code, "-"+string(k)), true
			}
		}
	}
	return "", false
}
